//! T46: known attacks on HTTP/2 servers.

use crate::attack::{ATTACKS, FLOODS, RoundBytes, attack, connect_http2, flood};
use crate::check_client::CheckClient;
use crate::frames::{
    DATA, ENHANCE_YOUR_CALM, PING, PREFACE, RST_STREAM, SETTINGS_TYPE, WINDOW_UPDATE, call, frame,
    frame_types, goaway, stream,
};
use crate::harness::{
    Directory, PATIENCE, Peer, assert_grew_less, assert_serves, eventually, http, rss_bytes, secs,
    start, start_exclusive,
};
use std::io::{Read, Write};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tidegate_server::config::load;
use tidegate_server::net::Wire;

const MEMORY_BYTES_MAX: usize = 64 << 20;

// T46
#[test]
fn an_attacker_is_disconnected_at_once_with_the_reason() {
    // A long time limit for requests, so that the server does not close endless headers for being slow.
    let running = start_exclusive(|config| config.server.caps.request = secs(60));
    let before = rss_bytes();
    for (name, why, bytes) in ATTACKS {
        let since = Instant::now();
        let received = attack(&running, since + PATIENCE, bytes);
        let received = goaway(&received).map(|goaway| goaway.why);
        assert_eq!(received, Some(why), "{name}: GOAWAY with the reason");
        assert!(
            since.elapsed() < secs(2),
            "{name}: the server accepted it for {:?}",
            since.elapsed()
        );
        assert_serves(&running);
    }
    assert_grew_less(before, MEMORY_BYTES_MAX);
    let open = || running.server.status.connections.sum();
    eventually("all connections are closed", secs(5), || open() == 0);
    running.stop().unwrap();
}

/// Ways to cancel a call, and the frame that does it.
const CANCELLATIONS: [(&str, RoundBytes<u32>); 3] = [
    ("RST_STREAM of the client", |stream| frame(RST_STREAM, 0, stream, &[0, 0, 0, 8])),
    ("a window overflow", |stream| frame(WINDOW_UPDATE, 0, stream, &[0x7f, 0xff, 0xff, 0xff])),
    ("data after END_STREAM", |stream| frame(DATA, 0, stream, b"more")),
];

// T46
#[test]
fn a_cancelled_call_is_charged() {
    let directory = Directory::new();
    let rule = "rule = \"1/min queue capacity 3\"\ndomain = \"d\"\ndescriptor = [\"a\"]";
    let text = format!("[limits.queue]\n{rule}\n");
    let limits = load(&directory.write("tidegate.toml", &text)).expect("the file is valid").limits;
    let running = start(|config| config.limits = limits);
    let waiting = |number| running.server.status.waiting.load(Ordering::Relaxed) == number;
    assert!(
        CheckClient::new(Wire::Grpc, &running).check(),
        "the first call is decided immediately"
    );
    for (how, back) in CANCELLATIONS {
        let mut peer = connect_http2(&running);
        peer.send(call(1));
        eventually("the call is queued", secs(5), || waiting(1));
        peer.send(back(1));
        eventually(how, secs(5), || waiting(0));
    }
    // The queue of the limit is full, because cancelled calls keep their places.
    assert!(CheckClient::new(Wire::Grpc, &running).check(), "the denial is immediate");
    let metrics = http(running.addresses.admin, "GET /metrics HTTP/1.1\r\nhost: localhost", b"");
    for (decision, number) in [("allow", 1), ("wait", 3), ("deny", 1)] {
        let line = format!("{{limit=\"queue\",decision=\"{decision}\"}} {number}\n");
        assert!(metrics.contains(&line), "{line} is not in {metrics}");
    }
    running.stop().unwrap();
}

// T46
#[test]
fn a_client_that_sends_endless_settings_or_pings_is_closed() {
    let running = start_exclusive(|_| ());
    let before = rss_bytes();
    let open = || running.server.status.connections.sum();
    for (name, what) in FLOODS {
        for listens in [true, false] {
            let since = Instant::now();
            if listens {
                attack(&running, since + PATIENCE, what);
            } else {
                let mut peer = connect_http2(&running);
                peer.shrink_receive_buffer();
                assert!(!flood(&mut peer, 20_000, what), "{name}: the server reads them forever");
            }
            // Less than the time limit of a request, so the server closed the connection for the frames and not for the time.
            let took = since.elapsed();
            assert!(
                took < Duration::from_millis(900),
                "{name}: the server accepted them for {took:?}"
            );
            eventually("the connection is closed", secs(5), || open() == 0);
            assert_serves(&running);
        }
    }
    assert_grew_less(before, MEMORY_BYTES_MAX);
    running.stop().unwrap();
}

// T46
#[test]
fn a_client_that_pings_often_and_sends_requests_may_stay() {
    let running = start(|_| ());
    let mut peer = connect_http2(&running);
    let pings = frame(PING, 0, 0, &[1; 8]).repeat(900);
    for number in 0..20 {
        assert!(
            peer.send([pings.clone(), call(stream(number))].concat()),
            "the server closed the connection"
        );
        let mut received = Vec::new();
        while !frame_types(&received).contains(&DATA) {
            let mut piece = [0; 4_096];
            let read = peer.0.read(&mut piece).expect("it is answered");
            assert!(read > 0, "the server closed the connection");
            received.extend_from_slice(&piece[..read]);
        }
    }
    running.stop().unwrap();
}

// T46
#[test]
fn the_number_of_blocked_answers_is_bounded() {
    // The clients send no more requests, so the server does not wait for the end of the drain.
    let running = start_exclusive(|config| config.server.drain = secs(30));
    let before = rss_bytes();
    let mut peers: Vec<Peer> = (0..4).map(|_| Peer::new(running.addresses.grpc)).collect();
    // INITIAL_WINDOW_SIZE (4) is 0: the server may send no message of an answer.
    let stall = frame(SETTINGS_TYPE, 0, 0, &[0, 4, 0, 0, 0, 0]);
    let mut received = Vec::new();
    for peer in &mut peers {
        peer.send([PREFACE, &stall].concat());
        // The server accepts 1,024 calls in flight and refuses a few more. It closes the connection of a client that goes on.
        let _ = flood(peer, 1_200, |number| call(stream(number)));
        let _ = peer.0.flush();
        received.clear();
        while !frame_types(&received).contains(&RST_STREAM) {
            let mut piece = [0; 4_096];
            let read =
                peer.0.read(&mut piece).expect("the server refuses the calls over the maximum");
            assert!(read > 0, "the server closed the connection");
            received.extend_from_slice(&piece[..read]);
        }
        assert!(
            !frame_types(&received).contains(&DATA),
            "the server sent a message in spite of the window"
        );
    }
    let mut peer = peers.pop().expect("there are some");
    flood(&mut peer, 1_200, |number| call(stream(1_200 + number)));
    received.extend(peer.read_to_end().expect("the server closes the connection"));
    let why = goaway(&received).map(|goaway| goaway.why);
    assert_eq!(why, Some(ENHANCE_YOUR_CALM), "GOAWAY for a client that goes on");
    assert_serves(&running);
    assert_grew_less(before, MEMORY_BYTES_MAX);
    let since = Instant::now();
    running.stop().unwrap();
    assert!(
        since.elapsed() < secs(4),
        "the connections delayed the shutdown for {:?}",
        since.elapsed()
    );
}

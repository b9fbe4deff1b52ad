//! T46: known attacks on HTTP/2 servers.

use crate::asker::Asker;
use crate::attack::{ATTACKS, FLOODS, Says, attacked, begun, flood};
use crate::frames::{
    DATA, ENHANCE_YOUR_CALM, PING, PREFACE, RST_STREAM, SETTINGS_KIND, WINDOW_UPDATE, call, frame,
    goodbye, kinds, stream,
};
use crate::harness::{
    Directory, PATIENCE, Peer, assert_grew_less, eventually, http, rss_bytes, secs, serves, start,
    start_alone,
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
    // For headers that do not end there is time: they are cut off for what they are.
    let running = start_alone(|config| config.server.caps.request = secs(60));
    let before = rss_bytes();
    for (name, why, what) in ATTACKS {
        let since = Instant::now();
        let heard = attacked(&running, since + PATIENCE, what);
        let heard = goodbye(&heard).map(|goodbye| goodbye.why);
        assert_eq!(heard, Some(why), "{name}: the server goes on");
        assert!(since.elapsed() < secs(2), "{name}: it goes on for {:?}", since.elapsed());
        serves(&running);
    }
    assert_grew_less(before, MEMORY_BYTES_MAX);
    let open = || running.server.status.connections.sum();
    eventually("they are gone", secs(5), || open() == 0);
    running.stop().unwrap();
}

/// A call is taken back, and how it is.
const TAKEN_BACK: [(&str, Says<u32>); 3] = [
    ("by the peer", |stream| frame(RST_STREAM, 0, stream, &[0, 0, 0, 8])),
    ("by a window without end", |stream| {
        frame(WINDOW_UPDATE, 0, stream, &[0x7f, 0xff, 0xff, 0xff])
    }),
    ("by more after the end", |stream| frame(DATA, 0, stream, b"more")),
];

// T46
#[test]
fn a_cancelled_call_is_charged() {
    let directory = Directory::new();
    let rule = "rule = \"1/min queue capacity 3\"\ndomain = \"d\"\ndescriptor = [\"a\"]";
    let text = format!("[limits.line]\n{rule}\n");
    let limits = load(&directory.write("tidegate.toml", &text)).expect("it is good").limits;
    let running = start(|config| config.limits = limits);
    let waiting = |number| running.server.status.waiting.load(Ordering::Relaxed) == number;
    assert!(Asker::new(Wire::Grpc, &running).ask(), "the first need not wait");
    for (how, back) in TAKEN_BACK {
        let mut peer = begun(&running);
        peer.say(call(1));
        eventually("it waits for its turn", secs(5), || waiting(1));
        peer.say(back(1));
        eventually(how, secs(5), || waiting(0));
    }
    // There is no room in the line: those who have left it are still counted.
    assert!(Asker::new(Wire::Grpc, &running).ask(), "it is denied at once");
    let metrics = http(running.addresses.admin, "GET /metrics HTTP/1.1\r\nhost: localhost", b"");
    for (decision, number) in [("allow", 1), ("wait", 3), ("deny", 1)] {
        let line = format!("{{limit=\"line\",decision=\"{decision}\"}} {number}\n");
        assert!(metrics.contains(&line), "{line} is not in {metrics}");
    }
    running.stop().unwrap();
}

// T46
#[test]
fn endless_settings_and_pings_are_cut_off() {
    let running = start_alone(|_| ());
    let before = rss_bytes();
    let open = || running.server.status.connections.sum();
    for (name, what) in FLOODS {
        for listens in [true, false] {
            let since = Instant::now();
            if listens {
                attacked(&running, since + PATIENCE, what);
            } else {
                let mut peer = begun(&running);
                peer.is_narrow();
                assert!(!flood(&mut peer, 20_000, what), "{name} without end");
            }
            // Sooner than anybody is late: it is for what they do, and not for how long.
            let took = since.elapsed();
            assert!(took < Duration::from_millis(900), "{name}: they go on for {took:?}");
            eventually("it is gone", secs(5), || open() == 0);
            serves(&running);
        }
    }
    assert_grew_less(before, MEMORY_BYTES_MAX);
    running.stop().unwrap();
}

// T46
#[test]
fn a_client_that_pings_often_and_sends_requests_may_stay() {
    let running = start(|_| ());
    let mut peer = begun(&running);
    let pings = frame(PING, 0, 0, &[1; 8]).repeat(900);
    for number in 0..20 {
        assert!(peer.say([pings.clone(), call(stream(number))].concat()), "it was cut off");
        let mut heard = Vec::new();
        while !kinds(&heard).contains(&DATA) {
            let mut piece = [0; 4_096];
            let read = peer.0.read(&mut piece).expect("it is answered");
            assert!(read > 0, "it was cut off");
            heard.extend_from_slice(&piece[..read]);
        }
    }
    running.stop().unwrap();
}

// T46
#[test]
fn the_number_of_blocked_answers_is_bounded() {
    // They have nothing to ask any more: nobody waits for them until the drain is over.
    let running = start_alone(|config| config.server.drain = secs(30));
    let before = rss_bytes();
    let mut peers: Vec<Peer> = (0..4).map(|_| Peer::new(running.addresses.grpc)).collect();
    // INITIAL_WINDOW_SIZE (4) is 0: nothing of any answer's message may be sent.
    let stall = frame(SETTINGS_KIND, 0, 0, &[0, 4, 0, 0, 0, 0]);
    let mut heard = Vec::new();
    for peer in &mut peers {
        peer.say([PREFACE, &stall].concat());
        // 1 024 may be under way, and a few more are refused. Who goes on is sent away.
        let _ = flood(peer, 1_200, |number| call(stream(number)));
        let _ = peer.0.flush();
        heard.clear();
        while !kinds(&heard).contains(&RST_STREAM) {
            let mut piece = [0; 4_096];
            let read = peer.0.read(&mut piece).expect("those that are too many are refused");
            assert!(read > 0, "it was cut off");
            heard.extend_from_slice(&piece[..read]);
        }
        assert!(!kinds(&heard).contains(&DATA), "an answer was let through");
    }
    let mut peer = peers.pop().expect("there are some");
    flood(&mut peer, 1_200, |number| call(stream(1_200 + number)));
    heard.extend(peer.rest().expect("it is sent away"));
    let why = goodbye(&heard).map(|goodbye| goodbye.why);
    assert_eq!(why, Some(ENHANCE_YOUR_CALM), "who goes on is sent away");
    serves(&running);
    assert_grew_less(before, MEMORY_BYTES_MAX);
    let since = Instant::now();
    running.stop().unwrap();
    assert!(since.elapsed() < secs(4), "they keep it from ending for {:?}", since.elapsed());
}

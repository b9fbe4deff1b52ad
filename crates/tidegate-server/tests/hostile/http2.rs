//! T46: what has been done to HTTP/2 servers.

use crate::asker::{Asker, asked_while, p99};
use crate::desk::{
    Directory, Peer, assert_grew_less, eventually, http, rss_bytes, secs, serves, start,
    start_alone,
};
use crate::frames::{
    CONTINUATION, DATA, GOAWAY, HEADERS, PING, PREFACE, RST_STREAM, SETTINGS, SETTINGS_KIND,
    WINDOW_UPDATE, call, frame, headers, kinds, stream,
};
use std::io::{Read, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tidegate_server::config::load;
use tidegate_server::listen::{Running, Wire};

const MEMORY_BYTES_MAX: usize = 64 << 20;

fn begun(running: &Running) -> Peer {
    let mut peer = Peer::new(running.addresses.grpc);
    peer.is_narrow();
    assert!(peer.say([PREFACE, &SETTINGS].concat()));
    peer
}

/// Says it again and again, without listening, until it is cut off or has been said so often.
fn flood(peer: &mut Peer, times: usize, mut what: impl FnMut(usize) -> Vec<u8>) -> bool {
    peer.0.set_write_timeout(Some(secs(5))).unwrap();
    (0..times).all(|number| peer.say(what(number)))
}

/// What an attacker says the first time, the second, and so on.
type Says<N> = fn(N) -> Vec<u8>;

/// What has been done to servers with streams, again and again, each time in other ones.
const ATTACKS: [(&str, Says<usize>); 6] = [
    ("rapid reset (CVE-2023-44487)", |number| {
        let stream = stream(number);
        [headers(stream, true), frame(RST_STREAM, 0, stream, &[0, 0, 0, 8])].concat()
    }),
    ("a call taken back (CVE-2023-44487)", |number| {
        [call(stream(number)), frame(RST_STREAM, 0, stream(number), &[0, 0, 0, 8])].concat()
    }),
    ("MadeYouReset by a window of nothing (CVE-2025-8671)", |number| {
        let stream = stream(number);
        [headers(stream, false), frame(WINDOW_UPDATE, 0, stream, &[0; 4])].concat()
    }),
    ("MadeYouReset by a window without end", |number| {
        let stream = stream(number);
        [headers(stream, false), frame(WINDOW_UPDATE, 0, stream, &[0x7f, 0xff, 0xff, 0xff])]
            .concat()
    }),
    ("MadeYouReset by more after the end", |number| {
        [headers(stream(number), true), frame(DATA, 0, stream(number), b"more")].concat()
    }),
    ("messages of nothing (RUSTSEC-2026-0258)", |number| {
        let first = if number == 0 { headers(1, false) } else { Vec::new() };
        [first, frame(DATA, 0, 1, &[]).repeat(100)].concat()
    }),
];

/// Does it on a connection of its own, and listens, until it is sent away. Tells what was heard.
fn attacked(running: &Running, what: Says<usize>) -> Vec<u8> {
    let mut peer = begun(running);
    let mut listener = peer.0.try_clone().unwrap();
    let heard = std::thread::spawn(move || {
        let mut all = Vec::new();
        let _ = listener.read_to_end(&mut all);
        all
    });
    flood(&mut peer, 20_000, what);
    let _ = peer.0.shutdown(std::net::Shutdown::Write);
    heard.join().unwrap()
}

#[test]
fn t46_who_makes_streams_only_to_have_them_reset_is_sent_away() {
    let running = start_alone(|_| ());
    let before = rss_bytes();
    for (name, what) in ATTACKS {
        let heard = attacked(&running, what);
        assert!(kinds(&heard).contains(&GOAWAY), "{name}: the server goes on");
        serves(&running);
    }
    assert_grew_less(before, MEMORY_BYTES_MAX);
    let open = || running.server.status.connections.sum();
    eventually("they are gone", secs(5), || open() == 0);
    running.stop().unwrap();
}

#[test]
fn t46_who_does_no_harm_is_answered_meanwhile() {
    let running = start_alone(|_| ());
    let ping: Says<usize> = |_| frame(PING, 0, 0, &[1; 8]).repeat(100);
    let settings: Says<usize> = |_| frame(SETTINGS_KIND, 0, 0, &[]).repeat(100);
    let heard = [("pings that are listened to", ping), ("settings that are", settings)];
    for (name, what) in ATTACKS.into_iter().chain(heard) {
        let mut seen = Vec::new();
        // Others share the machine: the best of some rounds counts, each held against what was usual just before.
        let holds = (0..8).any(|_| {
            let alone = p99(&asked_while(Wire::Grpc, &running, |number| number < 200));
            let is_over = AtomicBool::new(false);
            let meanwhile = std::thread::scope(|scope| {
                let other = scope.spawn(|| {
                    asked_while(Wire::Grpc, &running, |number| {
                        !is_over.load(Ordering::Relaxed) || number < 100
                    })
                });
                let since = Instant::now();
                while since.elapsed() < Duration::from_millis(300) {
                    attacked(&running, what);
                }
                is_over.store(true, Ordering::Relaxed);
                p99(&other.join().expect("it is answered"))
            });
            seen.push(format!("{meanwhile:?}, alone {alone:?}"));
            meanwhile <= 3 * alone
        });
        assert!(holds, "{name}: {seen:?}");
    }
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

#[test]
fn t46_a_call_that_is_taken_back_has_been_counted() {
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

#[test]
fn t46_headers_without_end_are_cut_off() {
    let running = start_alone(|config| config.server.caps.request = secs(60));
    let before = rss_bytes();
    let mut peer = begun(&running);
    peer.say(frame(HEADERS, 0, 1, &[0x83, 0x86]));
    // Each is a header that nobody keeps: a name of one letter, and an empty text.
    let block = [0, 1, b'x', 0].repeat(4_000);
    let is_all_taken = flood(&mut peer, 10_000, |_| frame(CONTINUATION, 0, 1, &block));
    assert!(!is_all_taken, "160 MB of headers were taken");
    assert_grew_less(before, MEMORY_BYTES_MAX);
    serves(&running);
    running.stop().unwrap();
}

#[test]
fn t46_settings_and_pings_that_nobody_reads_the_answers_of_are_cut_off() {
    let running = start_alone(|_| ());
    let before = rss_bytes();
    let mut settings = begun(&running);
    let mut pings = begun(&running);
    let since = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // 64 KB at a time: a million of them.
            let many = frame(SETTINGS_KIND, 0, 0, &[]).repeat(7_000);
            assert!(!flood(&mut settings, 3_000, |_| many.clone()), "settings without end");
        });
        scope.spawn(|| {
            let many = frame(PING, 0, 0, &[1; 8]).repeat(4_000);
            assert!(!flood(&mut pings, 3_000, |_| many.clone()), "pings without end");
        });
        for _ in 0..20 {
            serves(&running);
        }
    });
    assert!(since.elapsed() < secs(15), "{:?}", since.elapsed());
    assert_grew_less(before, MEMORY_BYTES_MAX);
    serves(&running);
    running.stop().unwrap();
}

#[test]
fn t46_answers_that_are_not_let_through_are_few() {
    // They have nothing to ask any more: nobody waits for them until the drain is over.
    let running = start_alone(|config| config.server.drain = secs(30));
    let before = rss_bytes();
    let mut peers: Vec<Peer> = (0..4).map(|_| Peer::new(running.addresses.grpc)).collect();
    // INITIAL_WINDOW_SIZE (4) is 0: nothing of any answer's message may be sent.
    let stall = frame(SETTINGS_KIND, 0, 0, &[0, 4, 0, 0, 0, 0]);
    for peer in &mut peers {
        peer.say([PREFACE, &stall].concat());
        // 1 024 may be under way, and a few more are refused. Who goes on is sent away.
        let _ = flood(peer, 1_200, |number| call(stream(number)));
        let _ = peer.0.flush();
        let mut heard = Vec::new();
        while !kinds(&heard).contains(&RST_STREAM) {
            let mut piece = [0; 4_096];
            let read = peer.0.read(&mut piece).expect("those that are too many are refused");
            assert!(read > 0, "it was cut off");
            heard.extend_from_slice(&piece[..read]);
        }
        assert!(!kinds(&heard).contains(&DATA), "an answer was let through");
    }
    serves(&running);
    assert_grew_less(before, MEMORY_BYTES_MAX);
    let since = Instant::now();
    running.stop().unwrap();
    assert!(since.elapsed() < secs(4), "they keep it from ending for {:?}", since.elapsed());
}

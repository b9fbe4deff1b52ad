//! T46: what has been done to HTTP/2 servers.

use crate::desk::{Peer, assert_grew_less, rss_bytes, secs, serves, start_alone};
use crate::frames::{PREFACE, SETTINGS, frame, headers, kinds};
use std::io::{Read, Write};
use std::time::Instant;
use tidegate_server::listen::Running;

const MEMORY_BYTES_MAX: usize = 64 << 20;
const DATA: u8 = 0;
const END_STREAM: u8 = 1;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS_KIND: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const CONTINUATION: u8 = 9;

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

fn stream(number: usize) -> u32 {
    u32::try_from(2 * number + 1).unwrap()
}

#[test]
fn t46_who_takes_everything_back_is_sent_away() {
    let running = start_alone(|_| ());
    let before = rss_bytes();
    let mut peer = begun(&running);
    let mut listener = peer.0.try_clone().unwrap();
    let heard = std::thread::spawn(move || {
        let mut all = Vec::new();
        let _ = listener.read_to_end(&mut all);
        all
    });
    flood(&mut peer, 20_000, |number| {
        let stream = stream(number);
        [headers(stream, true), frame(RST_STREAM, 0, stream, &[0, 0, 0, 8])].concat()
    });
    let heard = heard.join().unwrap();
    assert!(kinds(&heard).contains(&GOAWAY), "the server goes on");
    assert_grew_less(before, MEMORY_BYTES_MAX);
    serves(&running);
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

/// A call that is answered with a message: one descriptor of the domain `d`, whose entry `a` is `b`.
fn call(stream: u32) -> Vec<u8> {
    let message = b"\0\0\0\0\x0d\x0a\x01d\x12\x08\x0a\x06\x0a\x01a\x12\x01b";
    [headers(stream, false), frame(DATA, END_STREAM, stream, message)].concat()
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
        let _ = flood(peer, 2_000, |number| call(stream(number)));
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

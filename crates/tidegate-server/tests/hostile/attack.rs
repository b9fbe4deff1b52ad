//! Known attacks on HTTP/2 servers. `http2.rs` tests how long they last, `cost.rs` what they cost.

use crate::frames::{
    CONTINUATION, DATA, ENHANCE_YOUR_CALM, HEADERS, PING, PREFACE, PROTOCOL_ERROR, RST_STREAM,
    SETTINGS, SETTINGS_KIND, WINDOW_UPDATE, call, frame, headers, stream,
};
use crate::harness::{Peer, secs};
use std::io::Read;
use std::net::Shutdown;
use std::time::Instant;
use tidegate_server::net::Running;

/// Somebody who has said hello.
pub(crate) fn begun(running: &Running) -> Peer {
    let mut peer = Peer::new(running.addresses.grpc);
    assert!(peer.say([PREFACE, &SETTINGS].concat()));
    peer
}

/// Says it again and again, without listening, until it is cut off or has been said so often.
pub(crate) fn flood(peer: &mut Peer, times: usize, mut what: impl FnMut(usize) -> Vec<u8>) -> bool {
    peer.0.set_write_timeout(Some(secs(5))).unwrap();
    (0..times).all(|number| peer.say(what(number)))
}

/// What an attacker says the first time, the second, and so on.
pub(crate) type Says<N> = fn(N) -> Vec<u8>;

/// What has been done to servers, again and again, most of it each time in another stream; and why it is over.
pub(crate) const ATTACKS: [(&str, u32, Says<usize>); 8] = [
    ("rapid reset (CVE-2023-44487)", ENHANCE_YOUR_CALM, |number| {
        let stream = stream(number);
        [headers(stream, true), frame(RST_STREAM, 0, stream, &[0, 0, 0, 8])].concat()
    }),
    ("a call taken back (CVE-2023-44487)", ENHANCE_YOUR_CALM, |number| {
        [call(stream(number)), frame(RST_STREAM, 0, stream(number), &[0, 0, 0, 8])].concat()
    }),
    ("MadeYouReset by a window of nothing (CVE-2025-8671)", PROTOCOL_ERROR, |number| {
        let stream = stream(number);
        [headers(stream, false), frame(WINDOW_UPDATE, 0, stream, &[0; 4])].concat()
    }),
    ("MadeYouReset by a window without end", ENHANCE_YOUR_CALM, |number| {
        let stream = stream(number);
        [headers(stream, false), frame(WINDOW_UPDATE, 0, stream, &[0x7f, 0xff, 0xff, 0xff])]
            .concat()
    }),
    ("MadeYouReset by more after the end", PROTOCOL_ERROR, |number| {
        [headers(stream(number), true), frame(DATA, 0, stream(number), b"more")].concat()
    }),
    ("messages of nothing (RUSTSEC-2026-0258)", ENHANCE_YOUR_CALM, |number| {
        let first = if number == 0 { headers(1, false) } else { Vec::new() };
        [first, frame(DATA, 0, 1, &[]).repeat(100)].concat()
    }),
    ("headers without end (RUSTSEC-2024-0332)", ENHANCE_YOUR_CALM, |number| {
        // Each is a header that nobody keeps: a name of one letter, and an empty text.
        let first = if number == 0 { frame(HEADERS, 0, 1, &[0x83, 0x86]) } else { Vec::new() };
        [first, frame(CONTINUATION, 0, 1, &[0, 1, b'x', 0].repeat(4_000))].concat()
    }),
    ("headers of nothing without end (RUSTSEC-2024-0332)", ENHANCE_YOUR_CALM, |number| {
        let first = if number == 0 { frame(HEADERS, 0, 1, &[0x83, 0x86]) } else { Vec::new() };
        [first, frame(CONTINUATION, 0, 1, &[]).repeat(100)].concat()
    }),
];

/// What is no request and has to be answered, and a peer that listens to the answers: the server keeps nothing of it.
pub(crate) const FLOODS: [(&str, Says<usize>); 2] = [
    ("pings", |_| frame(PING, 0, 0, &[1; 8]).repeat(100)),
    ("settings", |_| frame(SETTINGS_KIND, 0, 0, &[]).repeat(100)),
];

/// Does it on a connection of its own, and listens, until it is sent away or is over. Tells what was heard.
pub(crate) fn attacked(running: &Running, until: Instant, what: Says<usize>) -> Vec<u8> {
    let mut peer = begun(running);
    let mut listener = peer.0.try_clone().unwrap();
    let heard = std::thread::spawn(move || {
        let mut all = Vec::new();
        let _ = listener.read_to_end(&mut all);
        all
    });
    peer.0.set_write_timeout(Some(secs(5))).unwrap();
    let mut number = 0;
    while Instant::now() < until && peer.say(what(number)) {
        number += 1;
    }
    let _ = peer.0.shutdown(Shutdown::Write);
    heard.join().unwrap()
}

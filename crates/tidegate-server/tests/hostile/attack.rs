//! Known attacks on HTTP/2 servers. `http2.rs` tests how soon they end, `attack_cost.rs` what they cost.

use crate::frames::{
    CONTINUATION, DATA, ENHANCE_YOUR_CALM, HEADERS, PING, PREFACE, PROTOCOL_ERROR, RST_STREAM,
    SETTINGS, SETTINGS_TYPE, WINDOW_UPDATE, call, frame, headers, stream,
};
use crate::harness::{Peer, secs};
use std::io::Read;
use std::net::Shutdown;
use std::time::Instant;
use tidegate_server::net::Running;

/// Connects to the gRPC listener and sends the preface and settings.
pub(crate) fn connect_http2(running: &Running) -> Peer {
    let mut peer = Peer::new(running.addresses.grpc);
    assert!(peer.send([PREFACE, &SETTINGS].concat()));
    peer
}

/// Sends `what` up to `times` times without reading. Returns `false` if the server closes the connection first.
pub(crate) fn flood(peer: &mut Peer, times: usize, mut what: impl FnMut(usize) -> Vec<u8>) -> bool {
    peer.0.set_write_timeout(Some(secs(5))).unwrap();
    (0..times).all(|number| peer.send(what(number)))
}

/// Returns the bytes that an attacker sends in round `N`, or on stream `N`.
pub(crate) type RoundBytes<N> = fn(N) -> Vec<u8>;

/// Attacks that were used against real servers, most of them on a new stream in each round: a name, the error code of the
/// GOAWAY frame that ends it, and the bytes of each round.
pub(crate) const ATTACKS: [(&str, u32, RoundBytes<usize>); 8] = [
    ("rapid reset (CVE-2023-44487)", ENHANCE_YOUR_CALM, |number| {
        let stream = stream(number);
        [headers(stream, true), frame(RST_STREAM, 0, stream, &[0, 0, 0, 8])].concat()
    }),
    ("a cancelled call (CVE-2023-44487)", ENHANCE_YOUR_CALM, |number| {
        [call(stream(number)), frame(RST_STREAM, 0, stream(number), &[0, 0, 0, 8])].concat()
    }),
    ("MadeYouReset by a window update of 0 (CVE-2025-8671)", PROTOCOL_ERROR, |number| {
        let stream = stream(number);
        [headers(stream, false), frame(WINDOW_UPDATE, 0, stream, &[0; 4])].concat()
    }),
    ("MadeYouReset by a window overflow", ENHANCE_YOUR_CALM, |number| {
        let stream = stream(number);
        [headers(stream, false), frame(WINDOW_UPDATE, 0, stream, &[0x7f, 0xff, 0xff, 0xff])]
            .concat()
    }),
    ("MadeYouReset by data after END_STREAM", PROTOCOL_ERROR, |number| {
        [headers(stream(number), true), frame(DATA, 0, stream(number), b"more")].concat()
    }),
    ("empty data frames (RUSTSEC-2026-0258)", ENHANCE_YOUR_CALM, |number| {
        let first = if number == 0 { headers(1, false) } else { Vec::new() };
        [first, frame(DATA, 0, 1, &[]).repeat(100)].concat()
    }),
    ("endless headers (RUSTSEC-2024-0332)", ENHANCE_YOUR_CALM, |number| {
        // Each header has a name of one letter and an empty value, and the server discards it.
        let first = if number == 0 { frame(HEADERS, 0, 1, &[0x83, 0x86]) } else { Vec::new() };
        [first, frame(CONTINUATION, 0, 1, &[0, 1, b'x', 0].repeat(4_000))].concat()
    }),
    ("endless empty continuation frames (RUSTSEC-2024-0332)", ENHANCE_YOUR_CALM, |number| {
        let first = if number == 0 { frame(HEADERS, 0, 1, &[0x83, 0x86]) } else { Vec::new() };
        [first, frame(CONTINUATION, 0, 1, &[]).repeat(100)].concat()
    }),
];

/// Frames that are no requests and that the server must answer. The attacker reads the answers, so the server queues none.
pub(crate) const FLOODS: [(&str, RoundBytes<usize>); 2] = [
    ("pings", |_| frame(PING, 0, 0, &[1; 8]).repeat(100)),
    ("settings", |_| frame(SETTINGS_TYPE, 0, 0, &[]).repeat(100)),
];

/// Runs one attack on a new connection and reads the answers, until the server closes the connection or `until`. Returns
/// the bytes received.
pub(crate) fn attack(running: &Running, until: Instant, what: RoundBytes<usize>) -> Vec<u8> {
    let mut peer = connect_http2(running);
    let mut listener = peer.0.try_clone().unwrap();
    let received = std::thread::spawn(move || {
        let mut all = Vec::new();
        let _ = listener.read_to_end(&mut all);
        all
    });
    peer.0.set_write_timeout(Some(secs(5))).unwrap();
    let mut number = 0;
    while Instant::now() < until && peer.send(what(number)) {
        number += 1;
    }
    let _ = peer.0.shutdown(Shutdown::Write);
    received.join().unwrap()
}

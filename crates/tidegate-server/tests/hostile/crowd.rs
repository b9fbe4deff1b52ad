//! T44: many that take their time, of every kind and together. One of each, and when it is sent away: `slow.rs`.

use crate::asker::{Asker, asked_while, p99};
use crate::desk::{Peer, eventually, secs, start_alone};
use crate::frames::{PREFACE, SETTINGS, headers};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tidegate_server::listen::{Addresses, Running, Wire};

const CONNECTIONS_MAX: usize = 300;
/// Of each kind: together more than there is room for.
const EACH: usize = 40;
const WIRES: [Wire; 3] = [Wire::Resp, Wire::Http, Wire::Grpc];

/// What slow peers say before they say no more, and read nothing.
fn kinds_of_slow(at: Addresses) -> [(Option<SocketAddr>, Vec<u8>); 10] {
    let started = [PREFACE, &SETTINGS].concat();
    let body = b"POST /v1/check HTTP/1.1\r\nhost: x\r\ncontent-length: 99\r\n\r\n{".to_vec();
    let unread = b"GET /openapi.json HTTP/1.1\r\nhost: localhost\r\n\r\n".repeat(50);
    [
        // Nothing.
        (at.resp, Vec::new()),
        (at.http, Vec::new()),
        (at.grpc, Vec::new()),
        // A part of a request, or of its headers.
        (at.resp, b"*2\r\n$4\r\nECHO\r\n$9".to_vec()),
        (at.http, b"GET / HTTP/1.1\r\nhost: loc".to_vec()),
        (at.grpc, started[..30].to_vec()),
        // A part of a body.
        (at.http, body),
        (at.grpc, [&started[..], &headers(1, false)].concat()),
        // More questions than there is room for answers.
        (at.resp, b"COMMAND\r\n".repeat(4_000)),
        (at.http, unread),
    ]
}

fn crowd(running: &Running) -> Vec<Peer> {
    let mut peers = Vec::new();
    for _ in 0..EACH {
        for (address, first) in kinds_of_slow(running.addresses) {
            let mut peer = Peer::new(address);
            peer.is_narrow();
            // Who is one too many cannot say everything.
            peer.say(first);
            peers.push(peer);
        }
    }
    peers
}

/// Descriptors of this process: both ends of each connection are among them.
fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("it can be read").count()
}

#[test]
fn t44_a_crowd_of_slow_peers_keeps_nobody_from_being_answered() {
    let running = start_alone(|config| {
        let caps = &mut config.server.caps;
        caps.connections_max = CONNECTIONS_MAX;
        (caps.first_byte, caps.request) = (secs(60), secs(60));
    });
    for wire in WIRES {
        let mut seen = Vec::new();
        // Others share the machine: the best of some rounds counts, each held against what was usual just before.
        let holds = (0..6).any(|_| {
            let alone = p99(&asked_while(wire, &running, |number| number < 200));
            let open = || running.server.status.connections.sum();
            eventually("it has gone", secs(5), || open() == 0);
            let is_over = AtomicBool::new(false);
            let meanwhile = std::thread::scope(|scope| {
                let other = scope.spawn(|| {
                    let goes_on = |number| !is_over.load(Ordering::Relaxed) || number < 200;
                    asked_while(wire, &running, goes_on)
                });
                eventually("it has come before the crowd", secs(5), || open() > 0);
                let peers = crowd(&running);
                std::thread::park_timeout(Duration::from_millis(200));
                drop(peers);
                is_over.store(true, Ordering::Relaxed);
                p99(&other.join().expect("it is served"))
            });
            seen.push(format!("{meanwhile:?}, alone {alone:?}"));
            eventually("they have gone", secs(5), || open() == 0);
            meanwhile <= 2 * alone
        });
        assert!(holds, "{wire}: {seen:?}");
    }
    running.stop().unwrap();
}

#[test]
fn t44_a_crowd_of_slow_peers_takes_no_more_descriptors_than_connections_and_ends_in_time() {
    let running = start_alone(|config| {
        let caps = &mut config.server.caps;
        caps.connections_max = CONNECTIONS_MAX;
        (caps.first_byte, caps.request) = (secs(60), secs(60));
    });
    let mut askers = WIRES.map(|wire| Asker::new(wire, &running));
    for asker in &mut askers {
        assert!(asker.ask());
    }
    let before = descriptors();
    let peers = crowd(&running);
    let (status, most) = (&running.server.status, CONNECTIONS_MAX as u64);
    let is_full = || status.connections.sum() == most && status.rejected.sum() > 0;
    eventually("there is room for no more", secs(10), is_full);
    // Who is turned away is told why, for a moment; then only those are left that were let in, and our ends of all. Tests
    // beside this one have some of their own.
    let most = before + peers.len() + CONNECTIONS_MAX + 20;
    eventually("no more descriptors than connections", secs(5), || descriptors() <= most);
    for _ in 0..50 {
        for asker in &mut askers {
            assert!(asker.ask(), "who is here is served");
        }
        assert!(status.connections.sum() <= CONNECTIONS_MAX as u64);
        std::thread::park_timeout(Duration::from_millis(2));
    }
    let since = Instant::now();
    running.stop().unwrap();
    let took = since.elapsed();
    assert!(took < secs(4), "two seconds were given, {took:?} it took");
    drop(peers);
}

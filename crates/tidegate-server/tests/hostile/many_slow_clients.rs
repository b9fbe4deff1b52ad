//! T44: many slow clients of every kind at the same time. `slow.rs` tests when the server closes each kind.

use crate::check_client::{CheckClient, latencies_while};
use crate::frames::{DATA, PREFACE, SETTINGS, headers};
use crate::harness::{PATIENCE, Peer, eventually, secs, start_exclusive};
use crate::latency::{assert_hardly_slower, p99};
use std::io::{ErrorKind, Read};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tidegate_server::net::{Addresses, Running, Wire};

const CONNECTIONS_MAX: usize = 300;
/// Silent and dripping clients of each kind: together more than [`CONNECTIONS_MAX`].
const EACH: usize = 30;
const EACH_UNREAD: usize = 2;
/// Dripping clients of each kind where there are no others: together fewer than [`CONNECTIONS_MAX`].
const EACH_DRIPS: usize = 30;
const WIRES: [Wire; 3] = [Wire::Resp, Wire::Http, Wire::Grpc];

/// A client that sends slowly or not at all, and reads nothing.
struct Slow {
    peer: Peer,
    /// Bytes that it sends one at a time, in a cycle; empty if it sends no more.
    drips: &'static [u8],
    dripped: usize,
}

impl Slow {
    /// Sends the next byte. Returns `false` if the server has closed the connection.
    fn drip(&mut self) -> bool {
        let byte = self.drips.get(self.dripped % self.drips.len().max(1));
        self.dripped += 1;
        byte.is_none_or(|byte| self.peer.send([*byte]))
    }

    /// Returns whether the server has closed the connection.
    fn is_closed(&mut self) -> bool {
        self.peer.0.set_nonblocking(true).unwrap();
        let is_closed = match self.peer.0.read(&mut [0; 1_024]) {
            Ok(read) => read == 0,
            Err(error) => error.kind() != ErrorKind::WouldBlock,
        };
        self.peer.0.set_nonblocking(false).unwrap();
        is_closed
    }
}

/// Address, first bytes and dripped bytes of a slow client.
type Kind = (Option<SocketAddr>, Vec<u8>, &'static [u8]);

/// Returns the kinds of clients that send nothing after the first bytes.
fn silent_kinds(at: Addresses) -> Vec<Kind> {
    let started = [PREFACE, &SETTINGS].concat();
    let body = b"POST /v1/check HTTP/1.1\r\nhost: x\r\ncontent-length: 99\r\n\r\n{".to_vec();
    vec![
        // Nothing.
        (at.resp, Vec::new(), b""),
        (at.http, Vec::new(), b""),
        (at.grpc, Vec::new(), b""),
        // A part of a request, or of its headers.
        (at.resp, b"*2\r\n$4\r\nECHO\r\n$9".to_vec(), b""),
        (at.http, b"GET / HTTP/1.1\r\nhost: loc".to_vec(), b""),
        (at.grpc, started[..30].to_vec(), b""),
        // A part of a body.
        (at.http, body, b""),
        (at.grpc, [&started[..], &headers(1, false)].concat(), b""),
    ]
}

/// Returns the kinds of clients that do not read their answers, which are longer than all buffers.
fn unread_kinds(at: Addresses) -> Vec<Kind> {
    let unread = b"GET /openapi.json HTTP/1.1\r\nhost: localhost\r\n\r\n".repeat(50);
    vec![(at.resp, b"COMMAND\r\n".repeat(4_000), b""), (at.http, unread, b"")]
}

/// Returns the kinds of clients that send a byte now and then.
fn dripping_kinds(at: Addresses) -> Vec<Kind> {
    let started = [PREFACE, &SETTINGS].concat();
    let body = b"POST /v1/check HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n\
                 content-length: 9999\r\n\r\n{";
    // A frame of 4 096 bytes, with a message of 4 095.
    let message = [0, 0x10, 0, DATA, 0, 0, 0, 0, 1, 0, 0, 0, 0x0f, 0xff];
    vec![
        // A request, or its headers.
        (at.resp, b"*2\r\n$4\r\nECHO\r\n$9999\r\n".to_vec(), b"x"),
        (at.resp, b"PI".to_vec(), b"x"),
        (at.http, b"GET / HTTP/1.1\r\nhost: localhost\r\nx: ".to_vec(), b"x"),
        (at.grpc, PREFACE[..1].to_vec(), &PREFACE[1..]),
        (at.grpc, [&started[..], &[0, 0x10, 0, 1, 4, 0, 0, 0, 1]].concat(), b"\0"),
        // A body.
        (at.http, body.to_vec(), b" "),
        (at.grpc, [&started[..], &headers(1, false), &message].concat(), b"x"),
    ]
}

fn connect_slow(kinds: &[Kind], each: usize) -> Vec<Slow> {
    let mut clients = Vec::new();
    for _ in 0..each {
        for (address, first, drips) in kinds {
            let mut peer = Peer::new(*address);
            peer.shrink_receive_buffer();
            // The server rejects connections over the maximum, so sending may fail.
            peer.send(first);
            clients.push(Slow { peer, drips, dripped: 0 });
        }
        // Slow clients do not all connect at the same moment.
        std::thread::park_timeout(Duration::from_millis(2));
    }
    clients
}

fn slow_clients(running: &Running) -> Vec<Slow> {
    let at = running.addresses;
    // Filling the socket buffers takes megabytes and CPU time, so a few of these are enough.
    let mut all = connect_slow(&unread_kinds(at), EACH_UNREAD);
    all.extend(connect_slow(&[dripping_kinds(at), silent_kinds(at)].concat(), EACH));
    all
}

/// Returns the number of descriptors of this process, which has both ends of each connection.
fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("Linux lists the descriptors").count()
}

// T44
#[test]
fn many_slow_clients_do_not_delay_others() {
    let running = start_exclusive(|config| {
        let caps = &mut config.server.caps;
        caps.connections_max = CONNECTIONS_MAX;
        (caps.first_byte, caps.request) = (secs(60), secs(60));
    });
    let open = || running.server.status.connections.sum();
    for wire in WIRES {
        assert_hardly_slower((wire, &running), 2, "slow clients", || {
            let mut clients = slow_clients(&running);
            for _ in 0..20 {
                for slow in &mut clients {
                    // Sending fails for clients that the server has rejected.
                    let _ = slow.drip();
                }
                std::thread::park_timeout(Duration::from_millis(10));
            }
            drop(clients);
            eventually("the connections are closed", secs(5), || open() <= 1);
        });
    }
    running.stop().unwrap();
}

// T44
#[test]
fn a_client_that_does_not_read_takes_one_turn_at_a_time() {
    let running = start_exclusive(|config| config.server.caps.request = secs(60));
    for (wire, kind) in [Wire::Resp, Wire::Http].into_iter().zip(unread_kinds(running.addresses)) {
        // Four times and not two, because a turn takes a millisecond here and other clients may use both cores. Without turns it
        // was ten times.
        assert_hardly_slower((wire, &running), 4, "unread answers", || {
            // One client after the other. Each keeps its worker busy until the socket buffers are full.
            let fill = |_| {
                let unread = connect_slow(std::slice::from_ref(&kind), 1);
                std::thread::park_timeout(Duration::from_millis(40));
                unread
            };
            let all: Vec<_> = (0..10).flat_map(fill).collect();
            drop(all);
        });
    }
    running.stop().unwrap();
}

// T44
#[test]
fn many_slow_clients_take_one_descriptor_each_and_are_closed_in_time() {
    let running = start_exclusive(|config| {
        let caps = &mut config.server.caps;
        caps.connections_max = CONNECTIONS_MAX;
        (caps.first_byte, caps.request) = (secs(60), secs(60));
    });
    let mut others = WIRES.map(|wire| CheckClient::new(wire, &running));
    for other in &mut others {
        assert!(other.check());
    }
    let before = descriptors();
    let peers = slow_clients(&running);
    let (status, most) = (&running.server.status, CONNECTIONS_MAX as u64);
    let is_full = || status.connections.sum() == most && status.rejected.sum() > 0;
    eventually("the maximum number of connections is reached", secs(10), is_full);
    // A rejected connection stays open for a moment, for its error. Then the process has only the accepted connections and the
    // clients' ends of all. Tests that run at the same time have a few descriptors too.
    let most = before + peers.len() + CONNECTIONS_MAX + 20;
    eventually("no more descriptors than connections", secs(5), || descriptors() <= most);
    for _ in 0..50 {
        for other in &mut others {
            assert!(other.check(), "a connected client is served");
        }
        assert!(status.connections.sum() <= CONNECTIONS_MAX as u64);
        std::thread::park_timeout(Duration::from_millis(2));
    }
    let since = Instant::now();
    running.stop().unwrap();
    let took = since.elapsed();
    assert!(took < secs(4), "the drain is two seconds, the shutdown took {took:?}");
    drop(peers);
}

/// Time between two bytes: within the server's time limit, they are too few for an HTTP/2 preface.
const DRIP: Duration = Duration::from_millis(150);

/// Drips until the server has closed all connections, and returns the time after which it closed each.
fn times_until_closed(mut clients: Vec<Slow>) -> Vec<Duration> {
    let (since, mut after) = (Instant::now(), Vec::new());
    while !clients.is_empty() {
        assert!(
            since.elapsed() < PATIENCE,
            "the server lets {} clients drip forever",
            clients.len()
        );
        clients.retain_mut(|slow| {
            let is_closed = !slow.drip() || slow.is_closed();
            after.extend(is_closed.then(|| since.elapsed()));
            !is_closed
        });
        std::thread::park_timeout(DRIP);
    }
    after
}

// T44
#[test]
fn clients_that_send_byte_by_byte_are_closed_in_time_and_others_served() {
    let running = start_exclusive(|config| config.server.caps.connections_max = CONNECTIONS_MAX);
    let is_over = AtomicBool::new(false);
    let goes_on = |number| number < 300 || !is_over.load(Ordering::Relaxed);
    std::thread::scope(|scope| {
        let (running, goes_on) = (&running, &goes_on);
        let spawn_client = |wire| scope.spawn(move || latencies_while(wire, running, goes_on));
        let others = WIRES.map(|wire| (wire, spawn_client(wire)));
        let start = Instant::now();
        let clients = connect_slow(&dripping_kinds(running.addresses), EACH_DRIPS);
        let connecting = start.elapsed();
        let number = clients.len();
        let dripped = scope.spawn(|| times_until_closed(clients)).join();
        is_over.store(true, Ordering::Relaxed);
        let after = dripped.expect("the server closes all connections");
        assert_eq!(after.len(), number);
        for (wire, other) in others {
            let slowest = p99(&other.join().expect("the client is served"));
            assert!(slowest < Duration::from_millis(50), "{wire}: a client waited {slowest:?}");
        }
        // The first clients were connected while the last ones were still connecting.
        let (first, last) = (after[0] + connecting, *after.last().expect("there are many clients"));
        assert!(first > Duration::from_millis(900), "the server closed one after {first:?}");
        // One second is the time limit, one is because the server counts whole seconds, and two are for a busy machine.
        assert!(last < secs(4), "the server closed one only after {last:?}");
    });
    assert_eq!(running.server.status.rejected.sum(), 0, "the server accepted all connections");
    running.stop().unwrap();
}

//! T44: many slow clients of every kind at the same time. `slow.rs` tests when each is disconnected.

use crate::asker::{Asker, asked_while};
use crate::frames::{DATA, PREFACE, SETTINGS, headers};
use crate::harness::{PATIENCE, Peer, eventually, secs, start_alone};
use crate::pace::{assert_hardly_slower, p99};
use std::io::{ErrorKind, Read};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tidegate_server::net::{Addresses, Running, Wire};

const CONNECTIONS_MAX: usize = 300;
/// Of each kind: together more than there is room for.
const EACH: usize = 30;
const EACH_UNREAD: usize = 2;
/// Of each kind that drips: together fewer.
const EACH_DRIPS: usize = 30;
const WIRES: [Wire; 3] = [Wire::Resp, Wire::Http, Wire::Grpc];

/// Somebody who is slow, and reads nothing.
struct Slow {
    peer: Peer,
    /// What it goes on with, a byte at a time, again and again. Who says no more has nothing here.
    drips: &'static [u8],
    dripped: usize,
}

impl Slow {
    /// Says one byte more. Who is cut off cannot.
    fn drip(&mut self) -> bool {
        let byte = self.drips.get(self.dripped % self.drips.len().max(1));
        self.dripped += 1;
        byte.is_none_or(|byte| self.peer.say([*byte]))
    }

    /// Whether the server has ended it.
    fn is_cut_off(&mut self) -> bool {
        self.peer.0.set_nonblocking(true).unwrap();
        let is_cut_off = match self.peer.0.read(&mut [0; 1_024]) {
            Ok(read) => read == 0,
            Err(error) => error.kind() != ErrorKind::WouldBlock,
        };
        self.peer.0.set_nonblocking(false).unwrap();
        is_cut_off
    }
}

/// Where a slow peer is, what it says first, and what it goes on with.
type Kind = (Option<SocketAddr>, Vec<u8>, &'static [u8]);

/// Those who say no more after the first.
fn kinds_of_silent(at: Addresses) -> Vec<Kind> {
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

/// Those who ask more than there is room for answers, and do not read them.
fn kinds_of_unread(at: Addresses) -> Vec<Kind> {
    let unread = b"GET /openapi.json HTTP/1.1\r\nhost: localhost\r\n\r\n".repeat(50);
    vec![(at.resp, b"COMMAND\r\n".repeat(4_000), b""), (at.http, unread, b"")]
}

/// Those who go on, a byte now and then.
fn kinds_of_dripping(at: Addresses) -> Vec<Kind> {
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

fn crowd(kinds: &[Kind], each: usize) -> Vec<Slow> {
    let mut crowd = Vec::new();
    for _ in 0..each {
        for (address, first, drips) in kinds {
            let mut peer = Peer::new(*address);
            peer.is_narrow();
            // Who is one too many cannot say everything.
            peer.say(first);
            crowd.push(Slow { peer, drips, dripped: 0 });
        }
        // They are slow: they do not come all at once.
        std::thread::park_timeout(Duration::from_millis(2));
    }
    crowd
}

fn of_all_kinds(running: &Running) -> Vec<Slow> {
    let at = running.addresses;
    // To fill what is between us takes megabytes, and some time of a core: a few are enough.
    let mut all = crowd(&kinds_of_unread(at), EACH_UNREAD);
    all.extend(crowd(&[kinds_of_dripping(at), kinds_of_silent(at)].concat(), EACH));
    all
}

/// Descriptors of this process: both ends of each connection are among them.
fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("it can be read").count()
}

// T44
#[test]
fn many_slow_clients_do_not_delay_others() {
    let running = start_alone(|config| {
        let caps = &mut config.server.caps;
        caps.connections_max = CONNECTIONS_MAX;
        (caps.first_byte, caps.request) = (secs(60), secs(60));
    });
    let open = || running.server.status.connections.sum();
    for wire in WIRES {
        assert_hardly_slower((wire, &running), 2, "a crowd", || {
            let mut crowd = of_all_kinds(&running);
            for _ in 0..20 {
                for slow in &mut crowd {
                    // Who was one too many cannot.
                    let _ = slow.drip();
                }
                std::thread::park_timeout(Duration::from_millis(10));
            }
            drop(crowd);
            eventually("they have gone", secs(5), || open() <= 1);
        });
    }
    running.stop().unwrap();
}

// T44
#[test]
fn a_client_that_does_not_read_takes_one_turn_at_a_time() {
    let running = start_alone(|config| config.server.caps.request = secs(60));
    for (wire, kind) in [Wire::Resp, Wire::Http].into_iter().zip(kinds_of_unread(running.addresses))
    {
        // More than twice, as a turn is a millisecond here and others may have both cores: without turns it was ten times.
        assert_hardly_slower((wire, &running), 4, "unread answers", || {
            // One after the other, each of whom keeps its worker busy until there is no room for more.
            let fill = |_| {
                let unread = crowd(std::slice::from_ref(&kind), 1);
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
    let peers = of_all_kinds(&running);
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

/// A byte in this time: as many as fit into the patience that is had with them are not enough for a preface.
const DRIP: Duration = Duration::from_millis(150);

/// Drips until all are cut off, and tells after how long each was.
fn cut_off_after(mut crowd: Vec<Slow>) -> Vec<Duration> {
    let (since, mut after) = (Instant::now(), Vec::new());
    while !crowd.is_empty() {
        assert!(since.elapsed() < PATIENCE, "{} may drip for ever", crowd.len());
        crowd.retain_mut(|slow| {
            let is_cut_off = !slow.drip() || slow.is_cut_off();
            after.extend(is_cut_off.then(|| since.elapsed()));
            !is_cut_off
        });
        std::thread::park_timeout(DRIP);
    }
    after
}

// T44
#[test]
fn clients_that_send_byte_by_byte_are_closed_in_time_and_others_served() {
    let running = start_alone(|config| config.server.caps.connections_max = CONNECTIONS_MAX);
    let is_over = AtomicBool::new(false);
    let goes_on = |number| number < 300 || !is_over.load(Ordering::Relaxed);
    std::thread::scope(|scope| {
        let (running, goes_on) = (&running, &goes_on);
        let asks = |wire| scope.spawn(move || asked_while(wire, running, goes_on));
        let others = WIRES.map(|wire| (wire, asks(wire)));
        let began = Instant::now();
        let crowd = crowd(&kinds_of_dripping(running.addresses), EACH_DRIPS);
        let came = began.elapsed();
        let number = crowd.len();
        let dripped = scope.spawn(|| cut_off_after(crowd)).join();
        is_over.store(true, Ordering::Relaxed);
        let after = dripped.expect("all are cut off");
        assert_eq!(after.len(), number);
        for (wire, other) in others {
            let slowest = p99(&other.join().expect("it is served"));
            assert!(slowest < Duration::from_millis(50), "{wire}: somebody waited {slowest:?}");
        }
        // Those who came first have waited for the last to come.
        let (first, last) = (after[0] + came, *after.last().expect("there are many"));
        assert!(first > Duration::from_millis(900), "too strict: {first:?}");
        // A second of patience, one because the server counts whole ones, and two for a busy machine.
        assert!(last < secs(4), "one may drip for {last:?}");
    });
    assert_eq!(running.server.status.rejected.sum(), 0, "there was room for all");
    running.stop().unwrap();
}

//! T44: slow clients.

use crate::frames::{PREFACE, SETTINGS, frame, headers, kinds};
use crate::harness::{Directory, PATIENCE, Peer, secs, serves, start};
use std::io::{ErrorKind, Read};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tidegate_server::config::load;
use tidegate_server::net::Running;

/// A second of patience, one because the server counts whole ones, and two for a busy machine.
const IN_TIME: Duration = Duration::from_secs(4);
const PAUSE: Duration = Duration::from_millis(200);

/// Runs attackers, while somebody who does no harm asks all the time and is answered in time.
fn meanwhile_others_are_served(running: &Running, attack: impl FnOnce()) {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            let mut peer = Peer::resp(running);
            let (mut asked, mut longest) = (0, Duration::ZERO);
            while !is_over.load(Ordering::Relaxed) || asked < 10 {
                let since = Instant::now();
                assert_eq!(peer.ask("PING"), "+PONG");
                longest = longest.max(since.elapsed());
                asked += 1;
                std::thread::park_timeout(Duration::from_millis(5));
            }
            longest
        });
        // Even if the attack finds something: nobody would hear of it otherwise.
        let attacked = catch_unwind(AssertUnwindSafe(attack));
        is_over.store(true, Ordering::Relaxed);
        if let Err(found) = attacked {
            resume_unwind(found);
        }
        let longest = other.join().expect("it is served");
        assert!(longest < secs(2), "somebody waited {longest:?}");
    });
    serves(running);
}

// T44
#[test]
fn every_listener_closes_a_silent_connection() {
    let running = start(|_| ());
    let at = running.addresses;
    meanwhile_others_are_served(&running, || {
        std::thread::scope(|scope| {
            for address in [at.resp, at.http, at.grpc, at.admin] {
                scope.spawn(move || {
                    let took = Peer::new(address).ended_after();
                    assert!(took < IN_TIME, "{address:?} was patient for {took:?}");
                    assert!(
                        took > Duration::from_millis(900),
                        "{address:?} is too strict: {took:?}"
                    );
                });
            }
        });
    });
    running.stop().unwrap();
}

// T44
#[test]
fn a_slow_request_has_no_more_time_than_a_fast_one() {
    let running = start(|_| ());
    let at = running.addresses;
    let head = b"GET / HTTP/1.1\r\nhost: localhost\r\nx: ".as_slice();
    let body = b"POST /v1/check HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n\
                 content-length: 9999\r\n\r\n{"
        .as_slice();
    let started = [PREFACE, &SETTINGS].concat();
    let cases = [
        ("a command", at.resp, b"*2\r\n$4\r\nECHO\r\n$9999\r\n".as_slice(), b"x".as_slice()),
        ("a line", at.resp, b"PI", b"x"),
        ("a head", at.http, head, b"x"),
        ("a body", at.http, body, b" "),
        ("the operator's head", at.admin, head, b"x"),
        ("a preface", at.grpc, &PREFACE[..3], &[]),
        ("a frame", at.grpc, &started, &[0, 0x10, 0, 1, 4, 0, 0, 0, 1, 0]),
    ];
    meanwhile_others_are_served(&running, || {
        std::thread::scope(|scope| {
            for (what, address, first, then) in cases {
                scope.spawn(move || {
                    let mut peer = Peer::new(address);
                    assert!(peer.say(first));
                    let then = if then.is_empty() { &PREFACE[3..20] } else { then };
                    let took = peer.drip(then, PAUSE);
                    assert!(took < IN_TIME, "{what} may drip for {took:?}");
                });
            }
        });
    });
    running.stop().unwrap();
}

// T44
#[test]
fn headers_that_never_end_are_not_waited_for() {
    let running = start(|_| ());
    let mut peer = Peer::new(running.addresses.grpc);
    peer.say([PREFACE, &SETTINGS, &frame(1, 0, 1, &[0x83])].concat());
    // Each of these is whole, and the headers are not.
    let took = peer.drip(&frame(9, 0, 1, &[]), Duration::from_millis(20));
    assert!(took < IN_TIME, "they may take {took:?}");
    serves(&running);
    running.stop().unwrap();
}

// T44
#[test]
fn a_message_that_never_arrives_is_given_up_even_if_the_client_pings() {
    let running = start(|_| ());
    let mut peer = Peer::new(running.addresses.grpc);
    peer.say([PREFACE, &SETTINGS, &headers(1, false)].concat());
    let since = Instant::now();
    let ping = frame(6, 0, 0, &[7; 8]);
    let mut heard = Vec::new();
    peer.0.set_read_timeout(Some(PAUSE)).unwrap();
    // The stream is answered with headers; everything else is about the connection.
    while !kinds(&heard).contains(&1) {
        assert!(since.elapsed() < IN_TIME, "the stream is still open");
        assert!(peer.say(&ping), "the connection need not suffer");
        let mut piece = [0; 1_024];
        if let Ok(read) = peer.0.read(&mut piece) {
            heard.extend_from_slice(&piece[..read]);
        }
    }
    running.stop().unwrap();
}

// T44
#[test]
fn an_idle_connection_may_stay_open() {
    let running = start(|_| ());
    let at = running.addresses;
    std::thread::scope(|scope| {
        let http = b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n".to_vec();
        let grpc = [PREFACE, &SETTINGS].concat();
        let cases = [(at.resp, b"PING\r\n".to_vec()), (at.http, http), (at.grpc, grpc)];
        for (address, first) in cases {
            scope.spawn(move || {
                let mut peer = Peer::new(address);
                peer.say(first);
                if address == at.grpc {
                    // Its settings, and that it has ours; then we have its, to which it says nothing.
                    let mut heard = Vec::new();
                    while kinds(&heard).iter().filter(|kind| **kind == 4).count() < 2 {
                        let mut byte = [0];
                        peer.0.read_exact(&mut byte).expect("it answers");
                        heard.push(byte[0]);
                    }
                    peer.say(frame(4, 1, 0, &[]));
                }
                peer.0.set_read_timeout(Some(Duration::from_millis(3_500))).unwrap();
                let kind = loop {
                    match peer.0.read(&mut [0; 4_096]) {
                        Ok(0) => break ErrorKind::UnexpectedEof,
                        Ok(_) => {}
                        Err(error) => break error.kind(),
                    }
                };
                assert_eq!(kind, ErrorKind::WouldBlock, "{address:?} ended it");
            });
        }
    });
    running.stop().unwrap();
}

// T44
#[test]
fn a_shutdown_is_clean_and_in_time_with_any_clients() {
    let running = start(|config| {
        (config.server.caps.first_byte, config.server.caps.request) = (secs(60), secs(60));
    });
    let at = running.addresses;
    let started = [PREFACE, &SETTINGS].concat();
    let open = [&started[..], &headers(1, false)].concat();
    let mut peers: Vec<Peer> = Vec::new();
    for (address, first) in [
        (at.resp, b"".as_slice()),
        (at.resp, b"*1\r\n$4\r\nPI"),
        (at.http, b""),
        (at.http, b"GET / HTTP/1.1\r\nhost: loc"),
        (at.http, b"POST /v1/check HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\n{"),
        (at.admin, b"GET / HTTP/1.1\r\nhost: loc"),
        (at.grpc, b""),
        (at.grpc, &started),
        (at.grpc, &open),
    ] {
        let mut peer = Peer::new(address);
        peer.say(first);
        peers.push(peer);
    }
    serves(&running);
    let since = Instant::now();
    running.stop().unwrap();
    let took = since.elapsed();
    assert!(took < secs(4), "two seconds were given, {took:?} it took");
    for mut peer in peers {
        assert!(peer.ended_after() < PATIENCE);
    }
}

#[test]
fn an_idle_connection_is_closed_at_once_with_goaway() {
    let running = start(|config| config.server.drain = secs(30));
    let mut grpc = Peer::new(running.addresses.grpc);
    grpc.say([PREFACE, &SETTINGS].concat());
    let mut resp = Peer::resp(&running);
    assert_eq!(resp.ask("PING"), "+PONG");
    let since = Instant::now();
    running.stop().unwrap();
    assert!(since.elapsed() < secs(4), "{:?}", since.elapsed());
    assert_eq!(resp.rest(), Some(Vec::new()));
    let heard = grpc.rest().expect("it ends");
    assert!(kinds(&heard).contains(&7), "GOAWAY: {heard:?}");
}

/// Longer than a second of patience, one because the server counts whole ones, and one more.
const WAIT: &str = "4s";

// T44
#[test]
fn a_request_that_a_rule_makes_wait_is_not_overdue() {
    let directory = Directory::new();
    let rule = format!("[limits.line]\nrule = \"1/{WAIT} queue capacity 5\"\n");
    let limits = load(&directory.write("tidegate.toml", &rule)).expect("it is good").limits;
    let running = start(|config| config.limits = limits);
    let http_at = running.addresses.http;
    std::thread::scope(|scope| {
        // By the plain way, and by hyper's: a connection that is to be closed is hyper's.
        for (key, fields) in [("plain", ""), ("other", "connection: close\r\n")] {
            scope.spawn(move || {
                let head = format!(
                    "GET /v1/authorize?limit=line&key={key} HTTP/1.1\r\nhost: localhost\r\n"
                );
                let ask = || {
                    let mut peer = Peer::new(http_at);
                    peer.say(format!("{head}{fields}\r\n"));
                    peer
                };
                assert!(ask().line().starts_with("HTTP/1.1 204"), "{key}: the first need not wait");
                assert!(ask().line().starts_with("HTTP/1.1 204"), "{key}: it was cut off");
            });
        }
    });
    running.stop().unwrap();
}

// T44
#[test]
fn an_idle_connection_is_closed_after_the_idle_time() {
    let running = start(|config| config.server.caps.idle = secs(1));
    let at = running.addresses;
    let http = "GET / HTTP/1.1\r\nhost: localhost\r\n\r\n";
    std::thread::scope(|scope| {
        for (address, first) in [(at.resp, "PING\r\n"), (at.http, http), (at.admin, http)] {
            scope.spawn(move || {
                let mut peer = Peer::new(address);
                assert!(peer.say(first));
                assert!(!peer.line().is_empty(), "{address:?} answers");
                let took = peer.ended_after();
                assert!(took < IN_TIME, "{address:?} was patient for {took:?}");
            });
        }
    });
    running.stop().unwrap();
}

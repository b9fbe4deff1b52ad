//! T44: slow clients.

use crate::frames::{PREFACE, SETTINGS, frame, frame_types, headers};
use crate::harness::{Directory, PATIENCE, Peer, assert_serves, secs, start};
use std::io::{ErrorKind, Read};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tidegate_server::config::load;
use tidegate_server::net::Running;

/// One second is the time limit, one is because the server counts whole seconds, and two are for a busy machine.
const IN_TIME: Duration = Duration::from_secs(4);
const PAUSE: Duration = Duration::from_millis(200);

/// Runs an attack, and asserts that a harmless client is answered in time during it.
fn meanwhile_others_are_served(running: &Running, attack: impl FnOnce()) {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            let mut peer = Peer::resp(running);
            let (mut requests, mut longest) = (0, Duration::ZERO);
            while !is_over.load(Ordering::Relaxed) || requests < 10 {
                let since = Instant::now();
                assert_eq!(peer.ask("PING"), "+PONG");
                longest = longest.max(since.elapsed());
                requests += 1;
                std::thread::park_timeout(Duration::from_millis(5));
            }
            longest
        });
        // Also if the attack panicked: the client would go on forever, and the panic would not be reported.
        let attacked = catch_unwind(AssertUnwindSafe(attack));
        is_over.store(true, Ordering::Relaxed);
        if let Err(found) = attacked {
            resume_unwind(found);
        }
        let longest = other.join().expect("the client is served");
        assert!(longest < secs(2), "a client waited {longest:?}");
    });
    assert_serves(running);
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
                    let took = Peer::new(address).time_until_closed();
                    assert!(took < IN_TIME, "{address:?} closed it only after {took:?}");
                    assert!(
                        took > Duration::from_millis(900),
                        "{address:?} closed it after {took:?}"
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
                    assert!(peer.send(first));
                    let then = if then.is_empty() { &PREFACE[3..20] } else { then };
                    let took = peer.drip(then, PAUSE);
                    assert!(took < IN_TIME, "{what} may take {took:?}");
                });
            }
        });
    });
    running.stop().unwrap();
}

// T44
#[test]
fn a_client_whose_headers_never_end_is_closed_in_time() {
    let running = start(|_| ());
    let mut peer = Peer::new(running.addresses.grpc);
    peer.send([PREFACE, &SETTINGS, &frame(1, 0, 1, &[0x83])].concat());
    // Each CONTINUATION frame is complete, and the headers are not.
    let took = peer.drip(&frame(9, 0, 1, &[]), Duration::from_millis(20));
    assert!(took < IN_TIME, "the headers may take {took:?}");
    assert_serves(&running);
    running.stop().unwrap();
}

// T44
#[test]
fn a_message_that_never_arrives_is_given_up_even_if_the_client_pings() {
    let running = start(|_| ());
    let mut peer = Peer::new(running.addresses.grpc);
    peer.send([PREFACE, &SETTINGS, &headers(1, false)].concat());
    let since = Instant::now();
    let ping = frame(6, 0, 0, &[7; 8]);
    let mut received = Vec::new();
    peer.0.set_read_timeout(Some(PAUSE)).unwrap();
    // Only the answer on the stream has headers; all other frames are about the connection.
    while !frame_types(&received).contains(&1) {
        assert!(since.elapsed() < IN_TIME, "the stream is still open");
        assert!(peer.send(&ping), "the connection stays open");
        let mut piece = [0; 1_024];
        if let Ok(read) = peer.0.read(&mut piece) {
            received.extend_from_slice(&piece[..read]);
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
                peer.send(first);
                if address == at.grpc {
                    // The server sends its settings and acknowledges the client's. It does not answer the client's acknowledgement.
                    let mut received = Vec::new();
                    while frame_types(&received).iter().filter(|kind| **kind == 4).count() < 2 {
                        let mut byte = [0];
                        peer.0.read_exact(&mut byte).expect("the server answers");
                        received.push(byte[0]);
                    }
                    peer.send(frame(4, 1, 0, &[]));
                }
                peer.0.set_read_timeout(Some(Duration::from_millis(3_500))).unwrap();
                let kind = loop {
                    match peer.0.read(&mut [0; 4_096]) {
                        Ok(0) => break ErrorKind::UnexpectedEof,
                        Ok(_) => {}
                        Err(error) => break error.kind(),
                    }
                };
                assert_eq!(kind, ErrorKind::WouldBlock, "{address:?} closed the connection");
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
        peer.send(first);
        peers.push(peer);
    }
    assert_serves(&running);
    let since = Instant::now();
    running.stop().unwrap();
    let took = since.elapsed();
    assert!(took < secs(4), "the drain is two seconds, the shutdown took {took:?}");
    for mut peer in peers {
        assert!(peer.time_until_closed() < PATIENCE);
    }
}

#[test]
fn an_idle_connection_is_closed_at_once_with_goaway() {
    let running = start(|config| config.server.drain = secs(30));
    let mut grpc = Peer::new(running.addresses.grpc);
    grpc.send([PREFACE, &SETTINGS].concat());
    let mut resp = Peer::resp(&running);
    assert_eq!(resp.ask("PING"), "+PONG");
    let since = Instant::now();
    running.stop().unwrap();
    assert!(since.elapsed() < secs(4), "{:?}", since.elapsed());
    assert_eq!(resp.read_to_end(), Some(Vec::new()));
    let received = grpc.read_to_end().expect("the server closes the connection");
    assert!(frame_types(&received).contains(&7), "GOAWAY: {received:?}");
}

/// Longer than the time limit of one second, plus one because the server counts whole seconds, plus one.
const WAIT: &str = "4s";

// T44
#[test]
fn the_time_limit_of_a_request_does_not_count_the_wait_of_its_rule() {
    let directory = Directory::new();
    let rule = format!("[limits.queue]\nrule = \"1/{WAIT} queue capacity 5\"\n");
    let limits = load(&directory.write("tidegate.toml", &rule)).expect("the file is valid").limits;
    let running = start(|config| config.limits = limits);
    let http_at = running.addresses.http;
    std::thread::scope(|scope| {
        // The server decodes plain requests itself and leaves those with `Connection: close` to hyper.
        for (key, fields) in [("plain", ""), ("other", "connection: close\r\n")] {
            scope.spawn(move || {
                let head = format!(
                    "GET /v1/authorize?limit=queue&key={key} HTTP/1.1\r\nhost: localhost\r\n"
                );
                let ask = || {
                    let mut peer = Peer::new(http_at);
                    peer.send(format!("{head}{fields}\r\n"));
                    peer
                };
                assert!(
                    ask().line().starts_with("HTTP/1.1 204"),
                    "{key}: the first request does not wait"
                );
                assert!(
                    ask().line().starts_with("HTTP/1.1 204"),
                    "{key}: the second request is answered after its wait"
                );
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
                assert!(peer.send(first));
                assert!(!peer.line().is_empty(), "{address:?} answers");
                let took = peer.time_until_closed();
                assert!(took < IN_TIME, "{address:?} closed it only after {took:?}");
            });
        }
    });
    running.stop().unwrap();
}

//! Any bytes from a Redis client, in any portions: never a panic, nothing kept beyond the caps, and the same
//! answers however the bytes were cut.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use tidegate::{ManualClock, Snapshot};
use tidegate_server::clock::ServerClock;
use tidegate_server::config::{Config, Token};
use tidegate_server::resp::Session;
use tidegate_server::server::Server;

/// What is said may be so long: a step, and the longest single answer.
const SAID_MAX: usize = 64 * 1024 + 2 * 1024 * 1024;

fuzz_target!(|input: (bool, u8, &[u8])| {
    let (needs_token, cut, bytes) = input;
    let whole = talk(needs_token, bytes.len().max(1), bytes);
    let in_parts = talk(needs_token, usize::from(cut).max(1), bytes);
    // A lease, and a peer's number, are never the same twice.
    let is_unique = |bytes: &[u8]| {
        let upper = bytes.to_ascii_uppercase();
        [&b"ACQUIRE"[..], b"HELLO", b"CLIENT", b"INFO", b"TIME"]
            .iter()
            .any(|word| upper.windows(word.len()).any(|found| found == *word))
    };
    if !is_unique(bytes) {
        assert_eq!(whole, in_parts, "it matters how it was cut");
    }
});

fn talk(needs_token: bool, portion: usize, bytes: &[u8]) -> Vec<u8> {
    let mut config = Config::default();
    if needs_token {
        config.server.tokens = vec![Token::new("hush")];
    }
    config.server.throttle_max_keys = 64;
    let clock = ServerClock::Manual(ManualClock::new());
    let server = Server::new(config, None, clock, Snapshot::default());
    let mut session = Session::new(Arc::clone(&server));
    let (mut input, mut said) = (Vec::new(), Vec::new());
    for part in bytes.chunks(portion) {
        input.extend_from_slice(part);
        loop {
            let done = ready(session.answer(&input));
            assert!(
                session.said().len() <= SAID_MAX,
                "too much is kept for a peer that does not read"
            );
            said.extend_from_slice(session.said());
            session.forget_said();
            input.drain(..done);
            if session.is_over() {
                return said;
            }
            if done == 0 {
                break;
            }
        }
    }
    said
}

fn ready<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("it waits"),
    }
}

//! Fuzz target: any bytes from a Redis client, in portions of any size.
//!
//! Seeds    The bytes: whether a token is required (odd), the size of a portion, and the bytes of the client.

use super::at_once;
use std::sync::Arc;
use tidegate::ManualClock;
use tidegate::snapshot::Snapshot;
use tidegate_server::clock::ServerClock;
use tidegate_server::config::{Config, Token};
use tidegate_server::protocol::resp::Session;
use tidegate_server::server::Server;

/// Maximum size of the output buffer: one step, and the longest single reply.
const OUTPUT_BYTES_MAX: usize = 64 * 1024 + 2 * 1024 * 1024;
/// Commands whose replies differ each time: they contain a lease, a connection number or the time.
const UNIQUE: [&[u8]; 5] = [b"ACQUIRE", b"HELLO", b"CLIENT", b"INFO", b"TIME"];

/// Checks that the session never panics, that buffers stay within their caps, and that the replies do not depend on how
/// the bytes are split.
///
/// # Panics
///
/// If a check fails.
pub fn resp(bytes: &[u8]) {
    let [needs_token, portion, input @ ..] = bytes else { return };
    let needs_token = needs_token % 2 == 1;
    let whole = replies(needs_token, input.len().max(1), input);
    let in_parts = replies(needs_token, usize::from(*portion).max(1), input);
    let upper = input.to_ascii_uppercase();
    let has = |word: &&[u8]| upper.windows(word.len()).any(|found| found == *word);
    if !UNIQUE.iter().any(has) {
        assert_eq!(whole, in_parts, "the replies depend on how the bytes are split");
    }
}

fn replies(needs_token: bool, portion: usize, bytes: &[u8]) -> Vec<u8> {
    let mut config = Config::default();
    if needs_token {
        config.server.tokens = vec![Token::new("hush")];
    }
    config.server.throttle_max_keys = 64;
    let clock = ServerClock::Manual(ManualClock::new());
    let server = Server::new(config, None, clock, Snapshot::default());
    let mut session = Session::new(Arc::clone(&server));
    let (mut input, mut output) = (Vec::new(), Vec::new());
    for part in bytes.chunks(portion) {
        input.extend_from_slice(part);
        loop {
            let done = at_once(session.answer(&input));
            let buffered = session.output().len();
            assert!(
                buffered <= OUTPUT_BYTES_MAX,
                "{buffered} bytes are buffered for a client that does not read"
            );
            output.extend_from_slice(session.output());
            session.clear_output();
            input.drain(..done);
            if session.is_over() {
                return output;
            }
            if done == 0 {
                break;
            }
        }
    }
    output
}

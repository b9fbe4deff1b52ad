//! What one RESP connection may make the server keep (T51, T52), measured at its buffers.

use super::super::Wire;
use super::super::deadlines::Connections;
use super::*;
use crate::clock::ServerClock;
use crate::config::{Caps, Config, Token};
use crate::protocol::resp::{CommandCaps, OUTPUT_STEP};
use proptest::prelude::*;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use tidegate::snapshot::Snapshot;
use tokio::io::ReadBuf;

fn server(has_token: bool) -> Arc<Server> {
    let mut config = Config::default();
    if has_token {
        config.server.tokens = vec![Token::new("hush")];
    }
    Server::new(config, None, ServerClock::system(), Snapshot::default())
}

/// Length of short reads; no divisor of the length of long ones.
const PIECE: usize = 1_499;

/// A peer that sends `first`, repeats its last byte for ever, and accepts `accepts` bytes of answers.
struct Endless<'a> {
    first: &'a [u8],
    /// It sends short pieces until it has sent this much, and then as much at once as is read.
    short_until: usize,
    accepts: usize,
    sent: &'a AtomicUsize,
    most_at_once: &'a AtomicUsize,
}

impl AsyncRead for Endless<'_> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let sent = self.sent.load(Ordering::Relaxed);
        let free = buffer.remaining();
        let most = if sent < self.short_until { PIECE.min(free) } else { free };
        let first = self.first.len().saturating_sub(1).min(most);
        buffer.put_slice(&self.first[..first]);
        self.first = &self.first[first..];
        let rest = vec![self.first[0]; if self.first.len() == 1 { most - first } else { 0 }];
        buffer.put_slice(&rest);
        self.sent.fetch_add(first + rest.len(), Ordering::Relaxed);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Endless<'_> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.most_at_once.fetch_max(bytes.len(), Ordering::Relaxed);
        let taken = bytes.len().min(self.accepts);
        self.accepts -= taken;
        if taken == 0 { Poll::Pending } else { Poll::Ready(Ok(taken)) }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// What serving such a peer amounts to.
struct Served {
    bytes_read: usize,
    /// The most bytes of answers offered to it in one write.
    unwritten_max: usize,
    is_disconnected: bool,
}

fn serve_endless(has_token: bool, first: &[u8], short_until: usize, accepts: usize) -> Served {
    let (sent, most_at_once) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let peer = Endless { first, short_until, accepts, sent: &sent, most_at_once: &most_at_once };
    let state = Connections::default().add(Wire::Resp, &Caps::default()).1;
    let mut serving =
        std::pin::pin!(serve(peer, server(has_token), ([127, 0, 0, 1], 1).into(), &state));
    let served = serving.as_mut().poll(&mut Context::from_waker(std::task::Waker::noop()));
    let load = |number: &AtomicUsize| number.load(Ordering::Relaxed);
    Served {
        bytes_read: load(&sent),
        unwritten_max: load(&most_at_once),
        is_disconnected: served.is_ready(),
    }
}

// T51
#[test]
fn at_most_64_kb_of_a_command_are_kept_for_unauthenticated_peers_and_a_megabyte_for_others() {
    let args = |number: usize, bytes: usize| {
        let arg = format!("${bytes}\r\n{}\r\n", "x".repeat(bytes));
        format!("*{number}\r\n{}$", arg.repeat(number - 1))
    };
    let commands = [
        ("ten of 16 KB", args(10, 16 << 10), 64 << 10, 1 << 20),
        // Every line is refused after 64 KB, but more may have been read by then.
        ("a line", "x".to_owned(), 64 << 10, 1 << 20),
        ("many", args(1_024, 2_000), 64, 1 << 20),
        ("a thousand million", "*1000000000\r\n ".to_owned(), 16 << 10, 16 << 10),
        ("two gigabytes", "*1\r\n$2147483647\r\n ".to_owned(), 16 << 10, 16 << 10),
    ];
    for (name, command, unauthenticated, others) in commands {
        for (has_token, most) in [(true, unauthenticated), (false, others)] {
            // A command that is refused by its first bytes has arrived in one read.
            let most = most.max(INPUT_STEP);
            // A peer that sends almost everything in short pieces and then much at once must not find a larger buffer.
            for short_until in [0, most - 4_000, most - 2_000] {
                let served = serve_endless(has_token, command.as_bytes(), short_until, usize::MAX);
                assert!(served.is_disconnected, "{name}: the connection stays open");
                let read = served.bytes_read;
                assert!(read <= most, "{name}: {read} bytes were read, and {most} may be");
            }
        }
    }
}

// T52
#[test]
fn unread_answers_are_bounded_by_a_kilobyte_for_unauthenticated_peers_and_a_step_for_others() {
    let longest = 2_048;
    let cases = [
        (true, &b"PING\r\n"[..], 1_024 + 64),
        (true, b"HELLO 3\r\n", 1_024 + 256),
        (false, b"PING\r\n", OUTPUT_STEP + 64),
        (false, b"COMMAND\r\n", OUTPUT_STEP + longest),
    ];
    for (has_token, command, most) in cases {
        let served = serve_endless(has_token, &command.repeat(100_000), 0, 0);
        assert!(!served.is_disconnected, "the peer has the usual time to read");
        let kept = served.unwritten_max;
        assert!(kept <= most, "{}: {kept} bytes are kept", command.escape_ascii());
        let read = served.bytes_read;
        assert!(read <= 2 * INPUT_STEP, "{read} bytes were read from a peer that does not read");
    }
}

proptest! {
    #[test]
    fn the_input_buffer_never_exceeds_the_longest_command(
        sizes in proptest::collection::vec(1_usize..40_000, 1..200),
        is_authenticated: bool,
    ) {
        let caps = if is_authenticated { CommandCaps::AUTHENTICATED } else { CommandCaps::UNAUTHENTICATED };
        let most = caps.command_bytes_max;
        let mut input = Vec::with_capacity(INPUT_STEP);
        for size in sizes {
            let free = reserve(&mut input, most);
            prop_assert!(free > 0 && input.len() + free <= most);
            prop_assert!(input.capacity() <= most, "{} bytes are allocated", input.capacity());
            input.resize(input.len() + size.min(free), 0);
            if input.len() == most {
                let done = input.len();
                remove_answered(&mut input, done);
            }
        }
    }
}

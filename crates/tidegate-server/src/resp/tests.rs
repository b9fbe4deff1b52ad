//! What one connection keeps: T51 and T52, by its own buffers.

use super::*;
use crate::clock::ServerClock;
use crate::config::{Caps as ServerCaps, Config, Token};
use crate::listen::activity;
use crate::server::QUEUES_BYTES_MAX;
use proptest::prelude::*;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use tidegate::Snapshot;
use tokio::io::ReadBuf;

fn server(has_token: bool) -> Arc<Server> {
    let mut config = Config::default();
    if has_token {
        config.server.tokens = vec![Token::new("hush")];
    }
    Server::new(config, None, ServerClock::system(), Snapshot::default())
}

/// No divisor of what is read at once.
const PIECE: usize = 1_499;

/// A peer that says this and then goes on for ever with the last byte, takes so many bytes of answers, and then no more.
struct Endless<'a> {
    first: &'a [u8],
    /// It speaks in short pieces until it has said so much, and then as much at once as is listened to.
    short_until: usize,
    takes: usize,
    said: &'a AtomicUsize,
    most_at_once: &'a AtomicUsize,
}

impl AsyncRead for Endless<'_> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let said = self.said.load(Ordering::Relaxed);
        let room = buffer.remaining();
        let most = if said < self.short_until { PIECE.min(room) } else { room };
        let first = self.first.len().saturating_sub(1).min(most);
        buffer.put_slice(&self.first[..first]);
        self.first = &self.first[first..];
        let rest = vec![self.first[0]; if self.first.len() == 1 { most - first } else { 0 }];
        buffer.put_slice(&rest);
        self.said.fetch_add(first + rest.len(), Ordering::Relaxed);
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
        let taken = bytes.len().min(self.takes);
        self.takes -= taken;
        if taken == 0 { Poll::Pending } else { Poll::Ready(Ok(taken)) }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// How much such a peer can say until it is left or not listened to, how much is kept for it to read at the most, and whether
/// it is left.
fn heard(has_token: bool, first: &[u8], short_until: usize, takes: usize) -> (usize, usize, bool) {
    let (said, most_at_once) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let peer = Endless { first, short_until, takes, said: &said, most_at_once: &most_at_once };
    let activity = activity();
    let mut serving =
        std::pin::pin!(serve(peer, server(has_token), ([127, 0, 0, 1], 1).into(), &activity));
    let served = serving.as_mut().poll(&mut Context::from_waker(std::task::Waker::noop()));
    let now = |number: &AtomicUsize| number.load(Ordering::Relaxed);
    (now(&said), now(&most_at_once), served.is_ready())
}

#[test]
fn t51_of_a_stranger_64_kb_are_kept_and_of_others_a_megabyte() {
    let args = |number: usize, bytes: usize| {
        let arg = format!("${bytes}\r\n{}\r\n", "x".repeat(bytes));
        format!("*{number}\r\n{}$", arg.repeat(number - 1))
    };
    let commands = [
        ("ten of 16 KB", args(10, 16 << 10), 64 << 10, 1 << 20),
        // A line is refused after 64 KB from anybody, but more of it may have come by then.
        ("a line", "x".to_owned(), 64 << 10, 1 << 20),
        ("many", args(1_024, 2_000), 64, 1 << 20),
        ("a thousand million", "*1000000000\r\n ".to_owned(), 16 << 10, 16 << 10),
        ("two gigabytes", "*1\r\n$2147483647\r\n ".to_owned(), 16 << 10, 16 << 10),
    ];
    for (name, command, strangers, others) in commands {
        for (has_token, most) in [(true, strangers), (false, others)] {
            // Where a command is refused by its first words, those have come in a piece that is read at once.
            let most = most.max(INPUT_STEP);
            // Who has said all but the last of it, and then much at once, may find more room than there should be.
            for short_until in [0, most - 4_000, most - 2_000] {
                let (said, _, is_left) =
                    heard(has_token, command.as_bytes(), short_until, usize::MAX);
                assert!(is_left, "{name}: it goes on");
                assert!(said <= most, "{name}: {said} bytes were read, and {most} may be");
            }
        }
    }
}

#[test]
fn t52_answers_that_nobody_reads_are_a_kilobyte_to_strangers_and_a_step_to_others() {
    let longest = 2_048;
    let cases = [
        (true, &b"PING\r\n"[..], 1_024 + 64),
        (true, b"HELLO 3\r\n", 1_024 + 256),
        (false, b"PING\r\n", OUTPUT_STEP + 64),
        (false, b"COMMAND\r\n", OUTPUT_STEP + longest),
    ];
    for (has_token, command, most) in cases {
        let (said, kept, is_left) = heard(has_token, &command.repeat(100_000), 0, 0);
        assert!(!is_left, "it has as long as for any answer");
        assert!(kept <= most, "{}: {kept} bytes are kept", command.escape_ascii());
        assert!(said <= 2 * INPUT_STEP, "{said} bytes were read of who does not read");
    }
}

#[tokio::test]
async fn t52_an_answer_of_more_than_a_megabyte_is_none() {
    let server = server(false);
    let most = ServerCaps::default().output_bytes_max;
    let mut session = Session::new(server);
    session.answer(b"MULTI\r\n").await;
    session.forget_said();
    let command = b"COMMAND\r\n".repeat(2_000);
    let mut done = 0;
    while done < command.len() {
        done += session.answer(&command[done..]).await;
        assert!(session.said().len() <= OUTPUT_STEP + 64);
        session.forget_said();
    }
    session.answer(b"EXEC\r\n").await;
    assert!(session.is_over() && session.said().len() <= most, "{}", session.said().len());
}

proptest! {
    #[test]
    fn room_is_made_for_no_more_than_a_command_may_have(
        sizes in proptest::collection::vec(1_usize..40_000, 1..200),
        is_known: bool,
    ) {
        let most = if is_known { Caps::KNOWN } else { Caps::STRANGER }.command_bytes_max;
        let mut input = Vec::with_capacity(INPUT_STEP);
        for size in sizes {
            let room = make_room(&mut input, most);
            prop_assert!(room > 0 && input.len() + room <= most);
            prop_assert!(input.capacity() <= most, "{} bytes are taken", input.capacity());
            input.resize(input.len() + size.min(room), 0);
            if input.len() == most {
                let done = input.len();
                keep_rest(&mut input, done);
            }
        }
    }
}

/// What a session says to these bytes.
async fn said(session: &mut Session, bytes: &[u8]) -> String {
    let mut done = 0;
    let mut said = Vec::new();
    while done < bytes.len() {
        let answered = session.answer(&bytes[done..]).await;
        assert!(answered > 0, "it is whole");
        done += answered;
        said.extend_from_slice(session.said());
        session.forget_said();
    }
    String::from_utf8_lossy(&said).into_owned()
}

/// A client that comes from this address.
fn client_of(server: &Arc<Server>, address: u8) -> Session {
    Session::from_address(Arc::clone(server), [10, 0, 0, address].into())
}

/// Eighty of them are as many as there is room for.
fn long_command() -> String {
    format!("*2\r\n$4\r\nECHO\r\n$400000\r\n{}\r\n", "x".repeat(400_000))
}

/// The issue of 200 connections that queued 0.9 MB each.
#[tokio::test]
async fn what_all_connections_have_queued_is_bounded_together() {
    let server = server(false);
    let command = long_command();
    // Each from an address of its own: one of them alone could not take it all.
    let mut sessions: Vec<Session> = (0..100).map(|number| client_of(&server, number)).collect();
    let mut queued = 0;
    for session in &mut sessions {
        assert_eq!(said(session, b"MULTI\r\n").await, "+OK\r\n");
        queued += usize::from(said(session, command.as_bytes()).await == "+QUEUED\r\n");
    }
    assert_eq!(queued, QUEUES_BYTES_MAX / command.len(), "as many as there is room for");
    let last = sessions.last_mut().unwrap();
    assert!(
        said(last, b"EXEC\r\n").await.starts_with("-EXECABORT"),
        "what is not whole is not run"
    );
    said(last, b"MULTI\r\n").await;
    assert!(said(last, command.as_bytes()).await.starts_with("-BUSY "), "there is still no room");

    let answered = said(&mut sessions[0], b"EXEC\r\n").await;
    assert!(
        answered.starts_with("*1\r\n$400000\r\n"),
        "who was in time is answered: {answered:.40}"
    );
    drop(sessions.split_off(1));
    assert_eq!(said(&mut sessions[0], b"MULTI\r\n").await, "+OK\r\n");
    assert_eq!(
        said(&mut sessions[0], command.as_bytes()).await,
        "+QUEUED\r\n",
        "all is given back"
    );
    drop(sessions);
    assert_eq!(server.queues.taken(), 0);
}

#[tokio::test]
async fn what_one_client_queues_on_many_connections_leaves_room_for_others() {
    let (server, command) = (server(false), long_command());
    let mut sessions: Vec<Session> = (0..100).map(|_| client_of(&server, 1)).collect();
    let mut queued = 0;
    for session in &mut sessions {
        said(session, b"MULTI\r\n").await;
        queued += usize::from(said(session, command.as_bytes()).await == "+QUEUED\r\n");
    }
    assert!(queued * command.len() > QUEUES_BYTES_MAX / 2, "it may have much: {queued}");
    let mut other = client_of(&server, 2);
    said(&mut other, b"MULTI\r\n").await;
    assert_eq!(said(&mut other, command.as_bytes()).await, "+QUEUED\r\n");
}

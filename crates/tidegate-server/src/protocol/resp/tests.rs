//! The memory of sessions: unread answers (T52), and commands queued by `MULTI`.

use super::*;
use crate::clock::ServerClock;
use crate::config::{Caps, Config};
use crate::server::{QUEUES_BYTES_MAX, Server};
use std::sync::Arc;
use tidegate::snapshot::Snapshot;

fn server() -> Arc<Server> {
    Server::new(Config::default(), None, ServerClock::system(), Snapshot::default())
}

#[tokio::test]
async fn an_answer_of_more_than_a_megabyte_is_not_sent() {
    let server = server();
    let most = Caps::default().output_bytes_max;
    let mut session = Session::new(server);
    session.answer(b"MULTI\r\n").await;
    session.clear_output();
    let command = b"COMMAND\r\n".repeat(2_000);
    let mut done = 0;
    while done < command.len() {
        done += session.answer(&command[done..]).await;
        assert!(session.output().len() <= OUTPUT_STEP + 64);
        session.clear_output();
    }
    session.answer(b"EXEC\r\n").await;
    assert!(session.is_over() && session.output().len() <= most, "{}", session.output().len());
}

/// Returns a session's answers to these bytes.
async fn send(session: &mut Session, bytes: &[u8]) -> String {
    let mut done = 0;
    let mut answers = Vec::new();
    while done < bytes.len() {
        let answered = session.answer(&bytes[done..]).await;
        assert!(answered > 0, "it is whole");
        done += answered;
        answers.extend_from_slice(session.output());
        session.clear_output();
    }
    String::from_utf8_lossy(&answers).into_owned()
}

/// Returns the session of a client with this address.
fn client_of(server: &Arc<Server>, address: u8) -> Session {
    Session::from_address(Arc::clone(server), [10, 0, 0, address].into())
}

/// Returns a command; eighty of them fill the queues.
fn long_command() -> String {
    format!("*2\r\n$4\r\nECHO\r\n$400000\r\n{}\r\n", "x".repeat(400_000))
}

// 200 connections once queued 0.9 MB each.
#[tokio::test]
async fn the_queues_of_all_connections_are_bounded_together() {
    let server = server();
    let command = long_command();
    // Each with an address of its own: one address gets only its share.
    let mut sessions: Vec<Session> = (0..100).map(|number| client_of(&server, number)).collect();
    let mut queued = 0;
    for session in &mut sessions {
        assert_eq!(send(session, b"MULTI\r\n").await, "+OK\r\n");
        queued += usize::from(send(session, command.as_bytes()).await == "+QUEUED\r\n");
    }
    assert_eq!(queued, QUEUES_BYTES_MAX / command.len(), "the queues are full");
    let last = sessions.last_mut().unwrap();
    assert!(
        send(last, b"EXEC\r\n").await.starts_with("-EXECABORT"),
        "a transaction with a rejected command does not run"
    );
    send(last, b"MULTI\r\n").await;
    assert!(
        send(last, command.as_bytes()).await.starts_with("-BUSY "),
        "the queues are still full"
    );

    let answered = send(&mut sessions[0], b"EXEC\r\n").await;
    assert!(
        answered.starts_with("*1\r\n$400000\r\n"),
        "the first transaction runs: {answered:.40}"
    );
    drop(sessions.split_off(1));
    assert_eq!(send(&mut sessions[0], b"MULTI\r\n").await, "+OK\r\n");
    assert_eq!(
        send(&mut sessions[0], command.as_bytes()).await,
        "+QUEUED\r\n",
        "the queues are empty again"
    );
    drop(sessions);
    assert_eq!(server.queues.taken(), 0);
}

#[tokio::test]
async fn one_client_with_many_connections_leaves_part_of_the_queues_to_others() {
    let (server, command) = (server(), long_command());
    let mut sessions: Vec<Session> = (0..100).map(|_| client_of(&server, 1)).collect();
    let mut queued = 0;
    for session in &mut sessions {
        send(session, b"MULTI\r\n").await;
        queued += usize::from(send(session, command.as_bytes()).await == "+QUEUED\r\n");
    }
    assert!(queued * command.len() > QUEUES_BYTES_MAX / 2, "its share is large: {queued}");
    let mut other = client_of(&server, 2);
    send(&mut other, b"MULTI\r\n").await;
    assert_eq!(send(&mut other, command.as_bytes()).await, "+QUEUED\r\n");
}

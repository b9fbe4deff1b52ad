//! What sessions keep: answers that are not read (T52), and commands queued by `MULTI`.

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
async fn t52_an_answer_of_more_than_a_megabyte_is_none() {
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

/// What a session says to these bytes.
async fn said(session: &mut Session, bytes: &[u8]) -> String {
    let mut done = 0;
    let mut said = Vec::new();
    while done < bytes.len() {
        let answered = session.answer(&bytes[done..]).await;
        assert!(answered > 0, "it is whole");
        done += answered;
        said.extend_from_slice(session.output());
        session.clear_output();
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
    let server = server();
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
    let (server, command) = (server(), long_command());
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

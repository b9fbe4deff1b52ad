//! T52: clients that do not read their answers.

use crate::harness::{
    Peer, array, assert_grew_less, assert_serves, eventually, rss_bytes, secs, start,
    start_exclusive,
};
use std::io::Write;
use tidegate_server::config::Token;
use tidegate_server::net::Running;

/// Sends requests without reading, until the server closes the connection.
fn send_without_reading(running: &Running, what: &[u8]) {
    let mut peer = Peer::resp(running);
    peer.shrink_receive_buffer();
    peer.0.set_write_timeout(Some(secs(8))).unwrap();
    let many = what.repeat((64 << 10) / what.len() + 1);
    let is_closed = (0..4_000).any(|_| match peer.0.write_all(&many) {
        Ok(()) => false,
        Err(error) => {
            assert!(
                error.kind() != std::io::ErrorKind::WouldBlock,
                "the server keeps the connection open"
            );
            true
        }
    });
    assert!(is_closed, "the server never closes the connection");
}

// T52
#[test]
fn a_client_that_never_reads_is_closed_and_costs_little() {
    let running = start_exclusive(|_| ());
    let before = rss_bytes();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| send_without_reading(&running, &array(&[b"ECHO", &[b'x'; 1_000]])));
            scope.spawn(|| send_without_reading(&running, b"COMMAND\r\n"));
        }
        for _ in 0..20 {
            assert_serves(&running);
        }
    });
    assert_grew_less(before, 32 << 20);
    let open = || running.server.status.connections.sum();
    eventually("the connections are closed", secs(5), || open() == 0);
    running.stop().unwrap();
}

// T52
#[test]
fn an_unauthenticated_client_that_never_reads_is_closed_too() {
    let running = start(|config| config.server.tokens = vec![Token::new("hush")]);
    send_without_reading(&running, b"PING\r\n");
    running.stop().unwrap();
}

// T52
#[test]
fn one_answer_is_no_longer_than_the_unread_maximum() {
    // A long time limit, because this is not about speed and the machine may be busy.
    let running = start_exclusive(|config| config.server.caps.request = secs(60));
    let before = rss_bytes();
    let mut peers: Vec<Peer> = (0..8).map(|_| Peer::resp(&running)).collect();
    for peer in &mut peers {
        // Nine bytes get an answer of more than a thousand, and EXEC would return all of them in one answer.
        let queued = [&b"MULTI\r\n"[..], &b"COMMAND\r\n".repeat(9_000), b"EXEC\r\n"].concat();
        peer.send(queued);
        let received = peer.read_to_end().expect("the server closes the connection");
        assert!(received.len() < 1 << 20, "the server sent {} bytes", received.len());
        let end = String::from_utf8_lossy(&received[received.len() - 60..]).into_owned();
        assert!(end.ends_with("-ERR the answer is too long: request less at once\r\n"), "{end}");
    }
    assert_grew_less(before, 32 << 20);
    running.stop().unwrap();
}

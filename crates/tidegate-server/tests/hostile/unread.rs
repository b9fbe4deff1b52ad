//! T52: clients that do not read their answers.

use crate::harness::{
    Peer, array, assert_grew_less, eventually, rss_bytes, secs, serves, start, start_alone,
};
use std::io::Write;
use tidegate_server::config::Token;
use tidegate_server::net::Running;

/// Asks and asks, and never listens, until it is cut off.
fn ask_without_listening(running: &Running, what: &[u8]) {
    let mut peer = Peer::resp(running);
    peer.is_narrow();
    peer.0.set_write_timeout(Some(secs(8))).unwrap();
    let many = what.repeat((64 << 10) / what.len() + 1);
    let is_cut_off = (0..4_000).any(|_| match peer.0.write_all(&many) {
        Ok(()) => false,
        Err(error) => {
            assert!(error.kind() != std::io::ErrorKind::WouldBlock, "it is still waited for");
            true
        }
    });
    assert!(is_cut_off, "it may go on");
}

// T52
#[test]
fn a_client_that_never_reads_is_closed_and_costs_little() {
    let running = start_alone(|_| ());
    let before = rss_bytes();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| ask_without_listening(&running, &array(&[b"ECHO", &[b'x'; 1_000]])));
            scope.spawn(|| ask_without_listening(&running, b"COMMAND\r\n"));
        }
        for _ in 0..20 {
            serves(&running);
        }
    });
    assert_grew_less(before, 32 << 20);
    let open = || running.server.status.connections.sum();
    eventually("they are gone", secs(5), || open() == 0);
    running.stop().unwrap();
}

// T52
#[test]
fn an_unauthenticated_client_that_never_reads_is_closed_too() {
    let running = start(|config| config.server.tokens = vec![Token::new("hush")]);
    ask_without_listening(&running, b"PING\r\n");
    running.stop().unwrap();
}

// T52
#[test]
fn one_answer_is_no_longer_than_the_unread_maximum() {
    // It is about what is said, not about how fast: a busy machine may take its time.
    let running = start_alone(|config| config.server.caps.request = secs(60));
    let before = rss_bytes();
    let mut peers: Vec<Peer> = (0..8).map(|_| Peer::resp(&running)).collect();
    for peer in &mut peers {
        // Eight bytes for an answer of more than a thousand: ten thousand of them were one answer.
        let queued = [&b"MULTI\r\n"[..], &b"COMMAND\r\n".repeat(9_000), b"EXEC\r\n"].concat();
        peer.say(queued);
        let heard = peer.rest().expect("it is cut off");
        assert!(heard.len() < 1 << 20, "{} bytes were said", heard.len());
        let end = String::from_utf8_lossy(&heard[heard.len() - 60..]).into_owned();
        assert!(end.ends_with("-ERR the answer is too long: request less at once\r\n"), "{end}");
    }
    assert_grew_less(before, 32 << 20);
    running.stop().unwrap();
}

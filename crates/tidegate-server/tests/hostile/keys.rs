//! T56: hostile keys.

use crate::harness::{Peer, array, assert_serves, http, start, status};
use std::io::Write;
use std::sync::{Arc, Mutex, OnceLock};
use tidegate_server::config::LimitConfig;
use tracing_subscriber::filter::LevelFilter;

/// A text in all keys, and nowhere else.
const MARK: &str = "q9zMARK";

fn keys() -> Vec<Vec<u8>> {
    let mark = MARK.as_bytes();
    vec![
        Vec::new(),
        mark.to_vec(),
        [mark, b"\xff\xfe\x80"].concat(),
        [mark, b"\x1b[2J\x1b]0;owned\x07"].concat(),
        [mark, b"\nlevel=ERROR forged\r\n-ERR forged"].concat(),
        [mark, b"\",limit=\"x\"} 1\n# EOF\n"].concat(),
        [mark, b"<script>alert(1)</script>"].concat(),
        [mark, b"\0"].concat(),
        [mark, &vec![b'k'; 4_000][..]].concat(),
    ]
}

/// Captures the log of this process.
fn logged() -> Arc<Mutex<Vec<u8>>> {
    static LOG: OnceLock<Arc<Mutex<Vec<u8>>>> = OnceLock::new();
    Arc::clone(LOG.get_or_init(|| {
        let log = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&log);
        let writer = move || Writer(Arc::clone(&kept));
        let builder = tracing_subscriber::fmt().with_max_level(LevelFilter::DEBUG);
        builder
            .with_ansi(false)
            .with_writer(writer)
            .try_init()
            .expect("no other test installs a subscriber");
        log
    }))
}

struct Writer(Arc<Mutex<Vec<u8>>>);

impl Write for Writer {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("no thread panics while it holds the lock").write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

// T56
#[test]
fn any_key_is_limited_and_shown_escaped() {
    let log = logged();
    let running = start(|config| {
        config.limits = vec![LimitConfig::new("named", "1/h".parse().expect("a rule"))];
    });
    let mut peer = Peer::resp(&running);
    for key in keys() {
        for (expected, words) in [
            (":0", [b"CL.THROTTLE".as_slice(), &key, b"0", b"1", b"3600"].as_slice()),
            (":1", &[b"CL.THROTTLE", &key, b"0", b"1", b"3600"]),
            (":1", &[b"TIDE.CHECK", b"named", &key]),
            (":0", &[b"TIDE.CHECK", b"named", &key]),
            (":0", &[b"TIDE.CHECK", b"1/day", &key, b"COST", b"2"]),
        ] {
            peer.send(array(words));
            assert_eq!((peer.line().as_str(), peer.line().as_str()), ("*5", expected));
            (0..4).for_each(|_| assert!(peer.line().starts_with(':')));
        }
        // The list of top keys samples one decision in 16 at random, so 64 decisions make it likely that the key is in it.
        for _ in 0..64 {
            peer.send(array(&[b"TIDE.CHECK", b"named", &key]));
            assert_eq!(peer.line(), "*5");
            (0..5).for_each(|_| assert!(peer.line().starts_with(':')));
        }
        // Errors are one line, whatever bytes the key has.
        peer.send(array(&[b"TIDE.CHECK", &key, b"k"]));
        assert!(peer.line().starts_with("-ERR"));
        peer.send(array(&[&key]));
        let reply = peer.line();
        assert!(reply.starts_with("-ERR unknown command"), "{reply}");
    }
    assert_eq!(peer.ask("PING"), "+PONG", "no answer has an extra line");
    assert_admin_pages_escape_keys(running.addresses.admin);
    assert_serves(&running);
    running.stop().unwrap();
    let log = log.lock().unwrap().clone();
    assert!(!log.contains(&0x1b), "{}", String::from_utf8_lossy(&log));
    assert!(!String::from_utf8_lossy(&log).contains(MARK), "{}", String::from_utf8_lossy(&log));
}

fn assert_admin_pages_escape_keys(admin: Option<std::net::SocketAddr>) {
    let accept = "accept: application/openmetrics-text";
    let get = |path: &str| {
        http(admin, &format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n{accept}"), b"")
    };
    let metrics = get("/metrics");
    assert_eq!(status(&metrics), "200");
    assert!(!metrics.contains(MARK), "{metrics}");
    assert_eq!(metrics.matches("# EOF").count(), 1);
    assert!(!get("/v1/limits").contains(MARK));
    let top = get("/v1/top?limit=named&k=100");
    assert!(top.contains(MARK), "{top}");
    assert!(top.contains("content-type: application/json"), "{top}");
    let (_, body) = top.split_once("\r\n\r\n").expect("the response has a body");
    assert!(!body.bytes().any(|byte| byte < 0x20), "raw control characters: {body}");
    assert!(serde_json::from_str::<serde_json::Value>(body).is_ok(), "{body}");
}

// T56
#[test]
fn a_key_that_is_too_long_is_refused_with_the_reason() {
    let running = start(|_| ());
    let mut peer = Peer::resp(&running);
    peer.send(array(&[b"CL.THROTTLE", &vec![b'k'; 1 << 20], b"0", b"1", b"60"]));
    assert_eq!(peer.line(), "-ERR Protocol error: invalid bulk length");
    let mut peer = Peer::resp(&running);
    peer.send(array(&[b"CL.THROTTLE", &vec![b'k'; 512 << 10], b"0", b"1", b"60"]));
    assert_eq!(peer.line(), "*5");
    let body = |length| format!(r#"{{"rule": "5/min", "key": "{}"}}"#, "k".repeat(length));
    let head = "POST /v1/check HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json";
    let check = |length| http(running.addresses.http, head, body(length).as_bytes());
    assert_eq!(status(&check(4_096)), "200");
    assert_eq!(status(&check(4_097)), "400");
    assert_eq!(status(&check(60_000)), "400");
    running.stop().unwrap();
}

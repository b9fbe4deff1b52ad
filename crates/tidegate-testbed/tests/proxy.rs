//! Each fault does what it says, as seen by a client that knows nothing of it.

#![expect(clippy::disallowed_methods, reason = "delays on real sockets take real time")]

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};
use tidegate_testbed::{Client, Fault, FaultProxy, PATIENCE, RedisServer, Reply, eventually};

const DELAY: Duration = Duration::from_millis(200);
/// Long enough for a reply that is not held up; only ever waited for in vain.
const SILENCE: Duration = Duration::from_millis(100);

fn proxied() -> (RedisServer, FaultProxy) {
    let server = RedisServer::start();
    let proxy = FaultProxy::to(server.address());
    (server, proxy)
}

fn connect(proxy: &FaultProxy) -> TcpStream {
    let stream = TcpStream::connect(proxy.address()).expect("it accepts");
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket has one");
    stream
}

/// All that is heard until the end, and whether the end is a reset.
fn rest(stream: &mut TcpStream) -> (String, bool) {
    let mut heard = Vec::new();
    let ended = stream.read_to_end(&mut heard);
    let is_reset = ended.is_err_and(|error| {
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
        true
    });
    (String::from_utf8(heard).expect("it is text"), is_reset)
}

fn ask(stream: &mut TcpStream, line: &str) -> String {
    stream.write_all(format!("{line}\r\n").as_bytes()).expect("it listens");
    let mut heard = [0; 64];
    let bytes = stream.read(&mut heard).expect("it answers");
    String::from_utf8_lossy(&heard[..bytes]).into_owned()
}

fn is_silent(stream: &mut TcpStream) -> bool {
    stream.set_read_timeout(Some(SILENCE)).expect("a socket has one");
    let read = stream.read(&mut [0]);
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket has one");
    read.is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
}

fn value(server: &RedisServer, key: &str) -> String {
    server.command(&["GET", key]).text()
}

#[test]
fn without_a_fault_everything_passes_and_is_counted() {
    let (_server, proxy) = proxied();
    assert_eq!(proxy.url(), format!("redis://{}/", proxy.address()));
    let mut client = connect(&proxy);
    assert_eq!(ask(&mut client, "PING"), "+PONG\r\n");
    assert_eq!((proxy.connections(), proxy.request_bytes()), (1, 6));
    eventually("the reply is counted", PATIENCE, || proxy.reply_bytes() == 7);
    let big = vec![b'x'; 1_000_000];
    let mut client = Client::connect(proxy.address()).unwrap();
    client.command(&[b"SET", b"big".as_slice(), &big]).unwrap();
    assert_eq!(client.command(&["GET", "big"]).unwrap(), Reply::Bulk(big));
    assert_eq!(proxy.connections(), 2);
}

#[test]
fn a_client_that_shuts_down_writing_still_gets_the_reply() {
    let (_server, proxy) = proxied();
    let mut client = connect(&proxy);
    client.write_all(b"PING\r\n").unwrap();
    client.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(rest(&mut client).0, "+PONG\r\n");
}

#[test]
fn refuse_resets_open_connections_and_refuses_new_ones() {
    let (_server, proxy) = proxied();
    let mut client = connect(&proxy);
    ask(&mut client, "PING");
    proxy.set(Fault::Refuse);
    let refused = TcpStream::connect(proxy.address()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    assert_eq!(rest(&mut client), (String::new(), true));
    proxy.set(Fault::Pass);
    assert_eq!(ask(&mut connect(&proxy), "PING"), "+PONG\r\n");
}

#[test]
fn a_black_hole_reads_requests_and_never_replies() {
    let (server, proxy) = proxied();
    let (mut inside, mut idle) = (connect(&proxy), connect(&proxy));
    ask(&mut inside, "PING");
    ask(&mut idle, "PING");
    let passed = proxy.request_bytes();
    proxy.set(Fault::BlackHole);
    let mut new = connect(&proxy);
    for client in [&mut inside, &mut new] {
        client.write_all(b"INCR hole\r\n").unwrap();
        assert!(is_silent(client));
    }
    proxy.set(Fault::Pass);
    assert_eq!(ask(&mut idle, "PING"), "+PONG\r\n", "it has lost nothing");
    for client in [&mut inside, &mut new] {
        client.write_all(b"INCR hole\r\n").unwrap();
        assert!(is_silent(client), "what has lost a request answers none");
    }
    assert_eq!(proxy.request_bytes(), passed + 6);
    assert_eq!(value(&server, "hole"), "");
}

#[test]
fn replies_in_flight_are_delayed_together() {
    let (server, proxy) = proxied();
    let mut client = connect(&proxy);
    proxy.set(Fault::Delay(DELAY));
    let since = Instant::now();
    for count in 1..=20 {
        client.write_all(b"INCR delay\r\n").unwrap();
        eventually("the server acts", PATIENCE, || value(&server, "delay") == count.to_string());
    }
    let mut heard = [0; 9 * 4 + 11 * 5];
    client.read_exact(&mut heard).unwrap();
    assert!(heard.ends_with(b":19\r\n:20\r\n"));
    assert!((DELAY..20 * DELAY).contains(&since.elapsed()), "{:?}", since.elapsed());
}

#[test]
fn one_reply_in_n_is_delayed() {
    let (_server, proxy) = proxied();
    let mut client = connect(&proxy);
    proxy.set(Fault::DelayOneIn { n: 3, delay: DELAY });
    let late: Vec<bool> = (0..6)
        .map(|_| {
            let since = Instant::now();
            assert_eq!(ask(&mut client, "PING"), "+PONG\r\n");
            since.elapsed() >= DELAY
        })
        .collect();
    assert!(late[2] && late[5], "{late:?}");
    let since = Instant::now();
    proxy.set(Fault::DelayOneIn { n: 1_000, delay: PATIENCE });
    assert_eq!(ask(&mut client, "PING"), "+PONG\r\n");
    assert!(since.elapsed() < PATIENCE);
}

#[test]
fn a_reset_in_the_middle_of_a_reply_comes_after_the_command_has_run() {
    let (server, proxy) = proxied();
    let mut client = connect(&proxy);
    proxy.set(Fault::ResetMidReply);
    client.write_all(b"INCR midst\r\n").unwrap();
    assert_eq!(rest(&mut client), (":1".to_owned(), true));
    assert_eq!(value(&server, "midst"), "1");
}

#[test]
fn a_lost_reply_is_a_reset_after_the_command_has_run() {
    let (server, proxy) = proxied();
    let mut client = connect(&proxy);
    proxy.set(Fault::LoseReply);
    client.write_all(b"INCR lost\r\n").unwrap();
    assert_eq!(rest(&mut client), (String::new(), true));
    assert_eq!(value(&server, "lost"), "1");
}

#[test]
fn a_half_closed_connection_ends_reading_and_not_writing() {
    let (server, proxy) = proxied();
    let mut inside = connect(&proxy);
    ask(&mut inside, "PING");
    proxy.set(Fault::HalfClose);
    let mut new = connect(&proxy);
    for client in [&mut inside, &mut new] {
        assert_eq!(rest(client), (String::new(), false));
        client.write_all(b"INCR half\r\n").unwrap();
    }
    eventually("both are passed on", PATIENCE, || value(&server, "half") == "2");
}

#[test]
fn a_truncated_reply_ends_with_an_orderly_close() {
    let (_server, proxy) = proxied();
    for (bytes, heard) in [(0, ""), (3, "+PO"), (7, "+PONG\r\n"), (9, "+PONG\r\n+P")] {
        proxy.set(Fault::Truncate(bytes));
        let mut client = connect(&proxy);
        client.write_all(b"PING\r\n").unwrap();
        if bytes > 7 {
            client.write_all(b"PING\r\n").unwrap();
        }
        assert_eq!(rest(&mut client), (heard.to_owned(), false), "{bytes} bytes");
    }
}

#[test]
fn a_dead_server_resets_new_connections_and_closes_open_ones() {
    let server = RedisServer::start();
    let proxy = FaultProxy::to(server.address());
    let mut client = connect(&proxy);
    ask(&mut client, "PING");
    server.kill();
    assert_eq!(rest(&mut client).0, "");
    let (heard, is_reset) = rest(&mut connect(&proxy));
    assert!(heard.is_empty() && is_reset);
    server.restart();
    assert_eq!(ask(&mut connect(&proxy), "PING"), "+PONG\r\n");
}

#[test]
fn a_dropped_proxy_closes_its_connections_and_its_port() {
    let (_server, proxy) = proxied();
    let address = proxy.address();
    let mut client = connect(&proxy);
    ask(&mut client, "PING");
    proxy.set(Fault::Delay(PATIENCE));
    client.write_all(b"PING\r\n").unwrap();
    drop(proxy);
    assert_eq!(rest(&mut client).0, "");
    assert_eq!(TcpStream::connect(address).unwrap_err().kind(), ErrorKind::ConnectionRefused);
}

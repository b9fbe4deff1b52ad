//! Unauthenticated clients: how long they may stay, how many there may be, and which connections are closed for others.

use crate::attack::begun;
use crate::auth::{of_file, with_auth};
use crate::frames::{HEADERS, headers_of, kinds};
use crate::harness::{Directory, PATIENCE, Peer, Served, eventually, run, secs, start};
use std::io::Read;
use std::time::{Duration, Instant};
use tidegate_server::config::{Config, Token};
use tidegate_server::net::Running;

/// A second of patience, one because the server counts whole ones, and two for a busy machine.
const IN_TIME: Duration = Duration::from_secs(4);
const TOKEN: &str = "0pen";
const PROBE: &str = "GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n";
/// Connections of the operator's listener.
const OPERATOR_MAX: usize = 64;

/// Needs tokens, and is patient with everything.
fn guarded(config: &mut Config) {
    let server = &mut config.server;
    (server.tokens, server.admin_token) = (vec![Token::new(TOKEN)], Some(Token::new("0perator")));
    let caps = &mut server.caps;
    (caps.first_byte, caps.request, caps.unauthenticated) = (secs(60), secs(60), secs(60));
}

/// A status line and a whole answer; nothing if it is turned away or cut off.
fn asks(peer: &mut Peer, request: &str) -> String {
    if !peer.say(request) {
        return String::new();
    }
    let status = peer.line();
    let mut length = 0;
    loop {
        let field = peer.line();
        if let Some(number) = field.strip_prefix("content-length: ") {
            length = number.parse().unwrap();
        }
        if field.is_empty() {
            break;
        }
    }
    let mut body = vec![0; length];
    let _ = Read::read_exact(&mut peer.0, &mut body);
    status
}

fn authenticated(running: &Running) -> Option<Peer> {
    let mut peer = Peer::resp(running);
    (peer.ask(&format!("AUTH {TOKEN}")) == "+OK").then_some(peer)
}

#[test]
fn health_probes_are_answered_however_many_idle_connections_exist() {
    for has_token in [true, false] {
        let running = start(|config| {
            guarded(config);
            if !has_token {
                config.server.admin_token = None;
            }
        });
        let visit = || {
            let mut peer = Peer::new(running.addresses.admin);
            assert_eq!(asks(&mut peer, PROBE), "HTTP/1.1 200 OK");
            peer
        };
        let idle: Vec<Peer> = (0..OPERATOR_MAX).map(|_| visit()).collect();
        let probes: Vec<Peer> = (0..2 * OPERATOR_MAX).map(|_| visit()).collect();
        assert_eq!(running.server.status.rejected.sum(), 0);
        drop((idle, probes));
        running.stop().unwrap();
    }
}

#[test]
fn a_connection_with_the_admin_token_is_not_closed_for_others() {
    let running = start(guarded);
    let request =
        "GET /v1/limits HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer 0perator\r\n\r\n";
    let operator = || {
        let mut peer = Peer::new(running.addresses.admin);
        (asks(&mut peer, request) == "HTTP/1.1 200 OK").then_some(peer)
    };
    let mut operators: Vec<Peer> = (0..OPERATOR_MAX).filter_map(|_| operator()).collect();
    assert_eq!(operators.len(), OPERATOR_MAX);
    let mut probe = Peer::new(running.addresses.admin);
    assert!(asks(&mut probe, PROBE).starts_with("HTTP/1.1 503"), "there is nobody to close");
    for peer in &mut operators {
        assert_eq!(asks(peer, request), "HTTP/1.1 200 OK");
    }
    drop((operators, probe));
    running.stop().unwrap();
}

#[test]
fn unauthenticated_connections_are_closed_for_authenticated_clients() {
    const MAX: usize = 40;
    let running = start(|config| {
        guarded(config);
        let caps = &mut config.server.caps;
        (caps.connections_max, caps.connections_per_address) = (MAX, Some(10 * MAX));
    });
    let at = running.addresses;
    let strangers: Vec<Peer> =
        (0..MAX).map(|number| Peer::new([at.resp, at.http, at.grpc][number % 3])).collect();
    let open = || running.server.status.connections.sum();
    eventually("all are in", PATIENCE, || open() == MAX as u64);
    let mut known: Vec<Peer> = Vec::new();
    for _ in 0..MAX {
        known.push(authenticated(&running).expect("a stranger makes room"));
        eventually("the stranger has left", PATIENCE, || open() <= MAX as u64);
    }
    assert!(authenticated(&running).is_none(), "who is known does not");
    for peer in &mut known {
        assert_eq!(peer.ask("PING"), "+PONG");
    }
    drop((strangers, known));
    running.stop().unwrap();
}

#[test]
fn unauthenticated_connections_of_one_address_get_a_quarter() {
    const MAX: u64 = 40;
    let running = start(|config| {
        guarded(config);
        config.server.caps.connections_max = 40;
    });
    let mut known: Vec<Peer> = (0..MAX / 2).filter_map(|_| authenticated(&running)).collect();
    assert_eq!(known.len(), 20, "who is known is not counted with them");
    let strangers: Vec<Peer> = (0..MAX).map(|_| Peer::resp(&running)).collect();
    let turned_away = || running.server.status.rejected.sum();
    eventually("the others are turned away", PATIENCE, || turned_away() == MAX - MAX / 4);
    assert_eq!(running.server.status.connections.sum(), MAX / 2 + MAX / 4);
    assert!(authenticated(&running).is_none(), "it is from the same address");
    drop(strangers);
    let open = || running.server.status.connections.sum();
    eventually("they have left", PATIENCE, || open() == MAX / 2);
    known.push(authenticated(&running).expect("there is room again"));
    running.stop().unwrap();
}

#[test]
fn without_tokens_one_address_has_the_configured_number_of_connections() {
    let running = start(|config| config.server.caps.connections_per_address = Some(5));
    let mut peers: Vec<Peer> = (0..5).map(|_| Peer::resp(&running)).collect();
    for peer in &mut peers {
        assert_eq!(peer.ask("PING"), "+PONG");
    }
    let said = Peer::resp(&running).line();
    assert_eq!(said, "-ERR max number of clients reached");
    peers.pop();
    eventually("there is room again", PATIENCE, || Peer::resp(&running).ask("PING") == "+PONG");
    drop(peers);
    running.stop().unwrap();
}

#[test]
fn a_client_that_does_not_authenticate_in_time_is_closed_even_if_it_is_active() {
    let running = start(|config| {
        guarded(config);
        config.server.caps.unauthenticated = secs(1);
    });
    let at = running.addresses;
    let public = "GET /openapi.json HTTP/1.1\r\nhost: localhost\r\n\r\n";
    std::thread::scope(|scope| {
        for (address, says) in [
            (at.resp, "PING\r\n"),
            (at.resp, ""),
            (at.http, public),
            (at.http, ""),
            (at.grpc, ""),
            (at.admin, PROBE),
        ] {
            scope.spawn(move || {
                let (mut peer, since) = (Peer::new(address), Instant::now());
                if says.is_empty() {
                    peer.ended_after();
                } else {
                    while !asks_on(&mut peer, says) {
                        assert!(since.elapsed() < PATIENCE, "{address:?} goes on with it");
                        std::thread::park_timeout(Duration::from_millis(100));
                    }
                }
                let took = since.elapsed();
                assert!(took < IN_TIME, "{address:?}, {says:?}: {took:?}");
                assert!(took > Duration::from_millis(900), "{address:?} is too strict: {took:?}");
            });
        }
        scope.spawn(|| {
            let mut known = authenticated(&running).expect("there is room");
            let mut asker = Peer::new(at.http);
            let check = format!(
                "POST /v1/check HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {TOKEN}\r\n\
                 content-type: application/json\r\ncontent-length: 25\r\n\r\n{{\"rule\":\"9/h\",\"key\":\"me\"}}"
            );
            assert_eq!(asks(&mut asker, &check), "HTTP/1.1 200 OK");
            std::thread::park_timeout(IN_TIME);
            assert_eq!(known.ask("PING"), "+PONG", "who is known may be idle");
            assert_eq!(asks(&mut asker, &check), "HTTP/1.1 200 OK");
        });
    });
    running.stop().unwrap();
}

/// A call for health of which the message never comes.
fn health_without_message() -> Vec<u8> {
    headers_of("/grpc.health.v1.Health/Check", 1, false)
}

#[test]
fn an_incomplete_health_check_does_not_extend_the_time_to_authenticate() {
    let running = start(|config| {
        guarded(config);
        config.server.caps.unauthenticated = secs(1);
    });
    let mut peer = begun(&running);
    peer.say(health_without_message());
    let took = peer.ended_after();
    assert!(took < IN_TIME, "{took:?}");
    running.stop().unwrap();
}

#[test]
fn an_incomplete_health_check_is_answered_in_time_and_does_not_delay_a_shutdown() {
    let running = start(|config| config.server.drain = secs(30));
    let mut peer = begun(&running);
    peer.say(health_without_message());
    let (mut heard, since) = (Vec::new(), Instant::now());
    while !kinds(&heard).contains(&HEADERS) {
        let mut piece = [0; 4_096];
        let read = peer.0.read(&mut piece).expect("it is answered");
        assert!(read > 0, "it was cut off");
        heard.extend_from_slice(&piece[..read]);
    }
    assert!(since.elapsed() < IN_TIME, "{:?}", since.elapsed());
    let mut other = begun(&running);
    other.say(health_without_message());
    let since = Instant::now();
    running.stop().unwrap();
    assert!(since.elapsed() < IN_TIME, "it keeps the server for {:?}", since.elapsed());
}

/// A server that reads what it needs to be shown from a file, and that file's directory.
fn reloadable(auth: &str) -> (Served, Directory) {
    let directory = Directory::new();
    let server = of_file(directory.write("t.toml", &with_caps(auth)), |_| ());
    let running = run(server);
    // What cannot be given to a test at its start is read from the file.
    running.server.reload().expect("the file is good");
    (running, directory)
}

fn with_caps(auth: &str) -> String {
    let caps = "connections = 40\nunauthenticated = \"1s\"\nfirst_byte = \"60s\"\n";
    format!("[server.caps]\n{caps}{}", with_auth(auth))
}

const TOKENS: &str = "tokens = [\"0pen\"]";

#[test]
fn older_connections_free_their_slot_when_they_authenticate() {
    let (running, directory) = reloadable("");
    let check = "POST /v1/check HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer 0pen\r\n\
                 content-type: application/json\r\ncontent-length: 25\r\n\r\n{\"rule\":\"9/h\",\"key\":\"me\"}";
    let mut old: Vec<Peer> = (0..10).map(|_| Peer::resp(&running)).collect();
    let mut asking: Vec<Peer> = (0..10).map(|_| Peer::new(running.addresses.http)).collect();
    for peer in &mut old {
        assert_eq!(peer.ask("PING"), "+PONG");
    }
    for peer in &mut asking {
        let status = asks(peer, check);
        assert!(status.starts_with("HTTP/1.1 ") && !status.contains("401"), "{status}");
    }
    directory.write("t.toml", &with_caps(TOKENS));
    running.server.reload().expect("the file is good");
    for peer in &mut old {
        assert_eq!(peer.ask("AUTH 0pen"), "+OK");
    }
    for peer in &mut asking {
        asks(peer, check);
    }
    // Those are twice as many as one address may have that have shown no token.
    let mut known: Vec<Peer> = Vec::new();
    for _ in 0..10 {
        known.push(authenticated(&running).expect("there is room for a new one"));
    }
    assert_eq!(running.server.status.rejected.sum(), 0);
    drop((old, asking, known));
    running.stop().unwrap();
}

#[test]
fn without_tokens_all_connections_of_an_address_are_counted() {
    let running = start(|config| config.server.caps.connections_per_address = Some(5));
    let request =
        "GET /openapi.json HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer 0pen\r\n\r\n";
    let asked = || {
        let mut peer = Peer::new(running.addresses.http);
        (asks(&mut peer, request) == "HTTP/1.1 200 OK").then_some(peer)
    };
    let peers: Vec<Peer> = (0..5).filter_map(|_| asked()).collect();
    assert_eq!(peers.len(), 5);
    assert!(asked().is_none(), "it has as many as it may");
    drop(peers);
    running.stop().unwrap();
}

#[test]
fn older_connections_need_no_token_after_tokens_are_removed() {
    let (running, directory) = reloadable(TOKENS);
    let mut peers: Vec<Peer> = (0..5).map(|_| Peer::resp(&running)).collect();
    let open = || running.server.status.connections.sum();
    eventually("they are in", PATIENCE, || open() == 5);
    directory.write("t.toml", &with_caps(""));
    running.server.reload().expect("the file is good");
    std::thread::park_timeout(IN_TIME);
    for peer in &mut peers {
        assert_eq!(peer.ask("PING"), "+PONG");
    }
    drop(peers);
    running.stop().unwrap();
}

/// Says this once more, and whether the server has ended the connection.
fn asks_on(peer: &mut Peer, says: &str) -> bool {
    if !peer.say(says) {
        return true;
    }
    let mut heard = [0; 16_384];
    match Read::read(&mut peer.0, &mut heard) {
        Ok(read) => read == 0,
        Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
    }
}

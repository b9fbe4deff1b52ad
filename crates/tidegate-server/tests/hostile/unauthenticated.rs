//! Unauthenticated clients: how long they may stay connected, how many connections they may have, and which of them the server
//! closes for authenticated clients.

use crate::attack::connect_http2;
use crate::auth::{server_of_file, with_auth};
use crate::frames::{HEADERS, frame_types, headers_of};
use crate::harness::{Directory, PATIENCE, Peer, TestServer, eventually, run, secs, start};
use std::io::Read;
use std::time::{Duration, Instant};
use tidegate_server::config::{Config, Token};
use tidegate_server::net::Running;

/// One second is the time limit, one is because the server counts whole seconds, and two are for a busy machine.
const IN_TIME: Duration = Duration::from_secs(4);
const TOKEN: &str = "0pen";
const PROBE: &str = "GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n";
/// Maximum number of connections of the admin listener.
const ADMIN_CONNECTIONS_MAX: usize = 64;

/// Sets tokens, and long time limits.
fn require_tokens(config: &mut Config) {
    let server = &mut config.server;
    (server.tokens, server.admin_token) = (vec![Token::new(TOKEN)], Some(Token::new("0perator")));
    let caps = &mut server.caps;
    (caps.first_byte, caps.request, caps.unauthenticated) = (secs(60), secs(60), secs(60));
}

/// Sends a request, reads the whole response and returns its status line. Returns an empty string if the server closes the
/// connection.
fn request_status(peer: &mut Peer, request: &str) -> String {
    if !peer.send(request) {
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

fn authenticate(running: &Running) -> Option<Peer> {
    let mut peer = Peer::resp(running);
    (peer.ask(&format!("AUTH {TOKEN}")) == "+OK").then_some(peer)
}

#[test]
fn health_probes_are_answered_however_many_idle_connections_exist() {
    for has_token in [true, false] {
        let running = start(|config| {
            require_tokens(config);
            if !has_token {
                config.server.admin_token = None;
            }
        });
        let probe_once = || {
            let mut peer = Peer::new(running.addresses.admin);
            assert_eq!(request_status(&mut peer, PROBE), "HTTP/1.1 200 OK");
            peer
        };
        let idle: Vec<Peer> = (0..ADMIN_CONNECTIONS_MAX).map(|_| probe_once()).collect();
        let probes: Vec<Peer> = (0..2 * ADMIN_CONNECTIONS_MAX).map(|_| probe_once()).collect();
        assert_eq!(running.server.status.rejected.sum(), 0);
        drop((idle, probes));
        running.stop().unwrap();
    }
}

#[test]
fn a_connection_with_the_admin_token_is_not_closed_for_others() {
    let running = start(require_tokens);
    let request =
        "GET /v1/limits HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer 0perator\r\n\r\n";
    let operator = || {
        let mut peer = Peer::new(running.addresses.admin);
        (request_status(&mut peer, request) == "HTTP/1.1 200 OK").then_some(peer)
    };
    let mut operators: Vec<Peer> = (0..ADMIN_CONNECTIONS_MAX).filter_map(|_| operator()).collect();
    assert_eq!(operators.len(), ADMIN_CONNECTIONS_MAX);
    let mut probe = Peer::new(running.addresses.admin);
    assert!(
        request_status(&mut probe, PROBE).starts_with("HTTP/1.1 503"),
        "the server closes no authenticated connection"
    );
    for peer in &mut operators {
        assert_eq!(request_status(peer, request), "HTTP/1.1 200 OK");
    }
    drop((operators, probe));
    running.stop().unwrap();
}

#[test]
fn unauthenticated_connections_are_closed_for_authenticated_clients() {
    const MAX: usize = 40;
    let running = start(|config| {
        require_tokens(config);
        let caps = &mut config.server.caps;
        (caps.connections_max, caps.connections_per_address) = (MAX, Some(10 * MAX));
    });
    let at = running.addresses;
    let unauthenticated: Vec<Peer> =
        (0..MAX).map(|number| Peer::new([at.resp, at.http, at.grpc][number % 3])).collect();
    let open = || running.server.status.connections.sum();
    eventually("all connections are accepted", PATIENCE, || open() == MAX as u64);
    let mut authenticated: Vec<Peer> = Vec::new();
    for _ in 0..MAX {
        authenticated
            .push(authenticate(&running).expect("an unauthenticated connection is closed"));
        eventually("the closed connection has ended", PATIENCE, || open() <= MAX as u64);
    }
    assert!(authenticate(&running).is_none(), "no authenticated connection is closed");
    for peer in &mut authenticated {
        assert_eq!(peer.ask("PING"), "+PONG");
    }
    drop((unauthenticated, authenticated));
    running.stop().unwrap();
}

#[test]
fn unauthenticated_connections_of_one_address_get_a_quarter() {
    const MAX: u64 = 40;
    let running = start(|config| {
        require_tokens(config);
        config.server.caps.connections_max = 40;
    });
    let mut authenticated: Vec<Peer> =
        (0..MAX / 2).filter_map(|_| authenticate(&running)).collect();
    assert_eq!(authenticated.len(), 20, "authenticated connections are counted separately");
    let unauthenticated: Vec<Peer> = (0..MAX).map(|_| Peer::resp(&running)).collect();
    let rejected = || running.server.status.rejected.sum();
    eventually("the connections over a quarter are rejected", PATIENCE, || {
        rejected() == MAX - MAX / 4
    });
    assert_eq!(running.server.status.connections.sum(), MAX / 2 + MAX / 4);
    assert!(authenticate(&running).is_none(), "the new connection is from the same address");
    drop(unauthenticated);
    let open = || running.server.status.connections.sum();
    eventually("the unauthenticated connections have ended", PATIENCE, || open() == MAX / 2);
    authenticated.push(authenticate(&running).expect("a new connection is accepted"));
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
    eventually("a new connection is accepted", PATIENCE, || {
        Peer::resp(&running).ask("PING") == "+PONG"
    });
    drop(peers);
    running.stop().unwrap();
}

#[test]
fn a_client_that_does_not_authenticate_in_time_is_closed_even_if_it_is_active() {
    let running = start(|config| {
        require_tokens(config);
        config.server.caps.unauthenticated = secs(1);
    });
    let at = running.addresses;
    let public = "GET /openapi.json HTTP/1.1\r\nhost: localhost\r\n\r\n";
    std::thread::scope(|scope| {
        for (address, request) in [
            (at.resp, "PING\r\n"),
            (at.resp, ""),
            (at.http, public),
            (at.http, ""),
            (at.grpc, ""),
            (at.admin, PROBE),
        ] {
            scope.spawn(move || {
                let (mut peer, since) = (Peer::new(address), Instant::now());
                if request.is_empty() {
                    peer.time_until_closed();
                } else {
                    while !is_closed_after(&mut peer, request) {
                        assert!(
                            since.elapsed() < PATIENCE,
                            "{address:?} keeps the connection open"
                        );
                        std::thread::park_timeout(Duration::from_millis(100));
                    }
                }
                let took = since.elapsed();
                assert!(took < IN_TIME, "{address:?}, {request:?}: {took:?}");
                assert!(took > Duration::from_millis(900), "{address:?} closed it after {took:?}");
            });
        }
        scope.spawn(|| {
            let mut authenticated = authenticate(&running).expect("the connection is accepted");
            let mut http = Peer::new(at.http);
            let check = format!(
                "POST /v1/check HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {TOKEN}\r\n\
                 content-type: application/json\r\ncontent-length: 25\r\n\r\n{{\"rule\":\"9/h\",\"key\":\"me\"}}"
            );
            assert_eq!(request_status(&mut http, &check), "HTTP/1.1 200 OK");
            std::thread::park_timeout(IN_TIME);
            assert_eq!(authenticated.ask("PING"), "+PONG", "an authenticated connection may be idle");
            assert_eq!(request_status(&mut http, &check), "HTTP/1.1 200 OK");
        });
    });
    running.stop().unwrap();
}

/// Returns a health check without its message.
fn health_without_message() -> Vec<u8> {
    headers_of("/grpc.health.v1.Health/Check", 1, false)
}

#[test]
fn an_incomplete_health_check_does_not_extend_the_time_to_authenticate() {
    let running = start(|config| {
        require_tokens(config);
        config.server.caps.unauthenticated = secs(1);
    });
    let mut peer = connect_http2(&running);
    peer.send(health_without_message());
    let took = peer.time_until_closed();
    assert!(took < IN_TIME, "{took:?}");
    running.stop().unwrap();
}

#[test]
fn an_incomplete_health_check_is_answered_in_time_and_does_not_delay_a_shutdown() {
    let running = start(|config| config.server.drain = secs(30));
    let mut peer = connect_http2(&running);
    peer.send(health_without_message());
    let (mut received, since) = (Vec::new(), Instant::now());
    while !frame_types(&received).contains(&HEADERS) {
        let mut piece = [0; 4_096];
        let read = peer.0.read(&mut piece).expect("the call is answered");
        assert!(read > 0, "the server closed the connection");
        received.extend_from_slice(&piece[..read]);
    }
    assert!(since.elapsed() < IN_TIME, "{:?}", since.elapsed());
    let mut other = connect_http2(&running);
    other.send(health_without_message());
    let since = Instant::now();
    running.stop().unwrap();
    assert!(since.elapsed() < IN_TIME, "the call delayed the shutdown for {:?}", since.elapsed());
}

/// Starts a server with this `[server.auth]` in a file, and returns it with the file's directory.
fn reloadable(auth: &str) -> (TestServer, Directory) {
    let directory = Directory::new();
    let server = server_of_file(directory.write("t.toml", &with_caps(auth)), |_| ());
    let running = run(server);
    // `server_of_file` applies only `[server.auth]`, so this reads `[server.caps]`.
    running.server.reload().expect("the file is valid");
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
    let mut resp_peers: Vec<Peer> = (0..10).map(|_| Peer::resp(&running)).collect();
    let mut http_peers: Vec<Peer> = (0..10).map(|_| Peer::new(running.addresses.http)).collect();
    for peer in &mut resp_peers {
        assert_eq!(peer.ask("PING"), "+PONG");
    }
    for peer in &mut http_peers {
        let status = request_status(peer, check);
        assert!(status.starts_with("HTTP/1.1 ") && !status.contains("401"), "{status}");
    }
    directory.write("t.toml", &with_caps(TOKENS));
    running.server.reload().expect("the file is valid");
    for peer in &mut resp_peers {
        assert_eq!(peer.ask("AUTH 0pen"), "+OK");
    }
    for peer in &mut http_peers {
        request_status(peer, check);
    }
    // The 20 authenticated connections are twice the maximum of unauthenticated ones from one address.
    let mut authenticated: Vec<Peer> = Vec::new();
    for _ in 0..10 {
        authenticated.push(authenticate(&running).expect("a new connection is accepted"));
    }
    assert_eq!(running.server.status.rejected.sum(), 0);
    drop((resp_peers, http_peers, authenticated));
    running.stop().unwrap();
}

#[test]
fn without_tokens_all_connections_of_an_address_are_counted() {
    let running = start(|config| config.server.caps.connections_per_address = Some(5));
    let request =
        "GET /openapi.json HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer 0pen\r\n\r\n";
    let connect_and_ask = || {
        let mut peer = Peer::new(running.addresses.http);
        (request_status(&mut peer, request) == "HTTP/1.1 200 OK").then_some(peer)
    };
    let peers: Vec<Peer> = (0..5).filter_map(|_| connect_and_ask()).collect();
    assert_eq!(peers.len(), 5);
    assert!(connect_and_ask().is_none(), "the address has its maximum number of connections");
    drop(peers);
    running.stop().unwrap();
}

#[test]
fn older_connections_need_no_token_after_tokens_are_removed() {
    let (running, directory) = reloadable(TOKENS);
    let mut peers: Vec<Peer> = (0..5).map(|_| Peer::resp(&running)).collect();
    let open = || running.server.status.connections.sum();
    eventually("the connections are accepted", PATIENCE, || open() == 5);
    directory.write("t.toml", &with_caps(""));
    running.server.reload().expect("the file is valid");
    std::thread::park_timeout(IN_TIME);
    for peer in &mut peers {
        assert_eq!(peer.ask("PING"), "+PONG");
    }
    drop(peers);
    running.stop().unwrap();
}

/// Sends a request once more and reads an answer. Returns whether the server has closed the connection.
fn is_closed_after(peer: &mut Peer, request: &str) -> bool {
    if !peer.send(request) {
        return true;
    }
    let mut received = [0; 16_384];
    match Read::read(&mut peer.0, &mut received) {
        Ok(read) => read == 0,
        Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
    }
}

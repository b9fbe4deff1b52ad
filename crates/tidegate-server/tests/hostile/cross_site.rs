//! T53: requests that a browser sends for a page of another site.

use crate::harness::{Directory, Peer, assert_serves, config, http, run, start, status};
use std::sync::atomic::Ordering;
use tidegate::snapshot::Snapshot;
use tidegate_server::clock::ServerClock;
use tidegate_server::config::{Config, Token, load};
use tidegate_server::net::Running;
use tidegate_server::server::Server;

fn keys(running: &Running) -> u64 {
    running.server.engine.store().throttle_stats().allowed
}

// T53
#[test]
fn a_page_executes_no_command_on_the_resp_port() {
    let running = start(|_| ());
    let command = "CL.THROTTLE victim 15 30 60\r\n";
    for head in
        ["POST / HTTP/1.1\r\n", "GET / HTTP/1.1\r\n", "OPTIONS * HTTP/1.1\r\n", "Host: x\r\n"]
    {
        let mut peer = Peer::resp(&running);
        peer.send(format!("{head}Host: localhost\r\n\r\n{command}{command}"));
        assert_eq!(peer.read_to_end(), Some(Vec::new()), "after {head}");
    }
    assert_eq!(keys(&running), 0, "the server executed a command");
    // The page sends the request line and the command in separate segments.
    let mut peer = Peer::resp(&running);
    peer.send("POST / HTTP/1.1\r\n");
    peer.send(command);
    assert_eq!(peer.read_to_end(), Some(Vec::new()));
    assert_eq!(keys(&running), 0, "the server executed a command");
    assert_serves(&running);
    running.stop().unwrap();
}

// T53
#[test]
fn the_admin_listener_refuses_other_host_names_and_other_pages() {
    let directory = Directory::new();
    let file = directory.write("tidegate.toml", "[limits.a]\nrule = \"5/s\"\n");
    let config = Config { limits: load(&file).expect("the file is valid").limits, ..config() };
    let server = Server::new(config, Some(file), ServerClock::system(), Snapshot::default());
    let running = run(server);
    let admin = running.addresses.admin;
    let get = |path: &str, host: &str| {
        let answer = http(admin, &format!("GET {path} HTTP/1.1\r\nhost: {host}"), b"");
        status(&answer).to_owned()
    };
    for path in ["/metrics", "/v1/limits", "/v1/top?limit=a", "/"] {
        assert_eq!(get(path, "evil.example:9091"), "403", "{path}");
        assert_eq!(get(path, "127.0.0.1.evil.example"), "403", "{path}");
        assert_eq!(get(path, "localhost.evil.example"), "403", "{path}");
        assert_eq!(get(path, "localhost:9091"), "200", "{path}");
    }
    let reload = |fields: &str| {
        let answer =
            http(admin, &format!("POST /v1/reload HTTP/1.1\r\nhost: localhost{fields}"), b"");
        status(&answer).to_owned()
    };
    assert_eq!(reload("\r\norigin: http://evil.example"), "403");
    assert_eq!(reload("\r\norigin: null"), "403");
    assert_eq!(reload("\r\nsec-fetch-site: cross-site"), "403");
    assert_eq!(running.server.status.reloads.load(Ordering::Relaxed), 0);
    assert_eq!(reload("\r\norigin: http://localhost"), "200");
    assert_eq!(running.server.status.reloads.load(Ordering::Relaxed), 1);
    directory.write("tidegate.toml", "[limits.a]\nrule = \"5/fortnight\"\n");
    let answer = http(admin, "POST /v1/reload HTTP/1.1\r\nhost: localhost", b"");
    assert_eq!(status(&answer), "422", "a bad file");
    assert!(answer.contains("tidegate.toml:2:"), "the error names the line: {answer}");
    assert_eq!(running.server.config().limits.len(), 1, "the old one stays");
    running.stop().unwrap();
}

// T53
#[test]
fn requests_without_a_cors_preflight_are_not_read() {
    let running = start(|_| ());
    let body = br#"{"rule": "5/min", "key": "victim"}"#;
    for kind in
        ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"]
    {
        let head = format!("POST /v1/check HTTP/1.1\r\nhost: localhost\r\ncontent-type: {kind}");
        assert_eq!(status(&http(running.addresses.http, &head, body)), "415", "{kind}");
        // A browser sends the page's origin, and the server checks that first.
        let page = format!("{head}\r\norigin: https://evil.example\r\nsec-fetch-site: cross-site");
        assert_eq!(status(&http(running.addresses.http, &page, body)), "403", "{kind}");
    }
    let head = "POST /v1/check HTTP/1.1\r\nhost: localhost";
    assert_eq!(status(&http(running.addresses.http, head, body)), "415", "no content type");
    assert!(running.server.engine.limits().unnamed().is_empty(), "the server created a limit");
    let head = "POST /v1/check HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json";
    assert_eq!(status(&http(running.addresses.http, head, body)), "200");
    running.stop().unwrap();
}

// T53
#[test]
fn a_page_cannot_use_up_a_limit() {
    let directory = Directory::new();
    let file = directory.write("tidegate.toml", "[limits.login]\nrule = \"5/min\"\n");
    let limits = load(&file).expect("the file is valid").limits;
    let running = start(|config| config.limits = limits);
    let ask =
        |head: &str, body: &[u8]| status(&http(running.addresses.http, head, body)).to_owned();
    // The request that an image on a page sends.
    let authorize = "GET /v1/authorize?limit=login&key=victim&cost=5 HTTP/1.1\r\nhost: localhost";
    for site in ["cross-site", "same-site"] {
        assert_eq!(ask(&format!("{authorize}\r\nsec-fetch-site: {site}"), b""), "403", "{site}");
    }
    // A page whose host name resolves to this server is same-origin there, and may send JSON.
    let reset =
        "POST /v1/reset HTTP/1.1\r\nhost: evil.example:8080\r\ncontent-type: application/json";
    let body = br#"{"limit": "login", "key": "victim"}"#;
    for origin in ["http://evil.example:8080", "http://localhost.evil.example", "null"] {
        assert_eq!(ask(&format!("{reset}\r\norigin: {origin}"), body), "403", "{origin}");
    }
    // A proxy forwards the header fields of its client's browser, and names the original request.
    let proxied = format!("{authorize}\r\nsec-fetch-site: cross-site\r\nx-original-uri: /shop");
    assert_eq!(ask(&proxied, b""), "204", "no page has used up the limit");
    assert_eq!(ask(&format!("{authorize}\r\nsec-fetch-site: none"), b""), "429");
    assert_eq!(ask(&format!("{reset}\r\norigin: http://localhost:8080"), body), "200");
    assert_eq!(ask(authorize, b""), "204");
    running.stop().unwrap();
}

// T53
#[test]
fn a_page_with_a_rebound_name_can_read_and_charge_nothing() {
    let directory = Directory::new();
    let file = directory.write("tidegate.toml", "[limits.login]\nrule = \"1/min\"\n");
    let limits = load(&file).expect("the file is valid").limits;
    let start = |change: fn(&mut Config)| {
        let limits = limits.clone();
        start(|config| {
            config.limits = limits;
            config.server.hosts = vec!["tidegate.internal".to_owned()];
            change(config);
        })
    };
    // Such a page is same-origin, so it can set all fields, and the browser sends no `Origin`.
    let page = "\r\nsec-fetch-site: same-origin\r\nx-original-uri: /shop\r\nx-original-method: GET";
    let ask = |running: &Running, path: &str, host: &str, fields: &str| {
        let head = format!("GET {path} HTTP/1.1\r\nhost: {host}{page}{fields}");
        status(&http(running.addresses.http, &head, b"")).to_owned()
    };
    let running = start(|_| ());
    for path in ["/v1/authorize", "/v1/authorize?from=x-original", "/v1/explain"] {
        for host in
            ["evil.example:8080", "127.0.0.1.evil.example", "localhost.evil.example", "10.0.0.1"]
        {
            assert_eq!(ask(&running, path, host, ""), "403", "{path} {host}");
        }
    }
    let own = [
        "localhost",
        "LOCALHOST:8080",
        "127.0.0.1:8080",
        "127.1.2.3",
        "[::1]:80",
        "tidegate.internal:80",
        // The `Host` that nginx sends for an `upstream` of that name.
        "tidegate",
    ];
    for host in own {
        assert_eq!(ask(&running, "/v1/explain", host, ""), "200", "{host}");
    }
    assert_eq!(
        ask(&running, "/v1/authorize", "localhost", ""),
        "204",
        "no page has used up the limit"
    );
    running.stop().unwrap();
    let running = start(|config| config.server.tokens = vec![Token::new("one")]);
    assert_eq!(ask(&running, "/v1/authorize", "evil.example", ""), "401", "a page has no token");
    let token = "\r\nauthorization: Bearer one";
    assert_eq!(
        ask(&running, "/v1/authorize", "app.example.org", token),
        "204",
        "a client with a token may use any host name"
    );
    running.stop().unwrap();
}

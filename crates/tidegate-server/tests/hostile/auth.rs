//! Authentication on every listener, and listeners without a token.

use crate::harness::{Directory, Peer, config, http, run, start, status};
use crate::tls::tls;
use bytes::Bytes;
use http_body_util::Full;
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tidegate::snapshot::Snapshot;
use tidegate_server::clock::ServerClock;
use tidegate_server::config::{self as read, Token};
use tidegate_server::net::{self, Running};
use tidegate_server::protocol::grpc::PATH;
use tidegate_server::server::Server;

const FREE: &str = "[limits.a]\nrule = \"5/s\"\n";

fn check(running: &Running, fields: &str) -> String {
    let head =
        format!("POST /v1/check HTTP/1.1\r\nhost: x\r\ncontent-type: application/json{fields}");
    let answer = http(running.addresses.http, &head, br#"{"rule": "5/min", "key": "k"}"#);
    status(&answer).to_owned()
}

/// Returns the gRPC status of a call with this token.
fn call(running: &Running, token: Option<&str>) -> String {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let address = running.addresses.grpc.unwrap();
        let stream = TokioIo::new(tokio::net::TcpStream::connect(address).await.unwrap());
        let (mut sender, connection) =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), stream).await.unwrap();
        tokio::spawn(connection);
        let mut request = ::http::Request::post(format!("http://tests{PATH}"))
            .header("content-type", "application/grpc");
        if let Some(token) = token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let body = Full::new(Bytes::from_static(&[0, 0, 0, 0, 0]));
        let answer = sender.send_request(request.body(body).unwrap()).await.unwrap();
        let status = answer.headers().get("grpc-status").expect("the call is refused immediately");
        status.to_str().unwrap().to_owned()
    })
}

#[test]
fn no_listener_answers_without_a_token() {
    let running = start(|config| {
        config.server.tokens = vec![Token::new("one"), Token::new("two")];
        config.server.admin_token = Some(Token::new("operator"));
    });
    let mut peer = Peer::resp(&running);
    for line in
        ["PING", "CL.THROTTLE k 1 1 1", "TIDE.CHECK 5/s k", "MULTI", "EXEC", "DEL k", "INFO"]
    {
        assert!(peer.ask(line).starts_with("-NOAUTH"), "{line}");
    }
    for wrong in ["", "one ", "ONE", "onee", "operator"] {
        assert!(peer.ask(&format!("AUTH \"{wrong}\"")).starts_with("-WRONGPASS"), "{wrong}");
    }
    assert_eq!(peer.ask("AUTH default two"), "+OK");
    assert_eq!(peer.ask("PING"), "+PONG");
    assert_eq!(peer.ask("RESET"), "+RESET");
    assert!(peer.ask("PING").starts_with("-NOAUTH"), "RESET ends the authentication");
    for (fields, expected) in [
        ("", "401"),
        ("\r\nauthorization: Bearer on", "401"),
        ("\r\nauthorization: Bearer operator", "401"),
        ("\r\nauthorization: Basic one", "401"),
        ("\r\nauthorization: Bearer one", "200"),
        ("\r\nx-api-key: two", "200"),
    ] {
        assert_eq!(check(&running, fields), expected, "{fields}");
    }
    // 16 is UNAUTHENTICATED; 3 is INVALID_ARGUMENT, the answer to an authenticated client, because the request is empty.
    assert_eq!((call(&running, None), call(&running, Some("three"))), ("16".into(), "16".into()));
    assert_eq!(call(&running, Some("one")), "3");
    let get = |path: &str, fields: &str| {
        let head = format!("GET {path} HTTP/1.1\r\nhost: localhost{fields}");
        status(&http(running.addresses.admin, &head, b"")).to_owned()
    };
    for path in ["/metrics", "/v1/limits", "/v1/top?limit=a"] {
        assert_eq!(get(path, ""), "401", "{path}");
        assert_eq!(get(path, "\r\nauthorization: Bearer one"), "401", "{path}");
    }
    assert_eq!(get("/metrics", "\r\nauthorization: Bearer operator"), "200");
    let wrong = &running.server.status.wrong_tokens;
    let wrong = [&wrong.resp, &wrong.http, &wrong.grpc, &wrong.admin];
    assert_eq!(
        wrong.map(|number| number.load(Ordering::Relaxed)),
        [5, 2, 1, 3],
        "the server counts all wrong tokens"
    );
    running.stop().unwrap();
}

#[test]
fn a_connection_is_closed_after_eight_wrong_tokens() {
    let running = start(|config| config.server.tokens = vec![Token::new("hush")]);
    let mut one_by_one = Peer::resp(&running);
    for guess in 0..7 {
        assert!(one_by_one.ask(&format!("AUTH {guess}")).starts_with("-WRONGPASS"), "{guess}");
    }
    assert!(one_by_one.ask("HELLO 3 AUTH default 7").starts_with("-WRONGPASS"));
    assert_eq!(
        one_by_one.read_to_end(),
        Some(Vec::new()),
        "the eighth wrong token closed the connection"
    );
    let mut at_once = Peer::resp(&running);
    at_once.send("AUTH guess\r\n".repeat(100) + "AUTH hush\r\n");
    let received = at_once.read_to_end().expect("the server closes the connection");
    assert_eq!(received.iter().filter(|byte| **byte == b'\n').count(), 8, "{received:?}");
    assert_eq!(Peer::resp(&running).ask("AUTH hush"), "+OK", "a client with the token is accepted");
    assert_eq!(running.server.status.wrong_tokens.resp.load(Ordering::Relaxed), 16);
    running.stop().unwrap();
}

pub(crate) fn server_of_file(file: PathBuf, change: impl FnOnce(&mut read::Config)) -> Arc<Server> {
    let mut loaded = config();
    let (from, limits) = (read::load(&file).expect("the file is valid"), Vec::new());
    (loaded.server.tokens, loaded.server.admin_token) =
        (from.server.tokens, from.server.admin_token);
    loaded.limits = limits;
    change(&mut loaded);
    Server::new(loaded, Some(file), ServerClock::system(), Snapshot::default())
}

pub(crate) fn with_auth(auth: &str) -> String {
    format!("[server.auth]\n{auth}\n{FREE}")
}

#[test]
fn a_removed_token_is_no_longer_accepted() {
    let directory = Directory::new();
    let file = directory.write("t.toml", &with_auth("tokens = [\"old\"]\nadmin_token = \"was\""));
    let running = run(server_of_file(file, |_| ()));
    let mut before = Peer::resp(&running);
    assert_eq!(before.ask("AUTH old"), "+OK");
    directory.write("t.toml", &with_auth("tokens = [\"new\"]\nadmin_token = \"is\""));
    running.server.reload().expect("the file is valid");
    let mut after = Peer::resp(&running);
    assert!(after.ask("AUTH old").starts_with("-WRONGPASS"));
    assert_eq!(after.ask("AUTH new"), "+OK");
    assert!(
        before.ask("PING").starts_with("-NOAUTH"),
        "a session with the removed token is no longer authenticated"
    );
    assert_eq!(before.ask("AUTH new"), "+OK");
    assert_eq!(before.ask("PING"), "+PONG");
    assert_eq!(check(&running, "\r\nauthorization: Bearer old"), "401");
    assert_eq!(check(&running, "\r\nauthorization: Bearer new"), "200");
    assert_eq!(
        (call(&running, Some("old")), call(&running, Some("new"))),
        ("16".into(), "3".into())
    );
    for (token, expected) in [("was", "401"), ("is", "200")] {
        let head =
            format!("GET /metrics HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {token}");
        assert_eq!(status(&http(running.addresses.admin, &head, b"")), expected, "{token}");
    }
    running.stop().unwrap();
}

/// Starts a server with `auth[0]` in `[server.auth]` and sends it the lines `first`. Then reloads with `auth[1]`, and returns
/// the answers to the lines `second` on the same connection.
fn after_reload(auth: [&str; 2], first: &[&str], second: &[&str]) -> Vec<String> {
    let directory = Directory::new();
    let file = directory.write("t.toml", &with_auth(auth[0]));
    let running = run(server_of_file(file, |_| ()));
    let mut peer = Peer::resp(&running);
    for line in first {
        assert!(peer.ask(line).starts_with('+'), "{line}");
    }
    directory.write("t.toml", &with_auth(auth[1]));
    running.server.reload().expect("the file is valid");
    peer.send(second.join("\r\n") + "\r\n");
    let received = second.iter().map(|_| peer.line()).collect();
    running.stop().unwrap();
    received
}

#[test]
fn a_reload_closes_only_sessions_with_removed_tokens() {
    const NOAUTH: &str = "-NOAUTH Authentication required.";
    let old = r#"tokens = ["one", "two"]"#;
    let rotated = r#"tokens = ["two", "three"]"#;
    let ping = &["PING"];
    assert_eq!(after_reload([old, rotated], &["AUTH two"], ping), ["+PONG"]);
    assert_eq!(after_reload([old, rotated], &["AUTH one"], &["PING", "PING"]), [NOAUTH; 2]);
    assert_eq!(
        after_reload([old, ""], &["AUTH one"], ping),
        ["+PONG"],
        "no client needs a token now"
    );
    assert_eq!(
        after_reload(["", old], &["PING"], ping),
        [NOAUTH],
        "every client needs a token now"
    );
    let reset = &["AUTH two", "RESET"];
    assert_eq!(
        after_reload([old, rotated], reset, ping),
        [NOAUTH],
        "RESET removed the authentication before the reload"
    );
    // The transaction that the session began is gone, and does not prevent authenticating again.
    let transaction = &["AUTH one", "MULTI", "PING"];
    let after = &["EXEC", "AUTH three", "EXEC", "PING"];
    let received = after_reload([old, rotated], transaction, after);
    assert_eq!(received, [NOAUTH, "+OK", "-ERR EXEC without MULTI", "+PONG"]);
}

const EVERYWHERE: Option<SocketAddr> =
    Some(SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0)));

#[test]
fn a_reload_reads_token_files_again() {
    let directory = Directory::new();
    directory.write("tokens", "# laptop\none\n\ntwo\n");
    directory.write("admin", "was\n");
    let text = with_auth("tokens_file = \"tokens\"\nadmin_token_file = \"admin\"");
    let running = run(server_of_file(directory.write("t.toml", &text), |_| ()));
    let operator = |token: &str| {
        let head =
            format!("GET /metrics HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {token}");
        status(&http(running.addresses.admin, &head, b"")).to_owned()
    };
    let client = |token: &str| check(&running, &format!("\r\nauthorization: Bearer {token}"));
    assert_eq!(
        [client("one"), client("two"), client("# laptop"), operator("was")],
        ["200", "200", "401", "200"]
    );
    directory.write("tokens", "three\n# one\n");
    directory.write("admin", "is\n");
    running.server.reload().expect("the files are valid");
    assert_eq!(
        [client("one"), client("three"), operator("was"), operator("is")],
        ["401", "200", "401", "200"]
    );
    directory.write("tokens", "four # of Ann\n");
    directory.write("admin", "other\n");
    let refused = running.server.reload().expect_err("the file has no valid token").to_string();
    assert!(
        refused.contains("tokens has an invalid token in line 1") && !refused.contains("Ann"),
        "{refused}"
    );
    assert_eq!(
        [client("three"), operator("is")],
        ["200", "200"],
        "a failed reload changes no token"
    );
    running.stop().unwrap();
}

#[test]
fn a_reload_that_removes_all_tokens_does_not_open_the_server() {
    let directory = Directory::new();
    let file = directory.write("t.toml", &with_auth("tokens = [\"one\"]"));
    let running = run(server_of_file(file, |config| config.server.resp = EVERYWHERE));
    let at = SocketAddr::from(([127, 0, 0, 1], running.addresses.resp.unwrap().port()));
    directory.write("t.toml", FREE);
    let refused =
        running.server.reload().expect_err("the server would accept every client").to_string();
    assert!(refused.contains("`tokens`") && refused.contains("--insecure"), "{refused}");
    let mut peer = Peer::new(Some(at));
    assert!(peer.ask("PING").starts_with("-NOAUTH"));
    assert_eq!(peer.ask("AUTH one"), "+OK", "the old configuration is still active");
    assert!(running.server.engine.limits().named().is_empty(), "no part of the new file is active");
    running.stop().unwrap();
}

#[test]
fn listening_beyond_loopback_without_a_token_must_be_configured() {
    let refusal = |change: &dyn Fn(&mut read::Config)| {
        let mut config = config();
        change(&mut config);
        let server = Server::new(config, None, ServerClock::system(), Snapshot::default());
        net::start(server).map(Running::stop).err().map(|error| error.to_string())
    };
    for (key, refused) in [
        ("tokens", refusal(&|config| config.server.resp = EVERYWHERE)),
        ("tokens", refusal(&|config| config.server.http = EVERYWHERE)),
        ("tokens", refusal(&|config| config.server.grpc = EVERYWHERE)),
        ("admin_token", refusal(&|config| config.server.admin = EVERYWHERE)),
        (
            "tokens",
            refusal(&|config| {
                // TLS without client certificates authenticates no client.
                config.server.resp = EVERYWHERE;
                config.server.tls = Some(tls(false));
            }),
        ),
        (
            "tokens",
            refusal(&|config| {
                config.server.resp = EVERYWHERE;
                config.server.admin_tls = Some(tls(true));
            }),
        ),
        (
            "admin_token",
            refusal(&|config| {
                config.server.admin = EVERYWHERE;
                config.server.tls = Some(tls(true));
            }),
        ),
    ] {
        let refused = refused.expect("the server does not listen");
        let remedies = [key, "[server.auth]", "`client_ca`", "127.0.0.1", "--insecure"];
        assert!(remedies.iter().all(|word| refused.contains(word)), "{refused}");
    }
    let with_token = refusal(&|config| {
        config.server.resp = EVERYWHERE;
        config.server.tokens = vec![Token::new("one")];
    });
    let insecure = refusal(&|config| {
        config.server.resp = EVERYWHERE;
        config.server.is_insecure = true;
    });
    assert_eq!((with_token, insecure), (None, None));
}

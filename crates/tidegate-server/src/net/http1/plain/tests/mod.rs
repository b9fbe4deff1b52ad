//! Plain requests are answered as hyper answers them, in whatever pieces they arrive.

mod waits;

use super::head::FIELDS_MAX;
use super::*;
use crate::config::Caps;
use crate::net::Wire;
use crate::net::deadlines::Connections;
use crate::protocol::http::BODY_BYTES_MAX;
use crate::protocol::http::tests::{Harness, PEER};
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use proptest::prelude::*;
use tidegate::Span;
use tokio::io::{DuplexStream, duplex};

fn monitored<S>(stream: S) -> MonitoredStream<S> {
    MonitoredStream::http1(stream, Connections::default().add(Wire::Http, &Caps::default()).1)
}

/// Sends the pieces and returns the answers until the connection ends, without their dates.
async fn plain_answers(harness: &Harness, pieces: &[&[u8]]) -> String {
    let (mut client, serving, _open) = connect(harness);
    for piece in pieces {
        client.write_all(piece).await.unwrap();
        for _ in 0..4 {
            tokio::task::yield_now().await;
        }
    }
    read_rest(client, serving).await
}

/// Returns hyper's answers to the same input.
async fn hyper_answers(harness: &Harness, input: &[u8]) -> String {
    let (mut client, server) = duplex(1 << 20);
    let service = http_service(Arc::clone(&harness.server), PEER, |_: &_| ());
    let serving = tokio::spawn(async move {
        let mut http = http1::Builder::new();
        http.half_close(true).serve_connection(TokioIo::new(server), service).await
    });
    client.write_all(input).await.unwrap();
    read_rest(client, serving).await
}

async fn read_rest<E: std::fmt::Debug>(
    mut client: DuplexStream,
    serving: tokio::task::JoinHandle<Result<(), E>>,
) -> String {
    client.shutdown().await.unwrap();
    let mut answers = Vec::new();
    client.read_to_end(&mut answers).await.unwrap();
    serving.await.unwrap().unwrap();
    let answers = String::from_utf8(answers).unwrap();
    let is_date = |line: &&str| line.starts_with("date: ") && line.ends_with(" GMT\r\n");
    let dates = answers.split_inclusive("\r\n").filter(is_date).count();
    assert_eq!(dates, answers.matches("HTTP/1.1 ").count(), "{answers}");
    let answers: String = answers.split_inclusive("\r\n").filter(|line| !is_date(line)).collect();
    without_lease(&answers)
}

/// Removes leases, whose ids are random.
fn without_lease(answers: &str) -> String {
    match answers.split_once("\"lease\":\"") {
        Some((before, after)) => format!("{before}{}", without_lease(&after[32..])),
        None => answers.to_owned(),
    }
}

/// Limits that wait, that have a fallback response, and that answer without a body.
const CONFIG: &str = r#"
[limits.api]
rule = "10/s"
[limits.pool]
rule = "concurrency 2 lease 30s"
[limits.shy]
rule = "1/min"
mode = "shadow"
[limits.shop]
rule = "1/min"
when = { path = "/shop" }
fallback = { status = 202, content_type = "text/html", body = "<p>Please wait.</p>" }
[limits.slow]
rule = "10/s queue capacity 50"
when = { path = "/slow" }
"#;

fn harness() -> Harness {
    Harness::with(crate::config::read(CONFIG, "tidegate.toml").unwrap())
}

fn authorize(path: &str) -> String {
    get("/v1/authorize", &format!("X-Original-URI: {path}\r\n"))
}

/// Returns a connection, the task that serves it, and the sender that shuts the server down.
fn connect(
    harness: &Harness,
) -> (DuplexStream, tokio::task::JoinHandle<io::Result<()>>, watch::Sender<bool>) {
    let (client, server) = duplex(1 << 20);
    let (open, closing) = watch::channel(false);
    let shared = Arc::clone(&harness.server);
    let serving =
        tokio::spawn(async move { serve_plain(monitored(server), &shared, PEER, closing).await });
    (client, serving, open)
}

/// Reads the head of the next answer.
async fn read_head(client: &mut DuplexStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(client.read_u8().await.unwrap());
    }
    String::from_utf8(head).unwrap()
}

fn post(path: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
         Content-Length: {length}\r\n\r\n{body}"
    )
}

fn check(key: &str) -> String {
    post("/v1/check", &format!(r#"{{"limit":"api","key":"{key}"}}"#))
}

fn get(path: &str, fields: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n")
}

/// Returns requests of every kind, which are answered with answers of every kind.
fn conversation() -> Vec<String> {
    let checks = r#"{"checks":[{"limit":"api","key":"a"},{"rule":"2/min","key":"b","cost":3}]}"#;
    let mut requests = vec![check("alice"); 11];
    requests.extend([
        post("/v1/check", checks),
        post("/v1/check?headers=legacy", r#"{"limit":"shy","key":"a"}"#),
        post("/v1/check", r#"{"limit":"nobody","key":"a"}"#),
        post("/v1/check", "{"),
        post("/v1/check", ""),
        post("/v1/peek", r#"{"limit":"api","key":"alice"}"#),
        post("/v1/reset", r#"{"limit":"api","key":"alice"}"#),
        post("/v1/refund", r#"{"limit":"api","key":"alice"}"#),
        post("/v1/acquire", r#"{"limit":"pool","key":"a"}"#),
        post(
            "/v1/release",
            r#"{"limit":"pool","key":"a","lease":"00000000000000000000000000000000"}"#,
        ),
        post("/v1/explain", r#"{"path":"/shop"}"#),
        post("/v1/nothing", "{}"),
        get("/v1/check", ""),
        get("/v1/explain", "X-Original-URI: /shop\r\n"),
        get("/openapi.json", ""),
        authorize("/shop"),
        authorize("/shop"),
        authorize("/slow"),
        authorize("/shop").replace("authorize", "authorize?deny=499"),
        get("/v1/authorize", "X-Original-URI: /a?b=c\r\nConnection: Keep-Alive\r\n"),
        get("/", "Accept: */*\r\nUser-Agent: x\r\n"),
        get("/", "Host: other\r\n"),
        "GET / HTTP/1.1\r\n\r\n".to_owned(),
        "GET / HTTP/1.1\nHost: bare\n\n".to_owned(),
        check("alice").replace("application/json", "text/plain"),
    ]);
    requests
}

#[tokio::test]
async fn the_answers_equal_hypers_byte_by_byte() {
    let (plain, hyper) = (harness(), harness());
    for request in conversation() {
        assert!(matches!(head::parse(request.as_bytes()), Parsed::Plain(..)), "{request}");
        let answers = plain_answers(&plain, &[request.as_bytes()]).await;
        assert_eq!(answers, hyper_answers(&hyper, request.as_bytes()).await, "{request}");
    }
}

#[test]
fn every_route_is_in_the_conversation() {
    let request = conversation().concat();
    for (path, method, _) in crate::protocol::http::ROUTES {
        let asked = [" ", "?"].map(|end| request.contains(&format!("{method} {path}{end}")));
        assert!(asked.contains(&true), "{method} {path}");
    }
}

#[tokio::test]
async fn a_token_is_needed_without_hyper_too() {
    let (plain, hyper) = (Harness::with_token("secret"), Harness::with_token("secret"));
    let known = check("a").replace("Host:", "Authorization: Bearer secret\r\nHost:");
    for (request, status) in
        [(check("a"), "401"), (known.replace("secret", "x"), "401"), (known, "200")]
    {
        let answers = plain_answers(&plain, &[request.as_bytes()]).await;
        assert!(answers.starts_with(&format!("HTTP/1.1 {status} ")), "{answers}");
        assert_eq!(answers, hyper_answers(&hyper, request.as_bytes()).await, "{request}");
    }
}

#[test]
fn unusual_requests_are_left_to_hyper() {
    let body = r#"{"limit":"api","key":"a"}"#;
    let with =
        |field: &str| post("/v1/check", body).replacen("\r\n", &format!("\r\n{field}\r\n"), 1);
    let of = |from: &str, to: &str| post("/v1/check", body).replace(from, to);
    for request in [
        with("Transfer-Encoding: chunked"),
        with("Expect: 100-continue"),
        with("Upgrade: websocket"),
        with("Connection: close"),
        with("Connection: keep-alive, Upgrade"),
        with("Content-Length: 25"),
        with(&"X: y\r\n".repeat(FIELDS_MAX)),
        of("Content-Length: 25", "Content-Length: +25"),
        of("Content-Length: 25", "Content-Length: "),
        of("Content-Length: 25", "Content-Length: 65537"),
        of("Content-Length: 25", "Content-Length: 99999999999999999999999"),
        of("Content-Length: 25", "Content-Length: 25, 25"),
        of("Content-Length: 25\r\n", ""),
        of("HTTP/1.1", "HTTP/1.0"),
        of("HTTP/1.1", "HTTP/2.0"),
        of("POST", "PUT"),
        of("POST", "HEAD"),
        of("POST", "post"),
        of("POST", "GET"),
        of("Host:", "Host :"),
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_owned(),
        "\u{16}\u{3}\u{1}".to_owned(),
    ] {
        assert!(matches!(head::parse(request.as_bytes()), Parsed::NotPlain), "{request}");
    }
}

#[tokio::test]
async fn hyper_takes_over_at_the_first_request_that_is_not_plain() {
    let chunked = "POST /v1/check HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n\
                   Transfer-Encoding: chunked\r\n\r\n19\r\n{\"limit\":\"api\",\"key\":\"a\"}\r\n0\r\n\r\n";
    let request = format!("{}{chunked}{}{chunked}", check("a"), check("a"));
    let answers = plain_answers(&Harness::new(), &[request.as_bytes()]).await;
    for remaining in 6..=9 {
        assert!(answers.contains(&format!("\"remaining\":{remaining},")), "{answers}");
    }
}

#[tokio::test]
async fn the_maximum_length_of_a_body_is_the_same_as_with_hyper() {
    let (plain, hyper) = (Harness::new(), Harness::new());
    for (length, status) in [(BODY_BYTES_MAX, "400"), (BODY_BYTES_MAX + 1, "413")] {
        let request = post("/v1/check", &"x".repeat(length));
        let answers = plain_answers(&plain, &[request.as_bytes()]).await;
        assert!(answers.starts_with(&format!("HTTP/1.1 {status} ")), "{answers}");
        let from_hyper = hyper_answers(&hyper, request.as_bytes()).await;
        assert_eq!(answers, from_hyper);
    }
}

#[tokio::test]
async fn shutdown_closes_an_idle_connection_and_marks_the_last_answer_of_a_busy_one() {
    let harness = Harness::new();
    let (mut client, serving, open) = connect(&harness);
    let request = check("a");
    client.write_all(&request.as_bytes()[..20]).await.unwrap();
    tokio::task::yield_now().await;
    open.send_replace(true);
    tokio::task::yield_now().await;
    client.write_all(&request.as_bytes()[20..]).await.unwrap();
    let mut answers = String::new();
    client.read_to_string(&mut answers).await.unwrap();
    assert!(answers.contains("200 OK") && answers.contains("connection: close\r\n"), "{answers}");
    serving.await.unwrap().unwrap();

    let (mut idle, server) = duplex(1 << 20);
    let closing = open.subscribe();
    serve_plain(monitored(server), &harness.server, PEER, closing).await.unwrap();
    assert_eq!(idle.read(&mut [0]).await.unwrap(), 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn the_answers_do_not_depend_on_how_the_input_is_cut(cuts in prop::collection::vec(0_usize..6_000, 0..12)) {
        let request = conversation().concat();
        let mut cuts: Vec<usize> = cuts.into_iter().filter(|cut| *cut < request.len()).collect();
        cuts.sort_unstable();
        let mut from = 0;
        let mut pieces: Vec<&[u8]> = Vec::new();
        for cut in cuts.into_iter().chain([request.len()]) {
            pieces.push(&request.as_bytes()[from..cut]);
            from = cut;
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (in_pieces, whole) = runtime.block_on(async {
            let whole = hyper_answers(&harness(), request.as_bytes()).await;
            (plain_answers(&harness(), &pieces).await, whole)
        });
        prop_assert_eq!(in_pieces, whole);
    }
}

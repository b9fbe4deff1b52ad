//! Plain requests are answered as hyper answers them, in whatever pieces they come.

mod waits;

use super::head::FIELDS_MAX;
use super::*;
use crate::config::Caps;
use crate::http::BODY_BYTES_MAX;
use crate::http::tests::{Bench, PEER};
use crate::listen::Wire;
use crate::listen::activity::Peers;
use crate::listen::wakeful::Wakeful;
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use proptest::prelude::*;
use tidegate::Span;
use tokio::io::{DuplexStream, duplex};

fn watched<S>(stream: S) -> Watched<S> {
    let peers = Peers::new(Arc::new(Wakeful::new(Span::ZERO)));
    Watched::http1(stream, peers.enter(Wire::Http, &Caps::default()).1)
}

/// What comes back for these pieces until the connection ends, without what time it is.
async fn heard(bench: &Bench, pieces: &[&[u8]]) -> String {
    let (mut client, serving, _open) = connect(bench);
    for piece in pieces {
        client.write_all(piece).await.unwrap();
        for _ in 0..4 {
            tokio::task::yield_now().await;
        }
    }
    rest(client, serving).await
}

/// The same from hyper.
async fn heard_of_hyper(bench: &Bench, said: &[u8]) -> String {
    let (mut client, server) = duplex(1 << 20);
    let service = http_service(Arc::clone(&bench.server), PEER, |_: &_| ());
    let serving = tokio::spawn(async move {
        let mut http = http1::Builder::new();
        http.half_close(true).serve_connection(TokioIo::new(server), service).await
    });
    client.write_all(said).await.unwrap();
    rest(client, serving).await
}

async fn rest<E: std::fmt::Debug>(
    mut client: DuplexStream,
    serving: tokio::task::JoinHandle<Result<(), E>>,
) -> String {
    client.shutdown().await.unwrap();
    let mut heard = Vec::new();
    client.read_to_end(&mut heard).await.unwrap();
    serving.await.unwrap().unwrap();
    let heard = String::from_utf8(heard).unwrap();
    let is_date = |line: &&str| line.starts_with("date: ") && line.ends_with(" GMT\r\n");
    let dates = heard.split_inclusive("\r\n").filter(is_date).count();
    assert_eq!(dates, heard.matches("HTTP/1.1 ").count(), "{heard}");
    let heard: String = heard.split_inclusive("\r\n").filter(|line| !is_date(line)).collect();
    without_lease(&heard)
}

/// A lease has a name that nobody can guess.
fn without_lease(heard: &str) -> String {
    match heard.split_once("\"lease\":\"") {
        Some((before, after)) => format!("{before}{}", without_lease(&after[32..])),
        None => heard.to_owned(),
    }
}

/// What waits, what has another answer for who is denied, and what answers without a body.
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

fn bench() -> Bench {
    Bench::with(crate::config::read(CONFIG, "tidegate.toml").unwrap())
}

fn authorize(path: &str) -> String {
    get("/v1/authorize", &format!("X-Original-URI: {path}\r\n"))
}

/// A connection, and who serves it until it is told to go.
fn connect(
    bench: &Bench,
) -> (DuplexStream, tokio::task::JoinHandle<io::Result<()>>, watch::Sender<bool>) {
    let (client, server) = duplex(1 << 20);
    let (open, closing) = watch::channel(false);
    let shared = Arc::clone(&bench.server);
    let serving = tokio::spawn(async move { serve(watched(server), &shared, PEER, closing).await });
    (client, serving, open)
}

/// The head of the next answer.
async fn answer_of(client: &mut DuplexStream) -> String {
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

/// One of every kind that a caller sends, and that is answered with one of every kind of answer.
fn conversation() -> Vec<String> {
    let checks = r#"{"checks":[{"limit":"api","key":"a"},{"rule":"2/min","key":"b","cost":3}]}"#;
    let mut said = vec![check("alice"); 11];
    said.extend([
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
    said
}

#[tokio::test]
async fn the_bytes_are_those_that_hyper_answers() {
    let (plain, hyper) = (bench(), bench());
    for said in conversation() {
        assert!(matches!(Heads::default().find(said.as_bytes()), Found::Plain(..)), "{said}");
        let heard = heard(&plain, &[said.as_bytes()]).await;
        assert_eq!(heard, heard_of_hyper(&hyper, said.as_bytes()).await, "{said}");
    }
}

#[test]
fn every_route_is_in_the_conversation() {
    let said = conversation().concat();
    for (path, method, _) in crate::http::ROUTES {
        let asked = [" ", "?"].map(|end| said.contains(&format!("{method} {path}{end}")));
        assert!(asked.contains(&true), "{method} {path}");
    }
}

#[tokio::test]
async fn who_needs_a_token_needs_it_here_too() {
    let (plain, hyper) = (Bench::with_token("secret"), Bench::with_token("secret"));
    let known = check("a").replace("Host:", "Authorization: Bearer secret\r\nHost:");
    for (said, status) in
        [(check("a"), "401"), (known.replace("secret", "x"), "401"), (known, "200")]
    {
        let heard = heard(&plain, &[said.as_bytes()]).await;
        assert!(heard.starts_with(&format!("HTTP/1.1 {status} ")), "{heard}");
        assert_eq!(heard, heard_of_hyper(&hyper, said.as_bytes()).await, "{said}");
    }
}

#[test]
fn what_is_unusual_is_not_plain() {
    let body = r#"{"limit":"api","key":"a"}"#;
    let with =
        |field: &str| post("/v1/check", body).replacen("\r\n", &format!("\r\n{field}\r\n"), 1);
    let of = |from: &str, to: &str| post("/v1/check", body).replace(from, to);
    for said in [
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
        assert!(matches!(Heads::default().find(said.as_bytes()), Found::Other), "{said}");
    }
}

#[tokio::test]
async fn hyper_goes_on_where_it_is_not_plain_and_keeps_the_connection() {
    let chunked = "POST /v1/check HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n\
                   Transfer-Encoding: chunked\r\n\r\n19\r\n{\"limit\":\"api\",\"key\":\"a\"}\r\n0\r\n\r\n";
    let said = format!("{}{chunked}{}{chunked}", check("a"), check("a"));
    let heard = heard(&Bench::new(), &[said.as_bytes()]).await;
    for remaining in 6..=9 {
        assert!(heard.contains(&format!("\"remaining\":{remaining},")), "{heard}");
    }
}

#[tokio::test]
async fn a_body_may_have_as_much_as_it_may_and_no_more() {
    let (plain, hyper) = (Bench::new(), Bench::new());
    for (length, status) in [(BODY_BYTES_MAX, "400"), (BODY_BYTES_MAX + 1, "413")] {
        let said = post("/v1/check", &"x".repeat(length));
        let heard = heard(&plain, &[said.as_bytes()]).await;
        assert!(heard.starts_with(&format!("HTTP/1.1 {status} ")), "{heard}");
        let of_hyper = heard_of_hyper(&hyper, said.as_bytes()).await;
        assert_eq!(heard, of_hyper);
    }
}

#[tokio::test]
async fn when_it_is_time_to_go_who_is_idle_goes_and_who_asks_hears_that_it_was_the_last() {
    let bench = Bench::new();
    let (mut client, serving, open) = connect(&bench);
    let said = check("a");
    client.write_all(&said.as_bytes()[..20]).await.unwrap();
    tokio::task::yield_now().await;
    open.send_replace(true);
    tokio::task::yield_now().await;
    client.write_all(&said.as_bytes()[20..]).await.unwrap();
    let mut heard = String::new();
    client.read_to_string(&mut heard).await.unwrap();
    assert!(heard.contains("200 OK") && heard.contains("connection: close\r\n"), "{heard}");
    serving.await.unwrap().unwrap();

    let (mut idle, server) = duplex(1 << 20);
    let closing = open.subscribe();
    serve(watched(server), &bench.server, PEER, closing).await.unwrap();
    assert_eq!(idle.read(&mut [0]).await.unwrap(), 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// However the bytes are cut, the answers are the same: also when hyper has to go on with them.
    #[test]
    fn it_does_not_matter_in_which_pieces_they_come(cuts in prop::collection::vec(0_usize..6_000, 0..12)) {
        let said = conversation().concat();
        let mut cuts: Vec<usize> = cuts.into_iter().filter(|cut| *cut < said.len()).collect();
        cuts.sort_unstable();
        let mut from = 0;
        let mut pieces: Vec<&[u8]> = Vec::new();
        for cut in cuts.into_iter().chain([said.len()]) {
            pieces.push(&said.as_bytes()[from..cut]);
            from = cut;
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (in_pieces, whole) = runtime.block_on(async {
            let whole = heard_of_hyper(&bench(), said.as_bytes()).await;
            (heard(&bench(), &pieces).await, whole)
        });
        prop_assert_eq!(in_pieces, whole);
    }
}

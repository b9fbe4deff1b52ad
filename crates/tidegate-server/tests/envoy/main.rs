//! The real Envoy with Tidegate as its rate limit service: decisions, responses to clients, and outages.
//!
//! Needs    Envoy, with its path in `TIDEGATE_ENVOY`; the tests fail without it. `cargo xtask peers envoy` installs Envoy
//!          and runs the tests.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod guide;
mod paths;
mod proxy;
mod values;

use http::{HeaderMap, HeaderValue, StatusCode};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use proxy::Envoy;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use tidegate::snapshot::Snapshot;
use tidegate::{ManualClock, Timestamp};
use tidegate_server::clock::ServerClock;
use tidegate_server::config::{
    Config, DescriptorConfig, Fallback, LimitConfig, ServerConfig, Token,
};
use tidegate_server::matching::DescriptorPart;
use tidegate_server::net::{self, Running};
use tidegate_server::protocol::grpc::TEXT_BYTES_MAX;
use tidegate_server::server::Server;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

/// Returns a server with three requests a minute for each user, and a clock that stands still.
fn server() -> Arc<Server> {
    let mut calls = LimitConfig::new("calls", "3/min fixed".parse().unwrap());
    calls.descriptor = Some(DescriptorConfig {
        domain: "edge".to_owned(),
        entries: vec![DescriptorPart { key: "user".to_owned(), value: None }],
        replaces: Vec::new(),
    });
    calls.fallback = Some(Fallback {
        status: 429,
        content_type: "application/json".to_owned(),
        body: "{\"slow\":\"down\"}".to_owned(),
    });
    let clock = ManualClock::at(Timestamp::from_micros(2_222_000_000));
    let config = Config { server: grpc_only(), limits: vec![calls], ..Config::default() };
    Server::new(config, None, ServerClock::Manual(clock), Snapshot::default())
}

/// A listening server, until it is stopped.
struct Tidegate(Option<Running>);

impl Tidegate {
    fn address(&self) -> SocketAddr {
        self.0.as_ref().and_then(|running| running.addresses.grpc).unwrap()
    }

    fn stop(&mut self) {
        self.0.take().map(Running::stop).transpose().unwrap();
    }
}

impl Drop for Tidegate {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Returns settings with a gRPC listener on a free port, and the token that Envoy sends.
fn grpc_only() -> ServerConfig {
    let grpc = Some(SocketAddr::from(([127, 0, 0, 1], 0)));
    let tokens = vec![Token::new("secret")];
    ServerConfig { resp: None, http: None, grpc, admin: None, tokens, ..ServerConfig::default() }
}

fn serve_tidegate(server: Arc<Server>) -> Tidegate {
    Tidegate(Some(net::start(server).unwrap()))
}

fn serve_upstream(runtime: &Runtime) -> SocketAddr {
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
    let address = listener.local_addr().unwrap();
    runtime.spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let service = service_fn(|_| async {
                Ok::<_, Infallible>(http::Response::new("hello".to_owned()))
            });
            tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
        }
    });
    address
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> &'a str {
    headers.get(name).map_or("", |value| value.to_str().unwrap())
}

#[test]
fn envoy_enforces_the_decisions() {
    let runtime = Runtime::new().unwrap();
    let upstream = serve_upstream(&runtime);
    let mut tidegate = serve_tidegate(server());
    let config = ("envoy", include_str!("envoy.yaml"));
    let envoy = Envoy::start(&runtime, config, upstream, tidegate.address());
    let get = |listener: &str, path: &str, user: &[u8]| {
        let user = HeaderValue::from_bytes(user).unwrap();
        runtime.block_on(envoy.get(listener, path, Some(user)))
    };

    for remaining in ["2", "1", "0"] {
        let (status, headers, body) = get("open", "/", b"alice");
        assert_eq!((status, body.as_str()), (StatusCode::OK, "hello"));
        assert_eq!(text(&headers, "ratelimit-limit"), "3");
        assert_eq!(text(&headers, "ratelimit-remaining"), remaining);
        assert_eq!(text(&headers, "ratelimit-reset"), "58");
        assert_eq!(
            text(&headers, "x-ratelimit-remaining"),
            remaining,
            "Envoy computes it from the status"
        );
    }
    let (status, headers, body) = get("open", "/", b"alice");
    assert_eq!((status, body.as_str()), (StatusCode::TOO_MANY_REQUESTS, "{\"slow\":\"down\"}"));
    assert_eq!(text(&headers, "content-type"), "application/json");
    assert_eq!(text(&headers, "retry-after"), "58");
    assert_eq!(text(&headers, "x-ratelimit-limit"), "3, 3;w=60;name=\"calls\"");
    assert_eq!(text(&headers, "x-ratelimit-reset"), "58");

    let status = |listener: &str, path: &str, user: &[u8]| get(listener, path, user).0;
    let (ok, denied) = (StatusCode::OK, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(status("strict", "/", b"alice"), denied, "one limit for both listeners");
    assert_eq!(status("open", "/", b"bob"), ok, "each user has its own count");
    assert_eq!(
        runtime.block_on(envoy.get("strict", "/", None)).0,
        ok,
        "a request without a user is not checked"
    );

    assert_eq!(
        ["/twice", "/twice", "/"].map(|path| status("open", path, b"carol")),
        [ok, denied, ok]
    );
    assert_eq!(
        ["/", "/back", "/", "/"].map(|path| status("open", path, b"carol")),
        [denied, ok, ok, denied]
    );

    let odd = [(); 4].map(|()| status("strict", "/", b"\xff\xfe"));
    assert_eq!(odd, [ok, ok, ok, denied], "bytes that are not UTF-8 do not bypass the limit");

    let long = [b'a'; TEXT_BYTES_MAX + 1];
    assert_eq!(status("strict", "/", &long), StatusCode::INTERNAL_SERVER_ERROR);
    assert_eq!(status("open", "/", &long), ok, "this listener lets requests pass after errors");

    tidegate.stop();
    assert_eq!(status("open", "/", b"alice"), ok);
    assert_eq!(status("strict", "/", b"alice"), StatusCode::INTERNAL_SERVER_ERROR);
}

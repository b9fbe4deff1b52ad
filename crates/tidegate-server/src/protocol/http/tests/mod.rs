//! Tests of the HTTP API without sockets and with a manual clock.

mod atomic;
mod authorize;
mod bodies;
mod explain;
mod fields;
mod guide;
mod idempotency;
mod leases;
mod openapi;
mod original_request;
mod readings;
mod refusals;
mod waiting;
mod wire;

use crate::clock::ServerClock;
use crate::config::{Config, LimitConfig, Mode, Token};
use crate::server::Server;
use http::Request;
use http_body_util::BodyExt;
use serde_json::Value;
use std::net::SocketAddr;
use std::sync::Arc;
use tidegate::ManualClock;
use tidegate::snapshot::Snapshot;

/// A server with a manual clock.
pub(crate) struct Harness {
    pub(crate) server: Arc<Server>,
    pub(crate) clock: ManualClock,
}

/// A response.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: http::HeaderMap,
    pub(crate) text: String,
}

pub(crate) const PEER: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 40_000);

/// Returns a limit with this name and rule.
pub(crate) fn limit(name: &str, rule: &str) -> LimitConfig {
    LimitConfig::new(name, rule.parse().unwrap())
}

impl Harness {
    /// Returns a server with the limits `api` (`10/s`), `pool` (two permits), `shy` (in shadow mode) and `off`.
    pub(crate) fn new() -> Self {
        let shy = LimitConfig { mode: Mode::Shadow, ..limit("shy", "1/min") };
        let off = LimitConfig { mode: Mode::Off, ..limit("off", "1/min") };
        let limits = vec![limit("api", "10/s"), limit("pool", "concurrency 2 lease 30s"), shy, off];
        Self::with(Config { limits, ..Config::default() })
    }

    pub(crate) fn with(config: Config) -> Self {
        let clock = ManualClock::new();
        let server_clock = ServerClock::Manual(clock.clone());
        Self { server: Server::new(config, None, server_clock, Snapshot::default()), clock }
    }

    pub(crate) fn with_token(token: &str) -> Self {
        let mut config = Config { limits: vec![limit("api", "10/s")], ..Config::default() };
        config.server.tokens = vec![Token::new("other"), Token::new(token)];
        Self::with(config)
    }

    pub(crate) async fn ask(&self, request: http::request::Builder, body: &[u8]) -> Reply {
        let (request, ()) = request.body(()).unwrap().into_parts();
        Reply::of(super::answer(&self.server, &request, body, PEER).await).await
    }

    pub(crate) async fn post(&self, path: &str, body: impl AsRef<[u8]>) -> Reply {
        self.ask(post(path), body.as_ref()).await
    }

    pub(crate) async fn get(&self, path: &str) -> Reply {
        self.ask(Request::get(path).header("host", "localhost"), b"").await
    }

    pub(crate) async fn check(&self, body: &str) -> Reply {
        self.post("/v1/check", body).await
    }
}

pub(crate) fn post(path: &str) -> http::request::Builder {
    Request::post(path).header("host", "localhost").header("content-type", "application/json")
}

impl Reply {
    pub(crate) async fn of(answered: super::RawResponse) -> Self {
        let (head, body) = answered.into_response().into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        let text = String::from_utf8(body.to_vec()).unwrap();
        Self { status: head.status.as_u16(), headers: head.headers, text }
    }

    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {}", self.text))
    }

    pub(crate) fn detail(&self) -> String {
        self.json()["detail"].as_str().unwrap().to_owned()
    }
}

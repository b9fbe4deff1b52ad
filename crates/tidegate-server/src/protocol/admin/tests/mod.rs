//! Tests of the admin listener without sockets.

mod access;
mod deployment;
mod health;
mod limits;
mod metrics;

use crate::config::{Config, Token};
use crate::protocol::http::tests::{Harness, Reply, limit};
use http::Request;
use tidegate::throttle::Throttle;

const TOKEN: &str = "Bearer 0perator";

/// Returns a server with the limit `api` and an admin token.
fn harness() -> Harness {
    let mut config = Config { limits: vec![limit("api", "10/s")], ..Config::default() };
    config.server.admin_token = Some(Token::new("0perator"));
    Harness::with(config)
}

async fn ask(harness: &Harness, request: http::request::Builder) -> Reply {
    let (request, ()) = request.body(()).unwrap().into_parts();
    Reply::of(super::answer(&harness.server, &request).await).await
}

async fn get(harness: &Harness, path: &str) -> Reply {
    ask(harness, Request::get(path).header("host", "localhost:9091").header("authorization", TOKEN))
        .await
}

async fn post(harness: &Harness, path: &str) -> Reply {
    ask(
        harness,
        Request::post(path).header("host", "localhost:9091").header("authorization", TOKEN),
    )
    .await
}

/// Sends `CL.THROTTLE` this number of times; one is allowed.
async fn throttle(harness: &Harness, times: usize) {
    let throttle = Throttle::new(0, 1, 60, 1).unwrap();
    for _ in 0..times {
        let _ = harness.server.engine.throttle(b"alice", &throttle).await;
    }
}

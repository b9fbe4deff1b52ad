//! The operator's listener, asked without a socket.

mod access;
mod deployment;
mod health;
mod limits;
mod metrics;

use crate::config::{Config, Token};
use crate::protocol::http::tests::{Bench, Reply, limit};
use http::Request;
use tidegate::throttle::Throttle;

const TOKEN: &str = "Bearer 0perator";

/// A server with the limit `api` whose operator has a token.
fn bench() -> Bench {
    let mut config = Config { limits: vec![limit("api", "10/s")], ..Config::default() };
    config.server.admin_token = Some(Token::new("0perator"));
    Bench::with(config)
}

async fn ask(bench: &Bench, request: http::request::Builder) -> Reply {
    let (request, ()) = request.body(()).unwrap().into_parts();
    Reply::of(super::answer(&bench.server, &request).await).await
}

async fn get(bench: &Bench, path: &str) -> Reply {
    ask(bench, Request::get(path).header("host", "localhost:9091").header("authorization", TOKEN))
        .await
}

async fn post(bench: &Bench, path: &str) -> Reply {
    ask(bench, Request::post(path).header("host", "localhost:9091").header("authorization", TOKEN))
        .await
}

/// Asks as often as this for what one of may pass.
async fn throttle(bench: &Bench, times: usize) {
    let throttle = Throttle::new(0, 1, 60, 1).unwrap();
    for _ in 0..times {
        bench.server.engine.throttle(b"alice", &throttle).await;
    }
}

//! Limits that many processes share, behind a real Redis server.
#![expect(clippy::unwrap_used, reason = "what helps a test may fail as a test does")]

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use std::convert::Infallible;
use std::future::Ready;
use std::task::{Context, Poll};
use tidegate::Limiter;
use tidegate_redis::{RedisLimiter, RedisStore};
use tidegate_testbed::RedisServer;
use tidegate_tower::{Key, Limit, RateLimit, RateLimitLayer};
use tower::util::ServiceExt;
use tower_layer::Layer;
use tower_service::Service;

type Body = Full<Bytes>;

/// Answers what the header `answer` says.
#[derive(Clone)]
struct Inner;

impl Service<Request<Body>> for Inner {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Ready<Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let status = request.headers().get("answer").map_or("200", |value| value.to_str().unwrap());
        let response = Response::builder().status(status).body(Body::default());
        std::future::ready(Ok(response.unwrap()))
    }
}

async fn limiter(server: &RedisServer, name: &str, rule: &str) -> RedisLimiter {
    let store = RedisStore::connect(&server.url()).await.unwrap();
    store.limiter(name, rule.parse().unwrap()).unwrap()
}

async fn ask(service: &RateLimit<Inner>, user: &str, answer: &str) -> Response<()> {
    let request = Request::get("/").header("x-user", user).header("answer", answer);
    let request = request.body(Body::default()).unwrap();
    service.clone().oneshot(request).await.unwrap().map(drop)
}

fn by_user() -> Key {
    Key::header(http::HeaderName::from_static("x-user"))
}

#[tokio::test]
async fn two_processes_share_a_limit() {
    let server = RedisServer::start();
    let mut replicas = Vec::new();
    for _ in 0..2 {
        let limit = Limit::redis("api", limiter(&server, "api", "3/h").await).key(by_user());
        replicas.push(RateLimitLayer::new(limit).unwrap().layer(Inner));
    }
    let mut statuses = Vec::new();
    for turn in 0..5 {
        let response = ask(&replicas[turn % 2], "alice", "200").await;
        assert!(response.headers().contains_key("ratelimit"));
        statuses.push(response.status().as_u16());
    }
    assert_eq!(statuses, [200, 200, 200, 429, 429]);
    assert_eq!(ask(&replicas[0], "bob", "200").await.status(), 200);
}

#[tokio::test]
async fn who_is_denied_in_redis_is_not_charged_here() {
    let server = RedisServer::start();
    let here = Limiter::new("10/h".parse().unwrap());
    let shared = Limit::redis("shared", limiter(&server, "shared", "2/h").await);
    let layer = RateLimitLayer::new(Limit::over("here", here.clone())).unwrap();
    let service = layer.and(shared).unwrap().layer(Inner);
    for expected in [200, 200, 429, 429, 429] {
        assert_eq!(ask(&service, "alice", "200").await.status(), expected);
    }
    assert_eq!(here.peek(&b""[..]).remaining, 7, "two were admitted, and one is asked for");
}

#[tokio::test]
async fn what_failed_is_given_back_in_redis() {
    let server = RedisServer::start();
    let shared = limiter(&server, "orders", "1/h").await;
    let limit = Limit::redis("orders", shared.clone()).refund_if(|status, _| status == 503);
    let service = RateLimitLayer::new(limit).unwrap().layer(Inner);
    assert_eq!(ask(&service, "alice", "503").await.status(), 503);
    // Redis hears of it in the background: no more than so many looks are needed.
    for _ in 0..1_000 {
        if shared.peek("", 1).await.unwrap().is_allow() {
            break;
        }
        tokio::task::yield_now().await;
    }
    assert_eq!(ask(&service, "alice", "200").await.status(), 200);
    assert_eq!(ask(&service, "alice", "200").await.status(), 429);
}

//! Limits that many processes share, behind a real Redis server.
#![expect(clippy::unwrap_used, reason = "helpers of tests may panic")]

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use std::convert::Infallible;
use std::future::Ready;
use std::task::{Context, Poll};
use std::time::Duration;
use tidegate::{Clock as _, Limiter, Span, SystemClock};
use tidegate_redis::{RedisLimiter, RedisStore, Settings};
use tidegate_testbed::RedisServer;
use tidegate_tower::service::RateLimit;
use tidegate_tower::{Key, Limit, RateLimitLayer};
use tower::util::ServiceExt;
use tower_layer::Layer;
use tower_service::Service;

type Body = Full<Bytes>;

/// A service that responds with the status in the header `answer`.
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
    // On a busy machine a reply may be late, and no decision of these tests is made without Redis.
    let settings = Settings::default().deadline(Duration::from_secs(10));
    let store = RedisStore::connect_with(&server.url().parse().unwrap(), settings).await;
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
async fn a_request_that_redis_denies_is_not_charged_in_memory() {
    let server = RedisServer::start();
    let here = Limiter::new("10/h".parse().unwrap());
    let shared = Limit::redis("shared", limiter(&server, "shared", "2/h").await);
    let layer = RateLimitLayer::new(Limit::over("here", here.clone())).unwrap();
    let service = layer.and(shared).unwrap().layer(Inner);
    for expected in [200, 200, 429, 429, 429] {
        assert_eq!(ask(&service, "alice", "200").await.status(), expected);
    }
    assert_eq!(here.peek(&b""[..]).remaining, 7, "two were admitted, and the peek is for one");
}

/// Waits until Redis has executed the commands that were sent in the background.
async fn settled(shared: &RedisLimiter, key: &str, remaining: u64) {
    for _ in 0..10_000 {
        if shared.request(key).cost(0).peek().await.unwrap().remaining == remaining {
            return;
        }
        tokio::task::yield_now().await;
    }
    let last = shared.request(key).cost(0).peek().await;
    panic!("{remaining} should remain: {last:?}");
}

#[tokio::test]
async fn a_response_is_charged_in_redis_only_up_to_the_limit() {
    let server = RedisServer::start();
    let shared = limiter(&server, "logins", "6/h").await;
    let charge = |status: http::StatusCode, _: &http::HeaderMap| 2 * u64::from(status == 401);
    let limit = Limit::redis("logins", shared.clone()).key(by_user()).charge_by(charge);
    let service = RateLimitLayer::new(limit).unwrap().layer(Inner);
    assert_eq!(ask(&service, "alice", "200").await.status(), 200);
    settled(&shared, "alice", 5).await;
    assert_eq!(ask(&service, "alice", "401").await.status(), 401);
    settled(&shared, "alice", 2).await;
    // One for the request, and only one of two is left.
    assert_eq!(ask(&service, "alice", "401").await.status(), 401);
    settled(&shared, "alice", 0).await;
    let denied = ask(&service, "alice", "200").await;
    assert_eq!(denied.status(), 429);
    assert_eq!(denied.headers()["retry-after"], "600", "one in ten minutes: there is no debt");
    assert_eq!(ask(&service, "bob", "401").await.status(), 401, "each user has a bucket");
}

#[tokio::test]
async fn the_bytes_of_a_response_are_charged_in_redis_when_they_have_flowed() {
    let server = RedisServer::start();
    let shared = limiter(&server, "egress", "100/h").await;
    let limit = Limit::redis("egress", shared.clone()).cost(0).charge_bytes();
    let inner = tower::service_fn(|_: Request<Body>| async {
        Ok::<_, Infallible>(Response::new(Body::from(vec![b'.'; 70])))
    });
    let service = RateLimitLayer::new(limit).unwrap().layer(inner);
    for left in [30, 0] {
        let response = service.clone().oneshot(Request::new(Body::default())).await.unwrap();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(body.len(), 70);
        settled(&shared, "", left).await;
    }
}

/// As of a limiter in memory: the limit in shadow mode is charged for admitted requests, and rejects none.
#[tokio::test]
async fn a_limit_in_shadow_mode_is_charged_in_redis_for_admitted_requests_only() {
    let server = RedisServer::start();
    let enforced = limiter(&server, "api", "3/h").await;
    for (name, rule, left) in [("wide", "100/h", 97), ("narrow", "1/h", 0)] {
        let shadow = limiter(&server, name, rule).await;
        enforced.reset("").await.unwrap();
        let layer = RateLimitLayer::new(Limit::redis("api", enforced.clone())).unwrap();
        let layer = layer.and(Limit::redis(name, shadow.clone()).shadow()).unwrap();
        let service = layer.layer(Inner);
        let mut statuses = Vec::new();
        for _ in 0..6 {
            let response = ask(&service, "alice", "200").await;
            let shown = response.headers()["ratelimit"].to_str().unwrap();
            assert!(!shown.contains(name), "{shown}");
            statuses.push(response.status().as_u16());
        }
        assert_eq!(statuses, [200, 200, 200, 429, 429, 429], "{name}");
        assert_eq!(shadow.request("").cost(0).peek().await.unwrap().remaining, left, "{name}");
        assert_eq!(enforced.request("").cost(0).peek().await.unwrap().remaining, 0, "{name}");
    }
}

/// Waiting requests ask again after their retry time: all get their turn, at the rate of the limit.
#[tokio::test]
async fn a_request_that_may_wait_gets_a_turn_of_redis() {
    let server = RedisServer::start();
    let shared = limiter(&server, "turns", "20/s burst 1").await;
    let layer = RateLimitLayer::new(Limit::redis("turns", shared)).unwrap();
    let service = layer.wait(Duration::from_secs(30)).layer(Inner);
    let (clock, mut tasks) = (SystemClock::new(), tokio::task::JoinSet::new());
    let start = clock.now();
    for _ in 0..5 {
        let service = service.clone();
        tasks.spawn(async move { ask(&service, "alice", "200").await.status().as_u16() });
    }
    assert_eq!(tasks.join_all().await, [200; 5]);
    let took = clock.now().since(start);
    assert!(
        took >= Span::from_millis(190),
        "one each 50 ms after the first, by the clock of Redis: {took}"
    );
}

#[tokio::test]
async fn a_request_that_would_wait_too_long_for_redis_is_denied_at_once_and_not_charged() {
    let server = RedisServer::start();
    let shared = limiter(&server, "turns", "1/h").await;
    let layer = RateLimitLayer::new(Limit::redis("turns", shared.clone())).unwrap();
    let service = layer.wait(Duration::from_secs(3_500)).layer(Inner);
    assert_eq!(ask(&service, "alice", "200").await.status(), 200);
    let refused = ask(&service, "alice", "200").await;
    assert_eq!(
        (refused.status().as_u16(), &refused.headers()["retry-after"]),
        (429, &"3600".parse().unwrap())
    );
}

#[tokio::test]
async fn a_turn_in_redis_that_comes_too_late_is_denied_at_once_and_refunded() {
    let server = RedisServer::start();
    let here = Limiter::new("10/h".parse().unwrap());
    let shared = limiter(&server, "queue", "1/h queue capacity 5").await;
    let layer = RateLimitLayer::new(Limit::redis("queue", shared.clone())).unwrap();
    let layer = layer.and(Limit::over("here", here.clone())).unwrap();
    let service = layer.wait(Duration::from_secs(1)).layer(Inner);
    assert_eq!(ask(&service, "alice", "200").await.status(), 200);
    let before = shared.request("").cost(0).peek().await.unwrap().remaining;
    let refused = ask(&service, "alice", "200").await;
    assert_eq!(refused.status(), 429);
    assert_eq!(refused.headers()["retry-after"], "3599", "the layer may wait for a second");
    settled(&shared, "", before).await;
    assert_eq!(here.check_n(&b""[..], 0).remaining, 9, "only the first is charged");
}

#[tokio::test]
async fn a_failed_request_is_refunded_in_redis() {
    let server = RedisServer::start();
    let shared = limiter(&server, "orders", "1/h").await;
    let limit = Limit::redis("orders", shared.clone()).refund_if(|status, _| status == 503);
    let service = RateLimitLayer::new(limit).unwrap().layer(Inner);
    assert_eq!(ask(&service, "alice", "503").await.status(), 503);
    // The refund is sent in the background: at most this number of peeks is needed.
    for _ in 0..1_000 {
        if shared.peek("").await.unwrap().is_allow() {
            break;
        }
        tokio::task::yield_now().await;
    }
    assert_eq!(ask(&service, "alice", "200").await.status(), 200);
    assert_eq!(ask(&service, "alice", "200").await.status(), 429);
}

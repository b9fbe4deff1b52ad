//! Requests that wait instead of being denied, in tokio's paused time.

use crate::fixture::{Body, Inner, ask, get};
use http::{Request, Response, StatusCode};
use std::convert::Infallible;
use std::time::Duration;
use tidegate::clock::TokioClock;
use tidegate::{Limiter, Span};
use tidegate_tower::{Limit, RateLimitLayer};
use tokio::time::Instant;
use tower_layer::Layer;

fn limit(name: &str, rule: &str) -> (Limit<TokioClock>, Limiter<TokioClock>) {
    let limiter = Limiter::with_clock(rule.parse().unwrap(), TokioClock::new());
    (Limit::over(name, limiter.clone()), limiter)
}

#[tokio::test(start_paused = true)]
async fn a_request_waits_exactly_until_its_turn() {
    let (limit, _) = limit("api", "10/s burst 1");
    let layer = RateLimitLayer::new(limit).unwrap().wait(Duration::from_millis(250));
    let (service, start) = (layer.layer(Inner), Instant::now());
    let tasks: Vec<_> = (0..5)
        .map(|_| {
            let service = service.clone();
            tokio::spawn(async move { (ask(&service, get("/")).await.status, start.elapsed()) })
        })
        .collect();
    let mut ended = Vec::new();
    for task in tasks {
        let (status, at) = task.await.unwrap();
        ended.push((status, at.as_millis()));
    }
    ended.sort_unstable();
    // The clock counts in microseconds and tokio's timers in milliseconds: a turn is up to 1 ms late.
    let rounded: Vec<(u16, u128)> = ended.iter().map(|(s, ms)| (*s, ms / 10 * 10)).collect();
    assert_eq!(rounded, [(200, 0), (200, 100), (200, 200), (429, 0), (429, 0)]);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_given_up_gives_its_turn_back() {
    let (limit, limiter) = limit("api", "1/s");
    let layer = RateLimitLayer::new(limit).unwrap().wait(Duration::from_secs(10));
    let service = layer.layer(Inner);
    assert_eq!(ask(&service, get("/")).await.status, 200);
    let given_up = tokio::time::timeout(Duration::from_millis(100), ask(&service, get("/"))).await;
    assert!(given_up.is_err());
    let reserved = limiter.reserve(&b""[..]).unwrap();
    assert!(
        reserved.wait().as_micros() <= 900_000,
        "no request is before this one: {:?}",
        reserved.wait()
    );
}

#[tokio::test(start_paused = true)]
async fn several_limits_are_waited_for_together() {
    let (first, _) = limit("a", "1/s");
    let (second, _) = limit("b", "1/3s");
    let layer =
        RateLimitLayer::new(first).unwrap().and(second).unwrap().wait(Duration::from_secs(3));
    let (service, start) = (layer.layer(Inner), Instant::now());
    assert_eq!(ask(&service, get("/")).await.status, 200);
    assert_eq!(ask(&service, get("/")).await.status, 200);
    assert_eq!(start.elapsed().as_secs(), 3);
    let too_long = RateLimitLayer::new(limit("a", "1/h").0).unwrap().wait(Duration::from_secs(3));
    let service = too_long.and(limit("b", "1/h").0).unwrap().layer(Inner);
    ask(&service, get("/")).await;
    let before = Instant::now();
    assert_eq!(ask(&service, get("/")).await.status, 429);
    assert_eq!(before.elapsed(), Duration::ZERO, "refused at once");
}

#[tokio::test(start_paused = true)]
async fn a_rule_that_delays_requests_needs_no_maximum_wait() {
    for limits in 1..=2 {
        let layer =
            RateLimitLayer::new(limit("shaped", "10/s queue capacity 2 wait 1s").0).unwrap();
        let layer = match limits {
            1 => layer,
            _ => layer.and(limit("other", "1000/s").0).unwrap(),
        };
        let (service, start) = (layer.layer(Inner), Instant::now());
        let ask_now = || ask(&service, get("/"));
        let (a, b, c, d) = tokio::join!(ask_now(), ask_now(), ask_now(), ask_now());
        assert_eq!([a, b, c, d].map(|reply| reply.status), [200, 200, 200, 429]);
        assert_eq!(start.elapsed().as_millis() / 10, 20, "the third came after 200 ms");
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_whose_turn_under_several_limits_comes_too_late_is_denied_at_once() {
    let (shaped, limiter) = limit("shaped", "1/1200ms queue capacity 5");
    let (other, others) = limit("other", "10/h");
    let layer = RateLimitLayer::new(shaped).unwrap().and(other).unwrap();
    let (service, start) = (layer.wait(Duration::from_secs(1)).layer(Inner), Instant::now());
    assert_eq!(ask(&service, get("/")).await.status, 200);
    let refused = ask(&service, get("/")).await;
    assert_eq!((refused.status, start.elapsed()), (429, Duration::ZERO));
    assert_eq!(others.check_n(&b""[..], 0).remaining, 9, "only the first is charged");
    assert_eq!(limiter.reserve(&b""[..]).unwrap().wait(), Span::from_millis(1_200));
}

#[tokio::test(start_paused = true)]
async fn the_time_waited_for_one_limit_counts_for_another() {
    let (first, firsts) = limit("first", "1/s");
    let (shaped, limiter) = limit("shaped", "1/s queue capacity 5");
    let layer = RateLimitLayer::new(first).unwrap().and(shaped).unwrap();
    let service = layer.wait(Duration::from_millis(1_500)).layer(Inner);
    let start = Instant::now();
    assert_eq!(ask(&service, get("/")).await.status, 200);
    let another_request = async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        assert!(!limiter.check(&b""[..]).is_deny(), "the turn at 1 s");
    };
    let (refused, ()) = tokio::join!(ask(&service, get("/")), another_request);
    assert_eq!(refused.status, 429, "the turn at 2 s is too late");
    assert_eq!(start.elapsed().as_millis() / 10, 100, "as soon as it is known");
    assert!(firsts.peek(&b""[..]).is_allow(), "nothing was charged");
    assert!(limiter.reserve(&b""[..]).unwrap().wait() <= Span::from_secs(1), "the turn is free");
}

#[tokio::test(start_paused = true)]
async fn a_request_that_leaves_a_queue_of_several_limits_is_refunded() {
    let (shaped, limiter) = limit("shaped", "1/s queue capacity 5 wait 10s");
    let (other, others) = limit("other", "10/h");
    let service = RateLimitLayer::new(shaped).unwrap().and(other).unwrap().layer(Inner);
    ask(&service, get("/")).await;
    let given_up = tokio::time::timeout(Duration::from_millis(100), ask(&service, get("/"))).await;
    assert!(given_up.is_err());
    assert_eq!(others.peek(&b""[..]).remaining, 8);
    let wait = limiter.reserve(&b""[..]).unwrap().wait().as_micros();
    assert!(wait <= 900_000, "no request is before this one: {wait} us");
}

#[tokio::test(start_paused = true)]
async fn what_drained_during_a_wait_is_not_refunded_when_the_request_is_given_up() {
    let (shaped, _) = limit("shaped", "1/s queue capacity 5");
    let (other, others) = limit("other", "10/s");
    let service = RateLimitLayer::new(shaped).unwrap().and(other).unwrap().layer(Inner);
    ask(&service, get("/")).await;
    let another_request = async {
        tokio::time::sleep(Duration::from_millis(900)).await;
        assert!(others.check_n(&b""[..], 5).is_allow());
    };
    tokio::select! {
        biased;
        _ = ask(&service, get("/")) => panic!("its turn is in a second"),
        () = another_request => {}
    }
    assert_eq!(others.check_n(&b""[..], 0).remaining, 5, "the other five stay charged");
}

fn refunded(rule: &str) -> (Limit<TokioClock>, Limiter<TokioClock>) {
    let (limit, limiter) = limit("api", rule);
    (limit.refund_if(|status, _| status.is_server_error()), limiter)
}

/// The second request waits a second for its turn and fails 1.5 s later, when its charge has drained. By then a third request
/// has been charged, and that charge must not be refunded.
async fn assert_a_drained_charge_is_not_refunded(layer: RateLimitLayer<TokioClock>) {
    let inner = tower::service_fn(|request: Request<Body>| async move {
        let mut response = Response::new(Body::default());
        if request.uri().path() == "/slow" {
            tokio::time::sleep(Duration::from_millis(1_500)).await;
            *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
        }
        Ok::<_, Infallible>(response)
    });
    let (service, start) = (layer.layer(inner), Instant::now());
    ask(&service, get("/")).await;
    let slow = tokio::spawn({
        let service = service.clone();
        async move { (ask(&service, get("/slow")).await.status, start.elapsed()) }
    });
    tokio::time::sleep(Duration::from_millis(2_400)).await;
    assert_eq!(ask(&service, get("/")).await.status, 200);
    assert_eq!(start.elapsed().as_millis() / 10, 240, "the third, at once");
    let (status, at) = slow.await.unwrap();
    assert_eq!((status, at.as_millis() / 10), (503, 250));
    assert_eq!(ask(&service, get("/")).await.status, 200);
    assert_eq!(start.elapsed().as_millis() / 10, 340, "the fourth, a second after the third");
}

#[tokio::test(start_paused = true)]
async fn what_drained_after_a_wait_for_a_turn_is_not_refunded() {
    let layer = RateLimitLayer::new(refunded("1/s").0).unwrap();
    assert_a_drained_charge_is_not_refunded(layer.wait(Duration::from_secs(10))).await;
}

#[tokio::test(start_paused = true)]
async fn what_drained_after_a_wait_under_a_changed_rule_is_not_refunded() {
    let (limit, limiter) = refunded("100/s");
    let layer = RateLimitLayer::new(limit).unwrap();
    limiter.set_rule("1/s queue capacity 5".parse().unwrap());
    assert_a_drained_charge_is_not_refunded(layer).await;
}

#[tokio::test(start_paused = true)]
async fn what_drained_after_a_wait_for_several_limits_is_not_refunded() {
    let layer = RateLimitLayer::new(refunded("1/s queue capacity 5").0).unwrap();
    assert_a_drained_charge_is_not_refunded(layer.and(limit("other", "1000/s").0).unwrap()).await;
}

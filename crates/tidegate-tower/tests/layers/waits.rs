//! Waiting instead of refusing, in tokio's paused time.

use crate::desk::{Inner, ask, get};
use std::time::Duration;
use tidegate::{Limiter, TokioClock};
use tidegate_tower::{Limit, RateLimitLayer};
use tokio::time::Instant;
use tower_layer::Layer;

fn limit(name: &str, rule: &str) -> (Limit<TokioClock>, Limiter<TokioClock>) {
    let limiter = Limiter::with_clock(rule.parse().unwrap(), TokioClock::new());
    (Limit::over(name, limiter.clone()), limiter)
}

#[tokio::test(start_paused = true)]
async fn who_can_wait_waits_exactly_as_long_as_needed() {
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
async fn who_gives_up_gives_the_turn_back() {
    let (limit, limiter) = limit("api", "1/s");
    let layer = RateLimitLayer::new(limit).unwrap().wait(Duration::from_secs(10));
    let service = layer.layer(Inner);
    assert_eq!(ask(&service, get("/")).await.status, 200);
    let given_up = tokio::time::timeout(Duration::from_millis(100), ask(&service, get("/"))).await;
    assert!(given_up.is_err());
    let reserved = limiter.reserve(&b""[..]).unwrap();
    assert!(reserved.wait().as_micros() <= 900_000, "nobody is before us: {:?}", reserved.wait());
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
async fn a_rule_that_makes_requests_wait_does_so_by_itself() {
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
async fn who_leaves_a_queue_of_several_limits_gets_back_what_was_charged() {
    let (shaped, limiter) = limit("shaped", "1/s queue capacity 5 wait 10s");
    let (other, others) = limit("other", "10/h");
    let service = RateLimitLayer::new(shaped).unwrap().and(other).unwrap().layer(Inner);
    ask(&service, get("/")).await;
    let given_up = tokio::time::timeout(Duration::from_millis(100), ask(&service, get("/"))).await;
    assert!(given_up.is_err());
    assert_eq!(others.peek(&b""[..]).remaining, 8);
    let wait = limiter.reserve(&b""[..]).unwrap().wait().as_micros();
    assert!(wait <= 900_000, "nobody is before us: {wait} us");
}

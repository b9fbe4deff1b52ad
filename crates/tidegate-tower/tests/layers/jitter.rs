//! Clients that are denied together do not retry together (T48).

use crate::fixture::{Inner, Reply, ask, get, limit};
use std::time::Duration;
use tidegate::{Limiter, ManualClock, Span};
use tidegate_tower::{ConcurrencyLayer, HeaderStyle, Limit, RateLimitLayer};
use tower_layer::Layer;

const DENIED: usize = 10_000;

/// Returns the whole seconds of `Retry-After`, of the body and of `RateLimit` of a denial.
fn reported_secs(reply: &Reply) -> [u64; 3] {
    assert_eq!(reply.status, 429);
    let retry_after = reply.header("retry-after").unwrap().parse().unwrap();
    let (_, rest) = reply.body.split_once(r#""retry_after_ms":"#).unwrap();
    let in_body_ms: u64 = rest.split(',').next().unwrap().parse().unwrap();
    // Limits that deny are listed first.
    let (_, rest) = reply.header("ratelimit").unwrap().split_once(";t=").unwrap();
    let window = rest.split(',').next().unwrap().parse().unwrap();
    [retry_after, in_body_ms.div_ceil(1_000), window]
}

/// Denies ten thousand requests at once, with a retry time of 9.5 s, and returns what their responses say.
async fn deny_many(layer: RateLimitLayer<ManualClock>, clock: &ManualClock) -> Vec<u64> {
    let service = layer.layer(Inner);
    assert_eq!(ask(&service, get("/")).await.status, 200);
    clock.advance(Span::from_millis(50_500));
    let mut reported = Vec::with_capacity(DENIED);
    for _ in 0..DENIED {
        let [retry_after, in_body, window] = reported_secs(&ask(&service, get("/")).await);
        assert_eq!([in_body, window], [retry_after; 2], "all fields say the same");
        reported.push(retry_after);
    }
    reported
}

fn assert_spread(reported: &[u64], first: u64) {
    let times = first..=first + 10;
    assert!(
        reported.iter().all(|seconds| times.contains(seconds)),
        "never earlier, and at most 10 s later"
    );
    for second in times {
        let together = reported.iter().filter(|seconds| **seconds == second).count();
        assert!(together <= DENIED / 5, "{together} retry after {second} s");
    }
}

fn single_limit(clock: &ManualClock) -> RateLimitLayer<ManualClock> {
    RateLimitLayer::new(limit("a", "1/min fixed from first", clock)).unwrap()
}

// T48
#[tokio::test]
async fn clients_that_one_limit_denies_get_different_retry_times() {
    let clock = ManualClock::new();
    let layer = single_limit(&clock).retry_jitter(Duration::from_secs(10));
    assert_spread(&deny_many(layer, &clock).await, 10);
}

/// T48: some clients retry at the reset time, and at the end of a window both times are the same.
#[tokio::test]
async fn clients_that_a_limit_denies_get_different_reset_times() {
    let clock = ManualClock::new();
    let layer =
        single_limit(&clock).retry_jitter(Duration::from_secs(10)).headers(HeaderStyle::Legacy);
    let service = layer.layer(Inner);
    assert_eq!(ask(&service, get("/")).await.status, 200);
    clock.advance(Span::from_millis(50_500));
    let mut reported = Vec::with_capacity(DENIED);
    for _ in 0..DENIED {
        let denied = ask(&service, get("/")).await;
        let reset = denied.header("x-ratelimit-reset").unwrap().to_owned();
        assert_eq!(denied.header("retry-after"), Some(&reset[..]));
        let (_, after) = denied.body.split_once(r#""reset_after_ms":"#).unwrap();
        let in_body_ms: u64 = after.split([',', '}']).next().unwrap().parse().unwrap();
        assert_eq!(in_body_ms.div_ceil(1_000).to_string(), reset);
        reported.push(reset.parse().unwrap());
    }
    assert_spread(&reported, 10);
}

// T48
#[tokio::test]
async fn clients_that_one_of_several_limits_denies_get_different_retry_times() {
    let clock = ManualClock::new();
    let layer = single_limit(&clock).and(limit("b", "1000/h", &clock)).unwrap();
    assert_spread(&deny_many(layer.retry_jitter(Duration::from_secs(10)), &clock).await, 10);
}

// T48
#[tokio::test]
async fn without_jitter_all_clients_get_the_same_retry_time() {
    let clock = ManualClock::new();
    assert_eq!(deny_many(single_limit(&clock), &clock).await, vec![10; DENIED]);
}

#[tokio::test]
async fn denying_limits_report_times_that_agree_with_retry_after() {
    let clock = ManualClock::new();
    let layer = single_limit(&clock).and(limit("b", "1/2min fixed from first", &clock)).unwrap();
    let service = layer.retry_jitter(Duration::from_secs(10)).layer(Inner);
    assert_eq!(ask(&service, get("/")).await.status, 200);
    for _ in 0..100 {
        let denied = ask(&service, get("/")).await;
        let all: u64 = denied.header("retry-after").unwrap().parse().unwrap();
        let earlier = all - 60;
        let expected = format!(r#""a";r=0;t={earlier}, "b";r=0;t={all}"#);
        assert_eq!(denied.header("ratelimit"), Some(&expected[..]));
    }
}

/// Denies requests while the only permit is taken, and returns `Retry-After` of each response.
async fn deny_without_permit(
    layer: ConcurrencyLayer<ManualClock>,
    limiter: &Limiter<ManualClock>,
) -> Vec<u64> {
    let (service, cached) =
        (layer.clone().layer(Inner), layer.fallback_service(Inner).layer(Inner));
    let _taken = limiter.try_acquire(&b""[..]).unwrap();
    let mut reported = Vec::with_capacity(DENIED);
    for number in 0..DENIED {
        let denied = if number % 2 == 0 {
            let denied = ask(&service, get("/")).await;
            assert_eq!(denied.status, 429);
            assert!(
                denied.body.contains(r#""on_release":true"#),
                "the time is unknown: {}",
                denied.body
            );
            denied
        } else {
            ask(&cached, get("/")).await
        };
        assert_eq!(denied.header("ratelimit"), Some(r#""permits";r=0"#));
        reported.push(denied.header("retry-after").unwrap().parse().unwrap());
    }
    reported
}

// T48
#[tokio::test]
async fn clients_without_a_permit_get_different_retry_times() {
    let limiter = Limiter::with_clock("concurrency 1".parse().unwrap(), ManualClock::new());
    let layer = || ConcurrencyLayer::new(Limit::over("permits", limiter.clone())).unwrap();
    assert_eq!(
        deny_without_permit(layer(), &limiter).await,
        vec![1; DENIED],
        "all retry together by default"
    );
    let spread = layer().retry_jitter(Duration::from_secs(10));
    assert_spread(&deny_without_permit(spread, &limiter).await, 1);
}

/// T48: a lease ends at a known time.
#[tokio::test]
async fn clients_that_wait_for_the_end_of_a_lease_get_different_retry_times() {
    let limiter =
        Limiter::with_clock("concurrency 1 lease 10s".parse().unwrap(), ManualClock::new());
    let layer = ConcurrencyLayer::new(Limit::over("permits", limiter.clone())).unwrap();
    let service = layer.retry_jitter(Duration::from_secs(10)).layer(Inner);
    let _taken = limiter.try_acquire(&b""[..]).unwrap();
    let mut reported = Vec::with_capacity(DENIED);
    for _ in 0..DENIED {
        let [retry_after, in_body, window] = reported_secs(&ask(&service, get("/")).await);
        assert_eq!([in_body, window], [retry_after; 2], "all fields say the same");
        reported.push(retry_after);
    }
    assert_spread(&reported, 10);
}

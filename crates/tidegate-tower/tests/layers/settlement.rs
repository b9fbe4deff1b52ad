//! What a request costs once its response is known.

use crate::fixture::{Body, Inner, ask, get, limit};
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use std::convert::Infallible;
use tidegate::{Limiter, ManualClock, Span};
use tidegate_tower::{Limit, RateLimitLayer};
use tower::util::ServiceExt;
use tower_layer::Layer;

#[tokio::test]
async fn a_failed_request_is_refunded() {
    let refunded =
        limit("orders", "1/h", &ManualClock::new()).refund_if(|status, _| status.is_server_error());
    let service = RateLimitLayer::new(refunded).unwrap().layer(Inner);
    for _ in 0..5 {
        let failed = ask(&service, get("/").header("answer", "503")).await;
        assert_eq!(failed.status, 503);
    }
    assert_eq!(ask(&service, get("/")).await.status, 200);
    assert_eq!(ask(&service, get("/")).await.status, 429, "a successful request stays charged");
}

#[tokio::test]
async fn an_error_of_the_service_is_refunded_too() {
    let refunded = limit("orders", "1/h", &ManualClock::new()).refund_if(|_, _| false);
    let broken =
        tower::service_fn(|_: Request<Body>| async { Err::<Response<Body>, &str>("broken") });
    let service = RateLimitLayer::new(refunded).unwrap().layer(broken);
    for _ in 0..3 {
        let result = service.clone().oneshot(Request::new(Body::default())).await;
        assert_eq!(result.unwrap_err(), "broken", "the error is passed on");
    }
}

/// The numbers and the policy are of the rule that decided.
#[tokio::test]
async fn numbers_are_reported_with_the_rule_that_decided_even_if_it_changes_during_the_call() {
    for is_settled in [false, true] {
        let limiter = Limiter::with_clock("10/h".parse().unwrap(), ManualClock::new());
        let limit = Limit::over("orders", limiter.clone());
        let limit = if is_settled { limit.charge_by(|_, _| 0) } else { limit };
        let changing = tower::service_fn(move |_: Request<Body>| {
            limiter.set_rule("99/min".parse().unwrap());
            async { Ok::<_, Infallible>(Response::new(Body::default())) }
        });
        let service = RateLimitLayer::new(limit).unwrap().layer(changing);
        let reply = ask(&service, get("/")).await;
        let reported = ["ratelimit-policy", "ratelimit"].map(|name| reply.header(name).unwrap());
        assert_eq!(reported, [r#""orders";q=10;w=3600"#, r#""orders";r=9;t=360"#], "{is_settled}");
    }
}

#[tokio::test]
async fn each_of_several_limits_is_refunded_by_its_own_condition() {
    let clock = ManualClock::new();
    let layer = RateLimitLayer::new(limit("kept", "2/h", &clock))
        .unwrap()
        .and(limit("back", "1/h", &clock).refund_if(|status, _| status == 503))
        .unwrap();
    let service = layer.layer(Inner);
    for expected in [503, 503, 429] {
        assert_eq!(ask(&service, get("/").header("answer", "503")).await.status, expected);
    }
}

#[tokio::test]
async fn bytes_of_the_body_are_charged_even_beyond_the_limit() {
    let clock = ManualClock::new();
    let limiter = Limiter::with_clock("10/s".parse().unwrap(), clock.clone());
    let egress = Limit::over("egress", limiter.clone()).charge_bytes();
    let service = RateLimitLayer::new(egress).unwrap().layer(Inner);
    let reply = ask(&service, get("/")).await;
    assert_eq!(reply.body.len(), 10);
    // 1 for the request and 10 for its body, from a bucket of 10: the debt is one, and the next request costs one.
    let denied = ask(&service, get("/")).await;
    assert_eq!(denied.status, 429);
    assert!(denied.body.contains(r#""retry_after_ms":200"#), "{}", denied.body);
    clock.advance(Span::from_millis(200));
    assert_eq!(ask(&service, get("/")).await.status, 200);
}

/// A billion times the burst becomes debt in one step.
#[tokio::test]
async fn a_charge_far_above_the_burst_is_charged_completely() {
    let clock = ManualClock::new();
    let egress = limit("egress", "10/s", &clock)
        .charge_by(|status, _| if status == 201 { 10_000_000_000 } else { 0 })
        .charge_bytes();
    let service = RateLimitLayer::new(egress).unwrap().layer(Inner);
    assert_eq!(ask(&service, get("/").header("answer", "201")).await.status, 201);
    // Also charged: 1 for the request, 10 for its body and 1 for the next request; 10 were available.
    let denied = ask(&service, get("/")).await;
    assert!(denied.body.contains(r#""retry_after_ms":1000000000200"#), "{}", denied.body);
    clock.advance(Span::from_millis(1_000_000_000_199));
    assert_eq!(ask(&service, get("/")).await.status, 429);
    clock.advance(Span::from_millis(1));
    assert_eq!(ask(&service, get("/")).await.status, 200, "the debt is repaid");
}

/// A body a hundred thousand times the burst.
#[tokio::test]
async fn every_byte_of_a_body_far_larger_than_the_burst_is_charged() {
    let clock = ManualClock::new();
    let big = tower::service_fn(|_: Request<Body>| async {
        Ok::<_, Infallible>(Response::new(Full::new(Bytes::from(vec![7; 1_000_000]))))
    });
    let egress = limit("egress", "10/s", &clock).charge_bytes();
    let service = RateLimitLayer::new(egress).unwrap().layer(big);
    assert_eq!(ask(&service, get("/")).await.body.len(), 1_000_000);
    let denied = ask(&service, get("/")).await;
    assert!(denied.body.contains(r#""retry_after_ms":99999200"#), "{}", denied.body);
}

#[tokio::test]
async fn a_body_that_is_dropped_is_charged_as_far_as_it_flowed() {
    let limiter = Limiter::with_clock("100/s".parse().unwrap(), ManualClock::new());
    let egress = Limit::over("egress", limiter.clone()).charge_bytes();
    let service = RateLimitLayer::new(egress).unwrap().layer(Inner);
    let response = service.clone().oneshot(Request::new(Body::default())).await.unwrap();
    drop(response);
    assert_eq!(
        limiter.peek(&b""[..]).remaining,
        98,
        "the request, and the one that the peek is for"
    );
    let response = service.oneshot(Request::new(Body::default())).await.unwrap();
    let mut body = response.into_body();
    drop(body.frame().await);
    assert_eq!(limiter.peek(&b""[..]).remaining, 87);
}

#[tokio::test]
async fn a_response_may_cost_more() {
    let clock = ManualClock::new();
    let logins = limit("logins", "5/h", &clock).charge_by(|status, _| u64::from(status == 401) * 2);
    let service = RateLimitLayer::new(logins).unwrap().layer(Inner);
    assert_eq!(ask(&service, get("/").header("answer", "401")).await.status, 401);
    let reply = ask(&service, get("/")).await;
    assert_eq!(reply.header("ratelimit"), Some(r#""logins";r=1;t=2880"#), "3 for what failed");
}

/// The window in which it was charged has ended.
#[tokio::test]
async fn a_charge_that_has_drained_is_not_refunded() {
    let clock = ManualClock::new();
    let window = limit("window", "2/min fixed from first", &clock)
        .refund_if(|status, _| status.is_server_error());
    let slow = tower::service_fn({
        let clock = clock.clone();
        move |request: Request<Body>| {
            let clock = clock.clone();
            async move {
                if request.uri().path() == "/slow" {
                    clock.advance(Span::from_secs(61));
                }
                Inner.oneshot(request).await
            }
        }
    });
    let service = RateLimitLayer::new(window).unwrap().layer(slow);
    let late = service
        .clone()
        .oneshot(Request::get("/slow").header("answer", "503").body(Body::default()).unwrap());
    assert_eq!(late.await.unwrap().status(), 503);
    for expected in [200, 200, 429] {
        assert_eq!(ask(&service, get("/")).await.status, expected);
    }
    let prompt = get("/").header("answer", "503");
    clock.advance(Span::from_secs(60));
    for _ in 0..3 {
        assert_eq!(ask(&service, copied(&prompt)).await.status, 503, "refunded at once");
    }
}

fn copied(request: &http::request::Builder) -> http::request::Builder {
    let mut again = get("/");
    again.headers_mut().unwrap().clone_from(request.headers_ref().unwrap());
    again
}

#[tokio::test]
async fn a_limit_in_shadow_mode_that_denied_refunds_nothing() {
    let clock = ManualClock::new();
    let limiter = Limiter::with_clock("2/h".parse().unwrap(), clock.clone());
    let tried = Limit::over("tried", limiter.clone())
        .shadow()
        .refund_if(|status, _| status.is_server_error());
    let service = RateLimitLayer::new(limit("real", "100/h", &clock)).unwrap();
    let service = service.and(tried).unwrap().layer(Inner);
    for _ in 0..2 {
        assert_eq!(ask(&service, get("/")).await.status, 200);
    }
    assert_eq!(ask(&service, get("/").header("answer", "503")).await.status, 503);
    assert!(limiter.peek(&b""[..]).is_deny(), "the third request was not charged");
}

/// Otherwise a client could start any number of downloads during the first one.
#[tokio::test]
async fn while_bytes_flow_the_bucket_stays_empty() {
    let limiter = Limiter::with_clock("15/s".parse().unwrap(), ManualClock::new());
    let egress = Limit::over("egress", limiter.clone()).cost(0).charge_bytes();
    let service = RateLimitLayer::new(egress).unwrap().layer(Inner);
    let mut bodies = Vec::new();
    for _ in 0..2 {
        let response = service.clone().oneshot(Request::new(Body::default())).await.unwrap();
        let mut body = response.into_body();
        drop(body.frame().await);
        bodies.push(body);
    }
    assert_eq!(limiter.request(&b""[..]).cost(0).peek().remaining, 0, "15 of 20 have been charged");
    assert!(limiter.check(&b""[..]).is_deny());
}

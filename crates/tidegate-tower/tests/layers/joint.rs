//! Several limits in one layer, and limits for some requests only.

use crate::fixture::{Inner, ask, from, get, limit};
use http::HeaderName;
use tidegate::{Limiter, ManualClock, Span};
use tidegate_tower::{HeaderStyle, Key, Limit, OnMissing, RateLimitLayer};
use tower_layer::Layer;

#[tokio::test]
async fn a_request_that_one_limit_denies_is_charged_by_none() {
    let clock = ManualClock::new();
    let site = Limiter::with_clock("10/s".parse().unwrap(), clock.clone());
    let layer = RateLimitLayer::new(limit("ip", "2/s", &clock).key(Key::ip()))
        .unwrap()
        .and(Limit::over("site", site.clone()))
        .unwrap();
    let service = layer.layer(Inner);
    for _ in 0..2 {
        assert_eq!(ask(&service, from("192.0.2.1")).await.status, 200);
    }
    for _ in 0..50 {
        let reply = ask(&service, from("192.0.2.1")).await;
        assert_eq!(reply.status, 429);
        assert!(reply.body.contains(r#""violated-policies":["ip"]"#));
    }
    assert_eq!(site.peek(&b""[..]).remaining, 7, "8 are left, and the peek is for one");
    let reply = ask(&service, from("192.0.2.2")).await;
    assert_eq!(reply.header("ratelimit-policy"), Some(r#""ip";q=2;w=1, "site";q=10;w=1"#));
    assert_eq!(reply.header("ratelimit"), Some(r#""ip";r=1;t=1, "site";r=7;t=1"#));
}

#[tokio::test]
async fn a_limit_in_shadow_mode_rejects_no_request_and_is_charged_separately() {
    let clock = ManualClock::new();
    let tried = Limiter::with_clock("1/h".parse().unwrap(), clock.clone());
    let layer = RateLimitLayer::new(limit("api", "3/s", &clock))
        .unwrap()
        .and(Limit::over("tried", tried.clone()).shadow())
        .unwrap();
    let service = layer.layer(Inner);
    for _ in 0..3 {
        assert_eq!(ask(&service, get("/")).await.status, 200);
    }
    let reply = ask(&service, get("/")).await;
    assert!(reply.body.contains(r#""violated-policies":["api"]"#), "{}", reply.body);
    let counted = (tried.stats().allowed, tried.stats().denied);
    assert_eq!(counted, (1, 2), "when another limit denies, it is only peeked at");
}

/// As if it were enforced, and as in the server.
#[tokio::test]
async fn a_limit_in_shadow_mode_is_not_charged_for_what_another_limit_denies() {
    let clock = ManualClock::new();
    let tried = Limiter::with_clock("100/h".parse().unwrap(), clock.clone());
    let layer = RateLimitLayer::new(limit("api", "3/h", &clock))
        .unwrap()
        .and(Limit::over("tried", tried.clone()).shadow())
        .unwrap();
    let service = layer.layer(Inner);
    let mut statuses = Vec::new();
    for _ in 0..10 {
        statuses.push(ask(&service, get("/")).await.status);
    }
    assert_eq!(statuses.iter().filter(|status| **status == 200).count(), 3);
    assert_eq!(tried.request(&b""[..]).cost(0).peek().remaining, 97);
}

/// A polite client would slow down by the numbers that it sees.
#[tokio::test]
async fn clients_see_nothing_of_a_limit_in_shadow_mode() {
    let styles =
        [HeaderStyle::Draft11, HeaderStyle::NextAC, HeaderStyle::Draft06, HeaderStyle::Legacy];
    for style in styles {
        let clock = ManualClock::new();
        let shadow = || limit("tried", "1/h", &clock).shadow();
        let alone = RateLimitLayer::new(shadow()).unwrap().headers(style).layer(Inner);
        let among = RateLimitLayer::new(limit("api", "3/h", &clock)).unwrap().and(shadow());
        let among = among.unwrap().headers(style).layer(Inner);
        for status in [200, 200, 200, 429] {
            let reply = ask(&alone, get("/")).await;
            let is_limit_field = |(name, _): &(&HeaderName, _)| name.as_str().contains("ratelimit");
            assert_eq!(reply.headers.iter().find(is_limit_field), None, "{style:?}");
            let reply = ask(&among, get("/")).await;
            assert_eq!(reply.status, status, "{style:?}");
            assert!(reply.headers.iter().any(|field| is_limit_field(&field)), "{style:?}");
            for (name, reported) in reply.headers.iter().filter(is_limit_field) {
                let reported = reported.to_str().unwrap();
                assert!(!reported.contains("tried"), "{style:?}: {name}: {reported}");
            }
            let limit = reply.header("x-ratelimit-limit").or(reply.header("ratelimit-limit"));
            assert!(limit.is_none_or(|limit| limit == "3"), "{style:?}: {limit:?}");
        }
    }
}

#[tokio::test]
async fn limits_by_path_count_whole_segments() {
    let clock = ManualClock::new();
    let layer = RateLimitLayer::new(limit("reports", "1/h", &clock).path_prefix("/reports"))
        .unwrap()
        .and(limit("writes", "1/h", &clock).when(|head| !head.method().is_safe()))
        .unwrap();
    let service = layer.layer(Inner);
    assert_eq!(ask(&service, get("/reports/2026")).await.status, 200);
    assert_eq!(ask(&service, get("/reports")).await.status, 429);
    let other = ask(&service, get("/reportshop")).await;
    assert_eq!((other.status, other.header("ratelimit")), (200, None), "no limit counts it");
    assert_eq!(ask(&service, get("/").method("POST")).await.status, 200);
    assert_eq!(ask(&service, get("/").method("PUT")).await.status, 429);
}

#[tokio::test]
async fn per_user_if_there_is_one_and_per_address_anyway() {
    let clock = ManualClock::new();
    let user = limit("user", "2/h", &clock)
        .key(Key::header(HeaderName::from_static("x-user")))
        .on_missing(OnMissing::Allow);
    let layer =
        RateLimitLayer::new(limit("ip", "3/h", &clock).key(Key::ip())).unwrap().and(user).unwrap();
    let service = layer.layer(Inner);
    let as_user = |ip: &str| from(ip).header("x-user", "alice");
    assert_eq!(ask(&service, as_user("192.0.2.1")).await.status, 200);
    assert_eq!(ask(&service, as_user("192.0.2.2")).await.status, 200);
    assert_eq!(ask(&service, as_user("192.0.2.3")).await.status, 429, "alice, from any address");
    for expected in [200, 200, 200, 429] {
        assert_eq!(ask(&service, from("192.0.2.3")).await.status, expected);
    }
}

#[tokio::test]
async fn the_longest_wait_is_reported() {
    let clock = ManualClock::new();
    let layer = RateLimitLayer::new(limit("second", "1/s", &clock))
        .unwrap()
        .and(limit("minute", "1/min", &clock))
        .unwrap();
    let service = layer.layer(Inner);
    ask(&service, get("/")).await;
    let reply = ask(&service, get("/")).await;
    assert_eq!(reply.header("retry-after"), Some("60"));
    clock.advance(Span::from_secs(60));
    assert_eq!(ask(&service, get("/")).await.status, 200);
}

//! The decisions of one limit, and how they are reported.

use crate::fixture::{Inner, ask, call, from, get, limit};
use http::Response;
use std::sync::{Arc, Mutex};
use tidegate::{Limiter, ManualClock, Span};
use tidegate_tower::{Denial, Event, HeaderStyle, Key, Limit, Observer, RateLimitLayer};
use tower_layer::Layer;

#[tokio::test]
async fn every_response_reports_what_is_left() {
    let clock = ManualClock::new();
    let layer = RateLimitLayer::new(limit("api", "2/s", &clock)).unwrap();
    let service = layer.layer(Inner);
    let reply = ask(&service, get("/")).await;
    assert_eq!((reply.status, &*reply.body), (200, "0123456789"));
    assert_eq!(reply.header("ratelimit-policy"), Some(r#""api";q=2;w=1"#));
    assert_eq!(reply.header("ratelimit"), Some(r#""api";r=1;t=1"#));
    assert_eq!(reply.header("retry-after"), None);
    let reply = ask(&service, get("/").header("answer", "404")).await;
    assert_eq!(reply.status, 404);
    assert_eq!(reply.header("ratelimit"), Some(r#""api";r=0;t=1"#), "on a failure too");
}

#[tokio::test]
async fn a_denial_is_a_response_that_says_when_to_retry() {
    let clock = ManualClock::new();
    let service =
        RateLimitLayer::new(limit("api", "1/1500ms burst 1", &clock)).unwrap().layer(Inner);
    assert_eq!(ask(&service, get("/")).await.status, 200);
    let reply = ask(&service, get("/")).await;
    assert_eq!(reply.status, 429);
    assert_eq!(reply.header("retry-after"), Some("2"), "rounded up");
    assert_eq!(reply.header("ratelimit"), Some(r#""api";r=0;t=2"#));
    assert_eq!(reply.header("content-type"), Some("application/problem+json"));
    assert_eq!(reply.header("cache-control"), Some("no-store"));
    assert_eq!(
        reply.body,
        "{\"type\":\"https://iana.org/assignments/http-problem-types#quota-exceeded\",\"title\":\"Request cannot be \
         satisfied as assigned quota has been exceeded\",\"status\":429,\"violated-policies\":[\"api\"],\
         \"allow\":false,\"limit\":1,\"remaining\":0,\"retry_after_ms\":1500,\"reset_after_ms\":1500}"
    );
    clock.advance(Span::from_millis(1_500));
    assert_eq!(
        ask(&service, get("/")).await.status,
        200,
        "a client that waits for the retry time is admitted"
    );
}

#[tokio::test]
async fn retry_after_of_a_denial_is_never_zero() {
    let clock = ManualClock::new();
    let service = RateLimitLayer::new(limit("a", "1000/s burst 1", &clock)).unwrap().layer(Inner);
    ask(&service, get("/")).await;
    assert_eq!(ask(&service, get("/")).await.header("retry-after"), Some("1"));
    clock.advance(Span::from_micros(999));
    assert_eq!(ask(&service, get("/")).await.header("retry-after"), Some("1"));
}

#[tokio::test]
async fn clones_and_further_services_of_a_layer_share_its_limit() {
    let layer = RateLimitLayer::new(limit("api", "3/s", &ManualClock::new())).unwrap();
    let (one, other) = (layer.layer(Inner), layer.clone().layer(Inner));
    let statuses = [
        ask(&one, get("/")).await.status,
        ask(&one.clone(), get("/")).await.status,
        ask(&other, get("/")).await.status,
        ask(&other.clone(), get("/")).await.status,
    ];
    assert_eq!(statuses, [200, 200, 200, 429]);
}

#[tokio::test]
async fn header_fields_are_those_of_the_chosen_style() {
    let clock = ManualClock::new();
    let layer = |name| RateLimitLayer::new(limit(name, "5/s", &clock)).unwrap();
    let legacy = layer("a").headers(HeaderStyle::Legacy).layer(Inner);
    let reply = ask(&legacy, get("/")).await;
    assert_eq!(reply.header("x-ratelimit-remaining"), Some("4"));
    assert_eq!(reply.header("ratelimit"), Some(r#""a";r=4;t=1"#));
    let draft_06 = layer("b").headers(HeaderStyle::Draft06).layer(Inner);
    let reply = ask(&draft_06, get("/")).await;
    assert_eq!(reply.header("ratelimit-remaining"), Some("4"));
    let silent = layer("c").no_headers().layer(Inner);
    assert!(ask(&silent, get("/")).await.headers.is_empty());
}

#[tokio::test]
async fn fields_follow_a_rule_that_is_changed() {
    let limiter = Limiter::with_clock("5/s".parse().unwrap(), ManualClock::new());
    let layer = RateLimitLayer::new(Limit::over("api", limiter.clone())).unwrap();
    let service = layer.layer(Inner);
    limiter.set_rule("20/min".parse().unwrap());
    let reply = ask(&service, get("/")).await;
    assert_eq!(reply.header("ratelimit-policy"), Some(r#""api";q=20;w=60"#));
}

#[tokio::test]
async fn a_limit_in_shadow_mode_counts_and_rejects_no_request() {
    let limiter = Limiter::with_clock("1/s".parse().unwrap(), ManualClock::new());
    let seen = Arc::new(Mutex::new(Vec::new()));
    let notes = Arc::clone(&seen);
    let layer = RateLimitLayer::new(Limit::over("next", limiter.clone()).shadow())
        .unwrap()
        .observe(move |event: &Event<'_>| notes.lock().unwrap().push(event.verdict()));
    let service = layer.layer(Inner);
    for _ in 0..3 {
        let reply = ask(&service, get("/")).await;
        assert_eq!((reply.status, reply.header("retry-after")), (200, None));
    }
    assert_eq!(*seen.lock().unwrap(), ["allow", "shadow", "shadow"]);
    assert_eq!(limiter.stats().denied, 2);
}

/// A client retries at the time that it sees, and there is none.
#[tokio::test]
async fn a_rule_that_admits_nothing_reports_no_retry_time() {
    for style in [HeaderStyle::Draft11, HeaderStyle::Legacy, HeaderStyle::Draft06] {
        let closed = limit("closed", "0/s", &ManualClock::new());
        let service = RateLimitLayer::new(closed).unwrap().headers(style).layer(Inner);
        let reply = ask(&service, get("/")).await;
        assert_eq!((reply.status, reply.header("retry-after")), (429, None), "{style:?}");
        assert!(reply.body.contains(r#""limit":0,"remaining":0,"retry_after_ms":null"#));
        assert!(reply.body.contains(r#""never":true"#), "{}", reply.body);
        let reported = reply.header("ratelimit").unwrap_or(r#""closed";r=0"#);
        assert_eq!(reported, r#""closed";r=0"#, "{style:?}");
        for name in ["x-ratelimit-reset", "ratelimit-reset"] {
            assert_eq!(reply.header(name), None, "{style:?}");
        }
    }
}

#[tokio::test]
async fn a_response_of_the_program_has_the_header_fields_too() {
    let clock = ManualClock::new();
    let layer = RateLimitLayer::new(limit("news", "1/s", &clock)).unwrap().fallback(
        |head, denial: &Denial<'_>| {
            let names: Vec<&str> = denial.limits().collect();
            Response::new(format!("{} is old, {}", head.path(), names[0]))
        },
    );
    let service = layer.layer(Inner);
    ask(&service, get("/today")).await;
    let reply = ask(&service, get("/today")).await;
    assert_eq!((reply.status, &*reply.body), (200, "/today is old, news"));
    assert_eq!(reply.header("ratelimit"), Some(r#""news";r=0;t=1"#));
    assert_eq!(reply.header("retry-after"), Some("1"));
}

#[tokio::test]
async fn a_fallback_service_responds_to_denied_requests() {
    let clock = ManualClock::new();
    let other = tower::service_fn(|request: http::Request<crate::fixture::Body>| async move {
        let denied = request.extensions().get::<tidegate::Denied>().unwrap();
        let body = crate::fixture::Body::from(denied.to_string());
        Ok::<_, std::convert::Infallible>(Response::new(body))
    });
    let layer = RateLimitLayer::new(limit("news", "1/s", &clock)).unwrap().fallback_service(other);
    let service = layer.layer(Inner);
    assert_eq!(ask(&service, get("/")).await.body, "0123456789");
    let reply = ask(&service, get("/")).await;
    assert_eq!((reply.status, &*reply.body), (200, "denied: retry after 1s"));
    assert_eq!(reply.header("ratelimit"), Some(r#""news";r=0;t=1"#));
}

#[tokio::test]
async fn grpc_is_denied_by_its_own_status() {
    let clock = ManualClock::new();
    let service = RateLimitLayer::new(limit("rpc", "1/s", &clock)).unwrap().layer(Inner);
    ask(&service, call()).await;
    let reply = ask(&service, call()).await;
    assert_eq!((reply.status, &*reply.body), (200, ""));
    assert_eq!(reply.header("grpc-status"), Some("8"));
    assert_eq!(reply.header("grpc-message"), Some("denied: retry after 1s by rpc"));
    assert_eq!(reply.header("retry-after"), Some("1"));
    assert_eq!(reply.header("cache-control"), Some("no-store"));
    let page = get("/app.js").header("content-type", "application/grpc");
    assert_eq!(ask(&service, page).await.status, 429, "gRPC is sent by POST");
}

/// A gRPC-Web client reads trailers from the body: for it, "200" and an empty body are a success that was cut off.
#[tokio::test]
async fn only_grpc_itself_is_denied_by_its_status() {
    let kinds = [
        ("application/grpc", 200),
        ("application/grpc+proto", 200),
        ("application/grpc; charset=utf-8", 200),
        ("application/grpc-web", 429),
        ("application/grpc-web+proto", 429),
        ("application/grpc-web-text", 429),
    ];
    for (kind, status) in kinds {
        let layer = RateLimitLayer::new(limit("api", "1/h", &ManualClock::new())).unwrap();
        let service = layer.layer(Inner);
        let call = || http::Request::post("/pkg.Service/Call").header("content-type", kind);
        ask(&service, call()).await;
        let denied = ask(&service, call()).await;
        assert_eq!((denied.status, denied.header("retry-after")), (status, Some("3600")), "{kind}");
        assert_eq!(denied.header("grpc-status").is_some(), status == 200, "{kind}");
    }
}

#[tokio::test]
async fn costs_come_from_the_request_and_a_cost_above_the_burst_is_never_admitted() {
    let clock = ManualClock::new();
    let by_header = limit("api", "10/s", &clock)
        .cost_by(|head| head.header("cost").and_then(|cost| cost.parse().ok()).unwrap_or(1));
    let service = RateLimitLayer::new(by_header).unwrap().layer(Inner);
    let cost = |cost: &str| get("/").header("cost", cost);
    assert_eq!(ask(&service, cost("7")).await.header("ratelimit"), Some(r#""api";r=3;t=1"#));
    assert_eq!(ask(&service, cost("4")).await.status, 429);
    let never = ask(&service, cost("11")).await;
    assert_eq!((never.status, never.header("retry-after")), (429, None));
    assert!(never.body.contains(r#""never":true"#));
    assert_eq!(ask(&service, cost("3")).await.status, 200);
}

#[tokio::test]
async fn observers_get_keys_only_if_they_want_them() {
    struct Curious(Arc<Mutex<Vec<Option<Vec<u8>>>>>, bool);
    impl Observer for Curious {
        fn decided(&self, event: &Event<'_>) {
            self.0.lock().unwrap().push(event.key.map(<[u8]>::to_vec));
        }
        fn wants_keys(&self) -> bool {
            self.1
        }
    }
    let (reported, unreported) = (Arc::default(), Arc::default());
    let layer = RateLimitLayer::new(limit("ip", "9/s", &ManualClock::new()).key(Key::ip()))
        .unwrap()
        .observe(Curious(Arc::clone(&reported), true))
        .observe(Curious(Arc::clone(&unreported), false));
    ask(&layer.layer(Inner), from("192.0.2.7")).await;
    assert_eq!(*reported.lock().unwrap(), [Some(b"192.0.2.7".to_vec())]);
    assert_eq!(*unreported.lock().unwrap(), [None]);
}

#[test]
fn a_bad_rule_and_the_wrong_layer_are_errors_that_say_what_to_do() {
    let error = RateLimitLayer::per_ip("100/s bust 20").unwrap_err();
    assert_eq!(error.to_string(), "the rule of limit `per-ip` cannot be read");
    let source = std::error::Error::source(&error).unwrap().to_string();
    assert!(source.starts_with("unknown word `bust`"), "{source}");
    let shown = format!("{error:?}");
    assert!(shown.contains("limit `per-ip`") && shown.contains("did you mean `burst`?"), "{shown}");
    let error = RateLimitLayer::for_all("concurrency 5").unwrap_err();
    assert!(error.to_string().contains("give it to a ConcurrencyLayer"), "{error}");
}

//! Tests of the bodies of decisions.

use super::Harness;
use serde_json::json;
use tidegate::Span;

#[tokio::test]
async fn the_body_of_an_allowed_request_has_the_remaining_quota() {
    let harness = Harness::new();
    let reply = harness.check(r#"{"limit":"api","key":"alice"}"#).await;
    assert_eq!(reply.status, 200);
    assert_eq!(reply.field("content-type"), Some("application/json"));
    assert_eq!(
        reply.text,
        r#"{"allow":true,"limit":10,"remaining":9,"retry_after_ms":null,"reset_after_ms":100}"#
    );
}

#[tokio::test]
async fn the_body_of_a_denial_has_the_retry_time_and_the_reason() {
    let harness = Harness::new();
    harness.check(r#"{"limit":"api","key":"alice","cost":10}"#).await;
    let reply = harness.check(r#"{"limit":"api","key":"alice"}"#).await;
    assert_eq!(reply.status, 429);
    assert_eq!(reply.field("content-type"), Some("application/problem+json"));
    assert_eq!(reply.field("cache-control"), Some("no-store"));
    assert_eq!(
        reply.json(),
        json!({
            "type": "https://iana.org/assignments/http-problem-types#quota-exceeded",
            "title": "Request cannot be satisfied as assigned quota has been exceeded",
            "status": 429,
            "violated-policies": ["api"],
            "allow": false,
            "limit": 10,
            "remaining": 0,
            "retry_after_ms": 100,
            "reset_after_ms": 1000,
        })
    );
}

#[tokio::test]
async fn waiting_for_retry_after_is_enough_and_a_little_less_is_not() {
    let harness = Harness::new();
    let rule = r#"{"rule":"3/s","key":"alice"}"#;
    for _ in 0..3 {
        harness.check(rule).await;
    }
    let retry_after_ms = harness.check(rule).await.json()["retry_after_ms"].as_u64().unwrap();
    assert_eq!(retry_after_ms, 334, "a third of a second, rounded up");
    harness.clock.advance(Span::from_millis(retry_after_ms - 1));
    assert_eq!(harness.check(rule).await.status, 429);
    harness.clock.advance(Span::from_millis(1));
    assert_eq!(harness.check(rule).await.status, 200);
}

#[tokio::test]
async fn a_cost_above_the_capacity_is_denied_forever() {
    let harness = Harness::new();
    for cost in ["11", "18446744073709551615"] {
        let body = format!(r#"{{"limit":"api","key":"alice","cost":{cost}}}"#);
        let reply = harness.check(&body).await;
        assert_eq!(reply.status, 429);
        let json = reply.json();
        assert_eq!((&json["never"], &json["retry_after_ms"]), (&json!(true), &json!(null)));
        assert_eq!(json["remaining"], 10, "it cost nothing");
        assert_eq!(reply.field("retry-after"), None, "waiting does not help");
    }
}

#[tokio::test]
async fn a_cost_may_be_written_as_any_whole_number() {
    let harness = Harness::new();
    for (cost, remaining) in [("2.0", 8), ("20e-1", 6), ("-0.0", 6)] {
        let body = format!(r#"{{"limit":"api","key":"alice","cost":{cost}}}"#);
        assert_eq!(harness.check(&body).await.json()["remaining"], remaining, "{cost}");
    }
    for cost in ["0.5", "-2.0", "9007199254740992.0", "1e300"] {
        let body = format!(r#"{{"limit":"api","key":"alice","cost":{cost}}}"#);
        assert_eq!(harness.check(&body).await.status, 400, "{cost}");
    }
}

#[tokio::test]
async fn a_cost_of_0_is_never_denied() {
    let harness = Harness::new();
    harness.check(r#"{"limit":"api","key":"alice","cost":10}"#).await;
    let reply = harness.check(r#"{"limit":"api","key":"alice","cost":0}"#).await;
    assert_eq!((reply.status, &reply.json()["remaining"]), (200, &json!(0)));
}

#[tokio::test]
async fn a_rule_that_makes_requests_wait_allows_with_the_wait() {
    let harness = Harness::new();
    let queue = r#"{"rule":"10/s queue capacity 5","key":"alice"}"#;
    let first = harness.check(queue).await;
    assert_eq!((first.status, first.json().get("wait_ms")), (200, None));
    let second = harness.check(queue).await.json();
    assert_eq!((&second["allow"], &second["wait_ms"]), (&json!(true), &json!(100)));
}

#[tokio::test]
async fn a_limit_in_shadow_mode_allows_all_requests_and_reports_denials() {
    let harness = Harness::new();
    harness.check(r#"{"limit":"shy","key":"alice"}"#).await;
    let reply = harness.check(r#"{"limit":"shy","key":"alice"}"#).await;
    assert_eq!((reply.status, &reply.json()["shadowed"]), (200, &json!(true)));
    assert_eq!(reply.field("ratelimit"), None, "but not to clients");
    let both = r#"{"checks":[{"limit":"shy","key":"bob"},{"limit":"api","key":"bob"}]}"#;
    assert_eq!(harness.check(both).await.field("ratelimit-policy"), Some(r#""api";q=10;w=1"#));
    assert_eq!(harness.server.engine.find("shy").unwrap().shadowed(), 1);
}

#[tokio::test]
async fn a_limit_that_is_off_sends_no_header_fields() {
    let reply = Harness::new().check(r#"{"limit":"off","key":"alice","cost":100}"#).await;
    assert_eq!((reply.status, reply.field("ratelimit")), (200, None));
}

#[tokio::test]
async fn a_peek_costs_nothing() {
    let harness = Harness::new();
    for _ in 0..2 {
        let reply = harness.post("/v1/peek", r#"{"limit":"api","key":"a","cost":10}"#).await;
        assert_eq!((reply.status, &reply.json()["allow"]), (200, &json!(true)));
    }
    let reply = harness.post("/v1/peek", r#"{"limit":"api","key":"a","cost":11}"#).await;
    assert_eq!(reply.status, 429);
}

#[tokio::test]
async fn a_reset_clears_one_key_and_a_refund_returns_a_cost() {
    let harness = Harness::new();
    let remaining = |reply: super::Reply| reply.json()["remaining"].as_u64().unwrap();
    harness.check(r#"{"limit":"api","key":"alice","cost":8}"#).await;
    harness.check(r#"{"limit":"api","key":"bob","cost":8}"#).await;
    let refund = r#"{"limit":"api","key":"alice","cost":3}"#;
    assert_eq!(remaining(harness.post("/v1/refund", refund).await), 5);
    let reset = r#"{"limit":"api","key":"alice"}"#;
    assert_eq!(remaining(harness.post("/v1/reset", reset).await), 10);
    let bob = r#"{"limit":"api","key":"bob","cost":0}"#;
    assert_eq!(remaining(harness.check(bob).await), 2);
}

#[tokio::test]
async fn the_same_bytes_are_the_same_key_however_they_are_written() {
    let harness = Harness::new();
    let ways = [r#""key":"ab""#, r#""key":"\u0061b""#, r#""key_base64":"YWI=""#];
    for (way, left) in ways.into_iter().zip([9, 8, 7]) {
        let reply = harness.check(&format!(r#"{{"limit":"api",{way}}}"#)).await;
        assert_eq!(reply.json()["remaining"], left, "{way}");
    }
}

#[tokio::test]
async fn any_bytes_are_a_key() {
    let harness = Harness::new();
    let keys = [
        r#""key":"""#,
        r#""key":"\n\u001b[31m\u0000""#,
        r#""key":"<script>alert(1)</script>""#,
        r#""key":"ü€𝄞""#,
        r#""key_base64":"//79""#,
    ];
    for key in keys {
        let reply = harness.check(&format!(r#"{{"limit":"api",{key}}}"#)).await;
        assert_eq!((reply.status, &reply.json()["remaining"]), (200, &json!(9)), "{key}");
    }
}

//! Tests of the header fields of decisions.

use super::{Harness, limit, post};
use crate::config::Config;
use http::Request;

const ALICE: &[u8] = br#"{"limit":"api","key":"alice"}"#;

#[tokio::test]
async fn the_fields_of_draft_11_come_unasked() {
    let harness = Harness::new();
    let reply = harness.post("/v1/check", ALICE).await;
    assert_eq!(reply.field("ratelimit-policy"), Some(r#""api";q=10;w=1"#));
    assert_eq!(reply.field("ratelimit"), Some(r#""api";r=9;t=1"#));
    assert_eq!(reply.field("retry-after"), None);
    assert_eq!(reply.field("x-ratelimit-limit"), None);
}

#[tokio::test]
async fn retry_after_is_rounded_up_and_never_zero() {
    let harness = Harness::new();
    for (rule, seconds) in [("1/s", "1"), ("1/1001ms", "2"), ("1000/s", "1"), ("1/h", "3600")] {
        let body = format!(r#"{{"rule":"{rule} burst 1","key":"alice"}}"#);
        assert_eq!(harness.check(&body).await.status, 200);
        let reply = harness.check(&body).await;
        assert_eq!((reply.status, reply.field("retry-after")), (429, Some(seconds)), "{rule}");
    }
}

#[tokio::test]
async fn retry_after_never_ends_before_the_window_does() {
    let harness = Harness::new();
    let body = r#"{"rule":"10/min burst 10","key":"alice","cost":10}"#;
    harness.check(body).await;
    let reply = harness.check(r#"{"rule":"10/min burst 10","key":"alice"}"#).await;
    assert_eq!(reply.field("retry-after"), Some("6"));
    assert_eq!(reply.field("ratelimit"), Some(r#""10/min";r=0;t=6"#));
}

#[tokio::test]
async fn a_policy_has_a_window_where_the_rule_has_whole_seconds() {
    let harness = Harness::new();
    let policies = [
        ("50/10s burst 5", r#""50/10s burst 5";q=50;w=10"#),
        ("2/10ms", r#""2/10ms";q=200;w=1"#),
        ("2/7ms", r#""2/7ms";q=2"#),
        ("1/day calendar", r#""1/day calendar";q=1;w=86400"#),
        ("9/month calendar", r#""9/month calendar";q=9"#),
        ("10r/m burst=4 nodelay", r#""10r/m burst=4 nodelay";q=10;w=60"#),
    ];
    for (rule, policy) in policies {
        let reply = harness.check(&format!(r#"{{"rule":"{rule}","key":"a"}}"#)).await;
        assert_eq!(reply.field("ratelimit-policy"), Some(policy));
    }
    let reply = harness.post("/v1/acquire", r#"{"rule":"concurrency 3","key":"a"}"#).await;
    let policy = r#""concurrency 3";q=3;qu="concurrent-requests""#;
    assert_eq!(reply.field("ratelimit-policy"), Some(policy));
}

#[tokio::test]
async fn older_header_fields_are_sent_on_request() {
    let harness = Harness::new();
    let asked = harness.ask(post("/v1/check").header("x-ratelimit-style", "legacy"), ALICE).await;
    let by_query = harness.ask(post("/v1/check?headers=legacy"), ALICE).await;
    for (reply, left) in [(asked, "9"), (by_query, "8")] {
        assert_eq!(reply.field("x-ratelimit-limit"), Some("10"));
        assert_eq!(reply.field("x-ratelimit-remaining"), Some(left));
        assert_eq!(reply.field("x-ratelimit-reset"), Some("1"));
        assert!(reply.field("ratelimit").is_some());
    }
    let reply = harness.ask(post("/v1/check?headers=draft-06"), ALICE).await;
    assert_eq!(reply.field("ratelimit-limit"), Some("10"));
    assert_eq!(reply.field("ratelimit-remaining"), Some("7"));
    assert_eq!(reply.field("ratelimit-reset"), Some("1"));
    assert_eq!(reply.field("ratelimit-policy"), Some("10;w=1"));
    let reply = harness.ask(post("/v1/check?headers=next"), ALICE).await;
    assert_eq!(reply.field("ratelimit"), Some(r#""api";a=6;w=1"#));
}

#[tokio::test]
async fn an_unknown_style_is_refused_and_a_similar_one_suggested() {
    let harness = Harness::new();
    let wrong = [
        (post("/v1/check?headers=legasy"), "did you mean `legacy`?"),
        (post("/v1/check?headers=draft-6"), "did you mean `draft-06`?"),
        (post("/v1/check?headers=fancy"), "there are draft-11, legacy, draft-06, next"),
        (post("/v1/check?headers="), "there are draft-11"),
        (post("/v1/check").header("x-ratelimit-style", "Legacy"), "did you mean `legacy`?"),
        (post("/v1/check?headers=next").header("x-ratelimit-style", "fancy"), "there are draft-11"),
        (
            Request::get("/v1/authorize?headers=nxt").header("host", "localhost"),
            "did you mean `next`?",
        ),
    ];
    for (request, says) in wrong {
        let reply = harness.ask(request, ALICE).await;
        assert_eq!(reply.status, 400, "{says}");
        assert!(reply.detail().contains(says), "{:?} does not contain {says:?}", reply.detail());
    }
    let of_a_client = Request::get("/v1/authorize?limit=api&key=bob&headers=draft-06")
        .header("host", "localhost")
        .header("x-ratelimit-style", "fancy");
    let reply = harness.ask(of_a_client, b"").await;
    assert_eq!((reply.status, reply.field("ratelimit-limit")), (204, Some("10")));
    let reply = harness.ask(post("/v1/check?headers=draft%2D11"), ALICE).await;
    assert!(reply.field("ratelimit").unwrap().contains(";r=9;"), "nothing was charged before");
}

#[tokio::test]
async fn names_are_escaped_and_numbers_capped_in_header_fields() {
    let limits = vec![limit("a \"b\\\" ü\n", "9007199254740992/4week")];
    let harness = Harness::with(Config { limits, ..Config::default() });
    let reply = harness.check(r#"{"limit":"a \"b\\\" ü\n","key":"k"}"#).await;
    let name = r#""a \"b\\\" %C3%BC%0A""#;
    let policy = format!("{name};q=999999999999999;w=2419200");
    assert_eq!(reply.field("ratelimit-policy"), Some(&*policy));
    let left = format!("{name};r=999999999999999;t=1");
    assert_eq!(reply.field("ratelimit"), Some(&*left));
}

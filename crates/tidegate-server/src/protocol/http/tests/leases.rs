//! Tests of `/v1/acquire` and `/v1/release`.

use super::Harness;
use serde_json::json;
use tidegate::Span;

const TAKE: &str = r#"{"limit":"pool","key":"db"}"#;

#[tokio::test]
async fn a_permit_is_acquired_and_released_once() {
    let harness = Harness::new();
    let first = harness.post("/v1/acquire", TAKE).await;
    assert_eq!(first.status, 200);
    let first = first.json();
    assert_eq!((&first["allow"], &first["remaining"]), (&json!(true), &json!(1)));
    assert_eq!(first["lease_ms"], 30_000);
    assert_eq!(harness.post("/v1/acquire", TAKE).await.status, 200);

    let denied = harness.post("/v1/acquire", TAKE).await;
    assert_eq!((denied.status, denied.field("retry-after")), (429, Some("30")));
    assert_eq!(denied.json().get("lease"), None);

    let release = json!({"lease": first["lease"]}).to_string();
    assert_eq!(harness.post("/v1/release", &release).await.json(), json!({"released": true}));
    assert_eq!(harness.post("/v1/release", &release).await.json(), json!({"released": false}));
    assert_eq!(harness.post("/v1/acquire", TAKE).await.status, 200);
}

#[tokio::test]
async fn a_permit_is_released_when_its_lease_expires() {
    let harness = Harness::new();
    for _ in 0..2 {
        harness.post("/v1/acquire", TAKE).await;
    }
    harness.clock.advance(Span::from_secs(30));
    assert_eq!(harness.post("/v1/acquire", TAKE).await.status, 200);
}

#[tokio::test]
async fn an_invalid_lease_and_a_limit_without_leases_are_refused() {
    let harness = Harness::new();
    let upper = format!(r#"{{"lease":"{}"}}"#, "A".repeat(32));
    let others = [r"{}", r#"{"lease":"not one"}"#, r#"{"lease":7}"#, r#"{"lease":"2"}"#];
    for body in others.into_iter().chain([r#"{"leese":"00"}"#, &upper]) {
        assert_eq!(harness.post("/v1/release", body).await.status, 400, "{body}");
    }
    let reply = harness.post("/v1/acquire", r#"{"limit":"api","key":"a"}"#).await;
    assert_eq!(reply.status, 400);
    assert!(reply.detail().ends_with("use /v1/check"));
}

#[tokio::test]
async fn a_check_acquires_no_permit_and_names_the_path_that_does() {
    let harness = Harness::new();
    let together = r#"{"checks":[{"limit":"api","key":"db"},{"limit":"pool","key":"db"}]}"#;
    for body in [TAKE, together, r#"{"rule":"concurrency 1","key":"db","cost":0}"#] {
        let reply = harness.check(body).await;
        assert_eq!(reply.status, 400, "{body}");
        assert!(reply.detail().ends_with("ask /v1/acquire, and /v1/release then"), "{body}");
    }
    let peeked = harness.post("/v1/peek", TAKE).await.json();
    assert_eq!(peeked["remaining"], 1, "both permits are free");
    let api = harness.post("/v1/peek", r#"{"limit":"api","key":"db","cost":0}"#).await.json();
    assert_eq!(api["remaining"], 10, "the refused requests were not charged");
}

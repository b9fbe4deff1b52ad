//! Places that are held over the wire.

use super::Bench;
use serde_json::json;
use tidegate::Span;

const TAKE: &str = r#"{"limit":"pool","key":"db"}"#;

#[tokio::test]
async fn a_place_is_taken_and_given_back_once() {
    let bench = Bench::new();
    let first = bench.post("/v1/acquire", TAKE).await;
    assert_eq!(first.status, 200);
    let first = first.json();
    assert_eq!((&first["allow"], &first["remaining"]), (&json!(true), &json!(1)));
    assert_eq!(first["lease_ms"], 30_000);
    assert_eq!(bench.post("/v1/acquire", TAKE).await.status, 200);

    let denied = bench.post("/v1/acquire", TAKE).await;
    assert_eq!((denied.status, denied.field("retry-after")), (429, Some("30")));
    assert_eq!(denied.json().get("lease"), None);

    let release = json!({"lease": first["lease"]}).to_string();
    assert_eq!(bench.post("/v1/release", &release).await.json(), json!({"released": true}));
    assert_eq!(bench.post("/v1/release", &release).await.json(), json!({"released": false}));
    assert_eq!(bench.post("/v1/acquire", TAKE).await.status, 200);
}

#[tokio::test]
async fn a_place_comes_back_when_its_lease_runs_out() {
    let bench = Bench::new();
    for _ in 0..2 {
        bench.post("/v1/acquire", TAKE).await;
    }
    bench.clock.advance(Span::from_secs(30));
    assert_eq!(bench.post("/v1/acquire", TAKE).await.status, 200);
}

#[tokio::test]
async fn what_is_no_lease_and_what_has_none_is_refused() {
    let bench = Bench::new();
    let upper = format!(r#"{{"lease":"{}"}}"#, "A".repeat(32));
    let others = [r"{}", r#"{"lease":"not one"}"#, r#"{"lease":7}"#, r#"{"lease":"2"}"#];
    for body in others.into_iter().chain([r#"{"leese":"00"}"#, &upper]) {
        assert_eq!(bench.post("/v1/release", body).await.status, 400, "{body}");
    }
    let reply = bench.post("/v1/acquire", r#"{"limit":"api","key":"a"}"#).await;
    assert_eq!(reply.status, 400);
    assert!(reply.detail().ends_with("ask /v1/check"));
}

#[tokio::test]
async fn a_check_takes_no_place_and_is_told_what_does() {
    let bench = Bench::new();
    let together = r#"{"checks":[{"limit":"api","key":"db"},{"limit":"pool","key":"db"}]}"#;
    for body in [TAKE, together, r#"{"rule":"concurrency 1","key":"db","cost":0}"#] {
        let reply = bench.check(body).await;
        assert_eq!(reply.status, 400, "{body}");
        assert!(reply.detail().ends_with("ask /v1/acquire, and /v1/release then"), "{body}");
    }
    let peeked = bench.post("/v1/peek", TAKE).await.json();
    assert_eq!(peeked["remaining"], 1, "both places are free");
    let api = bench.post("/v1/peek", r#"{"limit":"api","key":"db","cost":0}"#).await.json();
    assert_eq!(api["remaining"], 10, "and nobody was charged for what was refused");
}

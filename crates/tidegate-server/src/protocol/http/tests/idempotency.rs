//! Tests of idempotent requests.

use super::Harness;
use tidegate::Span;
use tidegate::store::IDEMPOTENCY_KEY_BYTES_MAX as ID_BYTES_MAX;

async fn left(harness: &Harness) -> u64 {
    let reply = harness.post("/v1/peek", r#"{"limit":"api","key":"alice","cost":0}"#).await;
    reply.json()["remaining"].as_u64().unwrap()
}

#[tokio::test]
async fn a_repeated_id_is_charged_once_and_gets_the_same_answer() {
    let harness = Harness::new();
    let order = r#"{"limit":"api","key":"alice","cost":3,"id":"order 7"}"#;
    let first = harness.check(order).await;
    assert_eq!((first.status, left(&harness).await), (200, 7));
    harness.check(r#"{"limit":"api","key":"alice","cost":7}"#).await;
    for _ in 0..3 {
        let again = harness.check(order).await;
        assert_eq!((again.status, &again.text), (200, &first.text));
        assert_eq!(again.headers, first.headers);
    }
    assert_eq!(left(&harness).await, 0);
    harness.clock.advance(Span::from_secs(10));
    assert_eq!(harness.check(order).await.status, 200);
    assert_eq!(left(&harness).await, 7, "after ten seconds it is another request");
}

#[tokio::test]
async fn a_denied_request_is_decided_again() {
    let harness = Harness::new();
    harness.check(r#"{"limit":"api","key":"alice","cost":10}"#).await;
    let one = r#"{"limit":"api","key":"alice","id":"7"}"#;
    assert_eq!(harness.check(one).await.status, 429);
    harness.clock.advance(Span::from_millis(100));
    assert_eq!(harness.check(one).await.status, 200);
    assert_eq!(harness.check(one).await.status, 200, "it was admitted");
}

#[tokio::test]
async fn an_id_belongs_to_one_limit_key_and_cost() {
    let harness = Harness::new();
    let bodies = [
        r#"{"limit":"api","key":"alice","id":"7"}"#,
        r#"{"limit":"10/s","key":"alice","id":"7"}"#,
        r#"{"limit":"api","key":"bob","id":"7"}"#,
        r#"{"limit":"api","key":"carol","id":"7"}"#,
    ];
    for body in bodies {
        assert_eq!(harness.check(body).await.json()["remaining"], 9, "{body}");
    }
    let more = r#"{"limit":"api","key":"alice","cost":2,"id":"7"}"#;
    assert_eq!(harness.check(more).await.json()["remaining"], 7);
}

#[tokio::test]
async fn the_length_of_an_id_is_bounded() {
    let harness = Harness::new();
    let ask = |bytes| format!(r#"{{"limit":"api","key":"a","id":"{}"}}"#, "x".repeat(bytes));
    assert_eq!(harness.check(&ask(ID_BYTES_MAX)).await.status, 200);
    for bytes in [0, ID_BYTES_MAX + 1] {
        let reply = harness.check(&ask(bytes)).await;
        assert_eq!(reply.status, 400);
        assert_eq!(reply.detail(), format!("an id has 1 to 256 bytes, this one has {bytes}"));
    }
}

#[tokio::test]
async fn only_a_single_check_has_an_id() {
    let harness = Harness::new();
    let several = r#"{"checks":[{"limit":"api","key":"a"}],"id":"7"}"#;
    let reply = harness.check(several).await;
    assert_eq!(reply.status, 400);
    assert_eq!(reply.detail(), "`id` is for a single check: remove it or `checks`");
    let within = r#"{"checks":[{"limit":"api","key":"a","id":"7"}]}"#;
    assert!(harness.check(within).await.detail().contains("unknown member `id`"));
    for path in ["/v1/peek", "/v1/refund", "/v1/reset", "/v1/acquire"] {
        let reply = harness.post(path, r#"{"limit":"api","key":"a","id":"7"}"#).await;
        assert_eq!(reply.status, 400, "{path}");
        assert!(reply.detail().contains("unknown member `id`"), "{path}: {}", reply.detail());
    }
}

#[tokio::test]
async fn concurrency_limits_and_limits_that_are_off_ignore_an_id() {
    let harness = Harness::new();
    let pool = harness.check(r#"{"limit":"pool","key":"a","id":"7"}"#).await;
    assert_eq!(pool.status, 400);
    let off = r#"{"limit":"off","key":"a","cost":9,"id":"7"}"#;
    assert_eq!(harness.check(off).await.status, 200);
}

//! Requests with an id: charged once, however often they are sent.

use super::Bench;
use tidegate::Span;
use tidegate::store::IDEMPOTENCY_KEY_BYTES_MAX as ID_BYTES_MAX;

async fn left(bench: &Bench) -> u64 {
    let reply = bench.post("/v1/peek", r#"{"limit":"api","key":"alice","cost":0}"#).await;
    reply.json()["remaining"].as_u64().unwrap()
}

#[tokio::test]
async fn who_asks_again_with_the_same_id_is_charged_once_and_told_the_same() {
    let bench = Bench::new();
    let order = r#"{"limit":"api","key":"alice","cost":3,"id":"order 7"}"#;
    let first = bench.check(order).await;
    assert_eq!((first.status, left(&bench).await), (200, 7));
    bench.check(r#"{"limit":"api","key":"alice","cost":7}"#).await;
    for _ in 0..3 {
        let again = bench.check(order).await;
        assert_eq!((again.status, &again.text), (200, &first.text));
        assert_eq!(again.headers, first.headers);
    }
    assert_eq!(left(&bench).await, 0);
    bench.clock.advance(Span::from_secs(10));
    assert_eq!(bench.check(order).await.status, 200);
    assert_eq!(left(&bench).await, 7, "after ten seconds it is another request");
}

#[tokio::test]
async fn who_was_denied_is_decided_about_anew() {
    let bench = Bench::new();
    bench.check(r#"{"limit":"api","key":"alice","cost":10}"#).await;
    let one = r#"{"limit":"api","key":"alice","id":"7"}"#;
    assert_eq!(bench.check(one).await.status, 429);
    bench.clock.advance(Span::from_millis(100));
    assert_eq!(bench.check(one).await.status, 200);
    assert_eq!(bench.check(one).await.status, 200, "it was admitted");
}

#[tokio::test]
async fn an_id_is_of_one_limit_key_and_cost() {
    let bench = Bench::new();
    let bodies = [
        r#"{"limit":"api","key":"alice","id":"7"}"#,
        r#"{"limit":"10/s","key":"alice","id":"7"}"#,
        r#"{"limit":"api","key":"bob","id":"7"}"#,
        r#"{"limit":"api","key":"carol","id":"7"}"#,
    ];
    for body in bodies {
        assert_eq!(bench.check(body).await.json()["remaining"], 9, "{body}");
    }
    let more = r#"{"limit":"api","key":"alice","cost":2,"id":"7"}"#;
    assert_eq!(bench.check(more).await.json()["remaining"], 7);
}

#[tokio::test]
async fn an_id_has_so_many_bytes_and_not_one_more() {
    let bench = Bench::new();
    let ask = |bytes| format!(r#"{{"limit":"api","key":"a","id":"{}"}}"#, "x".repeat(bytes));
    assert_eq!(bench.check(&ask(ID_BYTES_MAX)).await.status, 200);
    for bytes in [0, ID_BYTES_MAX + 1] {
        let reply = bench.check(&ask(bytes)).await;
        assert_eq!(reply.status, 400);
        assert_eq!(reply.detail(), format!("an id has 1 to 256 bytes, this one has {bytes}"));
    }
}

#[tokio::test]
async fn only_one_question_that_charges_has_an_id() {
    let bench = Bench::new();
    let several = r#"{"checks":[{"limit":"api","key":"a"}],"id":"7"}"#;
    let reply = bench.check(several).await;
    assert_eq!(reply.status, 400);
    assert_eq!(reply.detail(), "`id` is for one question, and not for several as one");
    let within = r#"{"checks":[{"limit":"api","key":"a","id":"7"}]}"#;
    assert!(bench.check(within).await.detail().contains("unknown member `id`"));
    for path in ["/v1/peek", "/v1/refund", "/v1/reset", "/v1/acquire"] {
        let reply = bench.post(path, r#"{"limit":"api","key":"a","id":"7"}"#).await;
        assert_eq!(reply.status, 400, "{path}");
        assert!(reply.detail().contains("unknown member `id`"), "{path}: {}", reply.detail());
    }
}

#[tokio::test]
async fn a_limit_of_places_or_that_is_off_answers_as_without_an_id() {
    let bench = Bench::new();
    let pool = bench.check(r#"{"limit":"pool","key":"a","id":"7"}"#).await;
    assert_eq!(pool.status, 400);
    let off = r#"{"limit":"off","key":"a","cost":9,"id":"7"}"#;
    assert_eq!(bench.check(off).await.status, 200);
}

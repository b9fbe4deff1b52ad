//! T47: more requests wait for Redis than the maximum.

use crate::harness::Harness;
use std::sync::atomic::Ordering;
use tidegate_testbed::RedisServer;

const TWO: &str = "[server.caps]\nwaiting = 2\n[limits.pool]\nrule = \"concurrency 9 lease 30s\"\n";
const BUSY: &str = "-BUSY too many requests wait for their answers: ask again later";

// T47
#[tokio::test]
async fn one_request_too_many_waiting_for_redis_is_rejected_at_once() {
    let redis = RedisServer::start();
    let mut harness = Harness::new(&redis.url(), TWO).await;
    let ask =
        ["TIDE.CHECK 9/min a", "TIDE.CHECK 9/min a", "TIDE.CHECK 9/min a", "CL.THROTTLE k 9 9 9"];
    let said = harness.say(&ask).await;
    let charged = "*5 :1 :9 :8 :0 :6667 *5 :1 :9 :7 :0 :";
    assert!(said.starts_with(charged) && said.ends_with(&format!("{BUSY} {BUSY}")), "{said}");
    let said = harness.say(&["TIDE.PEEK 9/min a COST 0"]).await;
    assert!(said.starts_with("*5 :1 :9 :7 "), "two were charged: {said}");
    let status = &harness.server.status;
    assert_eq!(status.refused.resp.load(Ordering::Relaxed), 2);
    assert_eq!(status.waiting.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn a_release_is_accepted_however_many_requests_wait() {
    let redis = RedisServer::start();
    let mut harness = Harness::new(&redis.url(), TWO).await;
    let taken = harness.say(&["TIDE.ACQUIRE pool db"]).await;
    let lease = taken.split(' ').next_back().expect("the reply has a lease").to_owned();
    harness.server.status.waiting.store(2, Ordering::Relaxed);
    assert_eq!(harness.say(&["TIDE.ACQUIRE pool db"]).await, BUSY);
    assert_eq!(harness.say(&["DEL k"]).await, BUSY);
    let (status, body) = harness.post("/v1/check", r#"{"limit":"pool","key":"k"}"#).await;
    assert_eq!(status, 503, "{body}");
    let release = format!(r#"{{"lease":"{lease}"}}"#);
    let (status, body) = harness.post("/v1/release", &release).await;
    assert_eq!((status, &*body), (200, r#"{"released":true}"#));
    assert_eq!(
        harness.say(&[&format!("TIDE.RELEASE {lease}")]).await,
        ":0",
        "the permit was already released"
    );
}

#[tokio::test]
async fn a_check_acquires_no_permit() {
    let redis = RedisServer::start();
    let mut harness = Harness::new(&redis.url(), TWO).await;
    let alone = r#"{"limit":"pool","key":"k"}"#;
    for body in [alone, r#"{"checks":[{"limit":"pool","key":"k"},{"rule":"9/min","key":"k"}]}"#] {
        let (status, said) = harness.post("/v1/check", body).await;
        assert!(status == 400 && said.contains("ask /v1/acquire"), "{status}: {said}");
    }
    let (_, said) = harness.post("/v1/peek", alone).await;
    assert!(said.contains(r#""remaining":8"#), "all nine are free: {said}");
    let said = harness.say(&["TIDE.PEEK 9/min k COST 0"]).await;
    assert!(said.starts_with("*5 :1 :9 :9 "), "no limit was charged: {said}");
}

//! Tests of several checks in one request.

use super::Harness;
use serde_json::json;

#[tokio::test]
async fn all_are_charged_or_none_is() {
    let harness = Harness::new();
    let both =
        r#"{"checks":[{"limit":"api","key":"alice","cost":4},{"rule":"5/min","key":"site"}]}"#;
    let reply = harness.check(both).await;
    assert_eq!(reply.status, 200);
    let json = reply.json();
    assert_eq!((&json["allow"], &json["remaining"]), (&json!(true), &json!(4)));
    assert_eq!(
        (&json["each"][0]["remaining"], &json["each"][1]["remaining"]),
        (&json!(6), &json!(4))
    );

    let denied =
        r#"{"checks":[{"limit":"api","key":"alice"},{"rule":"5/min","key":"site","cost":5}]}"#;
    let reply = harness.check(denied).await;
    assert_eq!(reply.status, 429);
    let json = reply.json();
    assert_eq!(json["violated-policies"], json!(["5/min"]));
    assert_eq!(
        (&json["each"][0]["allow"], &json["each"][1]["allow"]),
        (&json!(true), &json!(false))
    );
    let alice = harness.check(r#"{"limit":"api","key":"alice","cost":0}"#).await;
    assert_eq!(alice.json()["remaining"], 6, "the denied ones cost nothing");
}

#[tokio::test]
async fn each_limit_is_listed_once_and_denying_ones_first() {
    let harness = Harness::new();
    let checks = r#"{"checks":[{"limit":"api","key":"a"},{"limit":"api","key":"b"},{"rule":"2/min","key":"c","cost":3}]}"#;
    let reply = harness.check(checks).await;
    assert_eq!(reply.field("ratelimit-policy"), Some(r#""2/min";q=2;w=60, "api";q=10;w=1"#));
    assert_eq!(reply.field("ratelimit"), Some(r#""2/min";r=2;t=0, "api";r=10;t=0"#));
}

#[tokio::test]
async fn a_limit_in_shadow_mode_counts_as_if_it_were_enforced() {
    let harness = Harness::new();
    let both = r#"{"checks":[{"rule":"1/min","key":"a"},{"limit":"shy","key":"a"}]}"#;
    assert_eq!(harness.check(both).await.status, 200);
    for _ in 0..3 {
        let reply = harness.check(both).await;
        assert_eq!(reply.status, 429);
        let json = reply.json();
        assert_eq!(json.get("shadowed"), None, "it does not pass");
        assert_eq!(json["each"][1]["shadowed"], true, "and this would have denied it too");
    }
    let shy = harness.server.engine.find("shy").unwrap();
    assert_eq!(
        (shy.counters().stats().allowed, shy.shadowed()),
        (1, 0),
        "it was denied by another"
    );
    let other = r#"{"checks":[{"rule":"1/min","key":"b"},{"limit":"shy","key":"c"}]}"#;
    harness.check(r#"{"rule":"1/min","key":"b"}"#).await;
    assert_eq!(harness.check(other).await.status, 429);
    let left = harness.post("/v1/peek", r#"{"limit":"shy","key":"c","cost":0}"#).await;
    assert_eq!(left.json()["remaining"], 1, "nothing was charged");
}

#[tokio::test]
async fn there_may_be_64_checks_and_not_one_more() {
    let harness = Harness::new();
    let checks = |count: usize| {
        let checks: Vec<String> =
            (0..count).map(|key| format!(r#"{{"limit":"api","key":"{key}"}}"#)).collect();
        format!(r#"{{"checks":[{}]}}"#, checks.join(","))
    };
    let reply = harness.check(&checks(64)).await;
    assert_eq!((reply.status, reply.json()["each"].as_array().unwrap().len()), (200, 64));
    for count in [0, 65] {
        let reply = harness.check(&checks(count)).await;
        assert_eq!(reply.status, 400);
        assert!(reply.detail().contains("an array of 1 to 64 checks"), "{}", reply.detail());
    }
}

#[tokio::test]
async fn a_problem_of_a_check_has_its_index() {
    let harness = Harness::new();
    let reply = harness.check(r#"{"checks":[{"limit":"api","key":"a"},{"limit":"api"}]}"#).await;
    assert_eq!(
        (reply.status, &*reply.detail()),
        (400, "checks[1]: `key` is missing: the user, address or other entity to limit")
    );
    let nested = r#"{"checks":[{"checks":[]}]}"#;
    assert!(harness.check(nested).await.detail().contains("unknown member `checks`"));
    let beside = r#"{"cost":2,"checks":[{"limit":"api","key":"a"}]}"#;
    assert!(harness.check(beside).await.detail().contains("into each entry of `checks`"));
}

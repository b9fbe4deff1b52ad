//! Decisions and reports while Redis is not available.

use crate::harness::Harness;
use std::time::Duration;
use tidegate_testbed::{Fault, FaultProxy, RedisServer};

const LIMITS: &str = "[limits.share]\nrule = \"1/day\"\n\
                      [limits.open]\nrule = \"1/day\"\non_error = \"allow\"\n\
                      [limits.shut]\nrule = \"1/day\"\non_error = \"deny\"\n";

/// Waits until `/readyz` has this body.
pub(crate) async fn wait_for_status(harness: &Harness, word: &str) {
    let noticed = async {
        while harness.admin("/readyz").await.1 != word {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let in_time = tokio::time::timeout(Duration::from_secs(20), noticed).await;
    in_time.unwrap_or_else(|_| panic!("the status is never {word}"));
}

#[tokio::test]
async fn each_limit_follows_its_on_error_and_other_requests_fail() {
    let redis = RedisServer::start();
    let mut harness = Harness::new(&redis.url(), LIMITS).await;
    assert_eq!(harness.admin("/readyz").await, (200, "ok\n".to_owned()));
    assert_eq!(harness.say(&["TIDE.CHECK open k"]).await, "*5 :1 :1 :0 :0 :86400000");
    redis.kill();
    wait_for_status(&harness, "degraded\n").await;
    assert!(harness.say(&["TIDE.CHECK open k"]).await.starts_with("*5 :1 "));
    assert_eq!(harness.say(&["TIDE.CHECK shut k"]).await.split(' ').nth(1), Some(":0"));
    assert!(harness.say(&["TIDE.CHECK share k"]).await.starts_with("*5 :1 :1 :0 "));
    assert!(harness.say(&["TIDE.CHECK share k"]).await.starts_with("*5 :0 :1 :0 "));
    for line in ["TIDE.PEEK share k", "TIDE.RESET share k", "TIDE.REFUND share k", "DEL k"] {
        let said = harness.say(&[line]).await;
        assert!(said.starts_with("-TRYAGAIN ") && said.contains("127.0.0.1"), "{said}");
    }
    for path in ["/v1/peek", "/v1/refund", "/v1/reset"] {
        let (status, body) = harness.post(path, r#"{"limit":"share","key":"k"}"#).await;
        assert_eq!(status, 503, "{body}");
        assert!(body.contains("no connection to 127.0.0.1"), "{body}");
    }
    let (status, body) = harness.post("/v1/check", r#"{"limit":"open","key":"k"}"#).await;
    assert_eq!((status, body.contains(r#""allow":true"#)), (200, true), "{body}");
}

/// A client would use a remaining count that no store has confirmed.
#[tokio::test]
async fn numbers_that_only_the_store_has_are_not_sent() {
    let redis = RedisServer::start();
    let mut harness = Harness::new(&redis.url(), LIMITS).await;
    redis.kill();
    wait_for_status(&harness, "degraded\n").await;
    assert_eq!(harness.say(&["TIDE.CHECK open k"]).await, "*5 :1 :1 :-1 :0 :-1");
    assert_eq!(harness.say(&["TIDE.CHECK shut k"]).await, "*5 :0 :1 :0 :1000 :-1");
    let (status, body) = harness.post("/v1/check", r#"{"limit":"open","key":"k"}"#).await;
    let unknown = r#""limit":1,"remaining":null,"retry_after_ms":null,"reset_after_ms":null"#;
    assert!(status == 200 && body.contains(unknown), "{status} {body}");
    let (status, body) = harness.post("/v1/check", r#"{"limit":"shut","key":"k"}"#).await;
    let none_left = r#""limit":1,"remaining":0,"retry_after_ms":1000,"reset_after_ms":null"#;
    assert!(status == 429 && body.contains(none_left), "{status} {body}");
}

/// Authorization decides without the store, so its explanation does too.
#[tokio::test]
async fn explain_says_what_decides_without_the_store() {
    let redis = RedisServer::start();
    let limits =
        format!("{LIMITS}[limits.closed]\nrule = \"0/s\"\nwhen = {{ path = \"/closed\" }}\n");
    let mut harness = Harness::new(&redis.url(), &limits).await;
    redis.kill();
    wait_for_status(&harness, "degraded\n").await;
    let (status, body) = harness.post("/v1/explain", r#"{"method":"GET","path":"/x"}"#).await;
    assert_eq!(status, 200, "{body}");
    let start = r#"{"verdict":"deny","decided_by":"shut","#;
    assert!(body.starts_with(start), "{body}");
    for said in [
        "on_error = \\\"local\\\": this server decides with its share of the limit",
        "on_error = \\\"allow\\\": requests pass",
        "on_error = \\\"deny\\\": requests are denied",
        "no connection to 127.0.0.1",
        r#""verdict":"allow","is_shadowed":false,"limit":1,"remaining":0,"#,
        r#""verdict":"allow","is_shadowed":false,"limit":1,"remaining":null,"#,
    ] {
        assert!(body.contains(said), "{said} is not in {body}");
    }
    let (_, body) = harness.post("/v1/explain", r#"{"method":"GET","path":"/closed"}"#).await;
    assert!(body.starts_with(r#"{"verdict":"deny","decided_by":"closed","#), "{body}");
    // The decision is the explained one, because the explanation charged nothing.
    assert!(harness.say(&["TIDE.CHECK share k"]).await.starts_with("*5 :1 :1 :0 "));
    for line in ["TIDE.CHECK closed k", "TIDE.PEEK closed k"] {
        assert_eq!(harness.say(&[line]).await, "*5 :0 :0 :0 :-1 :0", "{line}");
    }
    // The rule needs no store, so the limit is not degraded without one.
    let (_, metrics) = harness.admin("/metrics").await;
    for line in [r#"tidegate_degraded{limit="closed"} 0"#, r#"tidegate_degraded{limit="share"} 1"#]
    {
        assert!(metrics.lines().any(|other| other == line), "{line} is not in {metrics}");
    }
}

#[tokio::test]
async fn several_limits_are_charged_together_or_not_at_all() {
    let redis = RedisServer::start();
    let mut harness = Harness::new(&redis.url(), LIMITS).await;
    redis.kill();
    wait_for_status(&harness, "degraded\n").await;
    let said = harness.say(&["TIDE.CHECKALL share k 1 shut k 1"]).await;
    assert!(said.starts_with("*2 *5 :0 "), "{said}");
    let said = harness.say(&["TIDE.CHECKALL share k 1 open k 1"]).await;
    assert!(said.starts_with("*2 *5 :1 "), "the share was not charged before: {said}");
    let said = harness.say(&["TIDE.CHECKALL share k 1 open k 1"]).await;
    assert!(said.starts_with("*2 *5 :0 "), "{said}");
}

#[tokio::test]
async fn the_operator_sees_an_outage_and_the_server_recovers() {
    let redis = RedisServer::start();
    let mut harness = Harness::new(&redis.url(), LIMITS).await;
    redis.kill();
    wait_for_status(&harness, "degraded\n").await;
    harness.say(&["TIDE.CHECK open k", "TIDE.CHECK 9/s k", "CL.THROTTLE k 1 1 1"]).await;
    let (status, body) = harness.admin("/readyz?verbose").await;
    assert_eq!(status, 200);
    let line = format!("[!] the store at {} does not answer, for ", redis.address());
    assert!(body.contains(&line) && body.ends_with("degraded\n"), "{body}");
    let (_, metrics) = harness.admin("/metrics").await;
    for line in [
        "tidegate_store_up 0",
        r#"tidegate_degraded{limit="open"} 1"#,
        r#"tidegate_store_failures_total{limit="open",kind="down"} 1"#,
        r#"tidegate_store_failures_total{limit="open",kind="timed_out"} 0"#,
        r#"tidegate_store_failures_total{limit="*",kind="down"} 1"#,
        r#"tidegate_store_failures_total{limit="CL.THROTTLE",kind="down"} 1"#,
        r#"tidegate_decisions_total{limit="CL.THROTTLE",decision="allow"} 1"#,
    ] {
        assert!(metrics.lines().any(|other| other == line), "{line}\nis not in\n{metrics}");
    }
    redis.restart();
    wait_for_status(&harness, "ok\n").await;
    assert!(harness.admin("/metrics").await.1.contains("tidegate_store_up 1"));
    assert!(harness.say(&["TIDE.PEEK share k COST 0"]).await.starts_with("*5 :1 "));
}

#[tokio::test]
async fn a_server_that_only_denies_is_not_ready() {
    let redis = RedisServer::start();
    let shut = "[limits.shut]\nrule = \"1/day\"\non_error = \"deny\"\n";
    let harness = Harness::new(&redis.url(), shut).await;
    redis.kill();
    wait_for_status(&harness, "denying\n").await;
    assert_eq!(harness.admin("/readyz").await.0, 503);
    redis.restart();
    wait_for_status(&harness, "ok\n").await;
}

#[tokio::test]
async fn a_release_during_an_outage_reaches_the_store_later() {
    let redis = RedisServer::start();
    let proxy = FaultProxy::to(redis.address());
    let pool = "[limits.pool]\nrule = \"concurrency 1\"\n";
    let mut harness = Harness::new(&proxy.url(), pool).await;
    let lease =
        |said: &str| said.rsplit(' ').next().expect("the reply ends with the lease").to_owned();
    let mut leases = Vec::new();
    for key in ["a", "b"] {
        let said = harness.say(&[&format!("TIDE.ACQUIRE pool {key}")]).await;
        assert!(said.starts_with("*5 :1 "), "{said}");
        leases.push(lease(&said));
    }
    proxy.set(Fault::Refuse);
    wait_for_status(&harness, "degraded\n").await;
    let said = harness.say(&[&format!("TIDE.RELEASE {}", leases[0])]).await;
    assert!(said.starts_with("-TRYAGAIN the permit will be released as soon as"), "{said}");
    let body = format!(r#"{{"lease":"{}"}}"#, leases[1]);
    let (status, body) = harness.post("/v1/release", &body).await;
    assert!(status == 503 && body.contains("as soon as the store answers"), "{status} {body}");
    proxy.set(Fault::Pass);
    wait_for_status(&harness, "ok\n").await;
    for key in ["a", "b"] {
        let is_free = async {
            while !harness.say(&[&format!("TIDE.ACQUIRE pool {key}")]).await.starts_with("*5 :1 ") {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        let in_time = tokio::time::timeout(Duration::from_secs(20), is_free).await;
        in_time.unwrap_or_else(|_| panic!("the permit of `{key}` is never released"));
    }
}

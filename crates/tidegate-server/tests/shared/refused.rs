//! Redis answers but refuses to decide: health follows the decisions and not a `PING`.

use crate::harness::Harness;
use crate::outage::wait_for_status;
use std::sync::Arc;
use std::time::Duration;
use tidegate_testbed::RedisServer;
use tidegate_testbed::redis::Builder;

const LIMITS: &str = "[limits.api]\nrule = \"1000000/s\"\n\
                      [limits.open]\nrule = \"1000000/s\"\non_error = \"allow\"\n";
const SHUT: &str = "[limits.shut]\nrule = \"1000000/s\"\non_error = \"deny\"\n";
/// How often health is read while all decisions are made without Redis.
const POLLS: usize = 30;

/// Starts Redis and a server that decides in it.
async fn start(builder: Builder, limits: &str) -> (RedisServer, Harness) {
    let redis = builder.start();
    let harness = Harness::new(&redis.url(), limits).await;
    assert_eq!(harness.admin("/readyz").await, (200, "ok\n".to_owned()));
    (redis, harness)
}

fn run_command(redis: &RedisServer, words: &[&str]) {
    let reply = redis.command(words);
    assert!(reply.is_ok(), "{}: {reply:?}", words.join(" "));
}

async fn assert_metric(harness: &Harness, line: &str) {
    let (_, metrics) = harness.admin("/metrics").await;
    assert!(metrics.lines().any(|other| other == line), "{line}\nis not in\n{metrics}");
}

async fn failures(harness: &Harness) -> u64 {
    let (_, metrics) = harness.admin("/metrics").await;
    let of_api = |line: &str| -> Option<u64> {
        let rest = line.strip_prefix("tidegate_store_failures_total{limit=\"api\"")?;
        rest.rsplit(' ').next()?.parse().ok()
    };
    metrics.lines().filter_map(of_api).sum()
}

/// Asserts that the server decides without Redis, and that its health reports this after each decision.
async fn assert_degraded(harness: &mut Harness, code: &str) {
    let before = failures(harness).await;
    for poll in 1..=POLLS {
        assert!(harness.say(&["TIDE.CHECK api k"]).await.starts_with("*5 :1 "), "{code}");
        assert_eq!(harness.admin("/readyz").await, (200, "degraded\n".to_owned()), "{code} {poll}");
        assert_metric(harness, "tidegate_store_up 0").await;
        assert_metric(harness, r#"tidegate_degraded{limit="api"} 1"#).await;
    }
    assert_eq!(failures(harness).await - before, POLLS as u64, "{code}");
    let (_, body) = harness.admin("/readyz?verbose").await;
    assert!(body.contains("[!] the limit `api` is decided without the store"), "{body}");
    assert!(body.contains(code), "{body}");
    let (_, limits) = harness.admin("/v1/limits").await;
    let limits: serde_json::Value = serde_json::from_str(&limits).expect("the body is JSON");
    let degraded = limits["limits"][0]["degraded"].as_str();
    assert!(degraded.is_some_and(|why| why.contains(code)), "{limits}");
}

#[tokio::test]
async fn health_follows_decisions_where_redis_is_full() {
    let (redis, mut harness) = start(RedisServer::builder(), LIMITS).await;
    run_command(&redis, &["CONFIG", "SET", "maxmemory", "1mb"]);
    assert_degraded(&mut harness, "OOM").await;
    run_command(&redis, &["CONFIG", "SET", "maxmemory", "0"]);
    wait_for_status(&harness, "ok\n").await;
    assert_metric(&harness, "tidegate_store_up 1").await;
    assert_metric(&harness, r#"tidegate_degraded{limit="api"} 0"#).await;
}

#[tokio::test]
async fn health_follows_decisions_where_redis_has_too_few_replicas() {
    let (redis, mut harness) = start(RedisServer::builder(), LIMITS).await;
    run_command(&redis, &["CONFIG", "SET", "min-replicas-to-write", "1"]);
    assert_degraded(&mut harness, "NOREPLICAS").await;
    run_command(&redis, &["CONFIG", "SET", "min-replicas-to-write", "0"]);
    wait_for_status(&harness, "ok\n").await;
}

#[tokio::test]
async fn health_follows_decisions_where_redis_permits_no_scripts() {
    let (redis, mut harness) = start(RedisServer::builder(), LIMITS).await;
    run_command(&redis, &["ACL", "SETUSER", "default", "-eval", "-evalsha"]);
    assert_degraded(&mut harness, "NOPERM").await;
    run_command(&redis, &["ACL", "SETUSER", "default", "+eval", "+evalsha"]);
    wait_for_status(&harness, "ok\n").await;
}

#[tokio::test]
async fn health_follows_decisions_where_redis_cannot_save() {
    let builder = RedisServer::builder().option("enable-protected-configs", "yes");
    let (redis, mut harness) = start(builder, LIMITS).await;
    run_command(&redis, &["CONFIG", "SET", "dir", "/proc"]);
    run_command(&redis, &["CONFIG", "SET", "save", "3600 1"]);
    redis.command(&["BGSAVE"]);
    tidegate_testbed::eventually("the save has failed", Duration::from_secs(20), || {
        redis.command(&["INFO", "persistence"]).text().contains("rdb_last_bgsave_status:err")
    });
    assert_degraded(&mut harness, "MISCONF").await;
    run_command(&redis, &["CONFIG", "SET", "save", ""]);
    wait_for_status(&harness, "ok\n").await;
}

#[tokio::test]
async fn health_follows_decisions_where_redis_is_a_replica() {
    let (redis, mut harness) = start(RedisServer::builder(), LIMITS).await;
    run_command(&redis, &["REPLICAOF", "127.0.0.1", "1"]);
    assert_degraded(&mut harness, "replica").await;
    run_command(&redis, &["REPLICAOF", "NO", "ONE"]);
    wait_for_status(&harness, "ok\n").await;
}

#[tokio::test]
async fn health_follows_decisions_where_redis_loads() {
    let builder = RedisServer::builder()
        .option("key-load-delay", "5000")
        .option("loading-process-events-interval-bytes", "1024");
    let (redis, mut harness) = start(builder, LIMITS).await;
    run_command(&redis, &["DEBUG", "POPULATE", "2000"]);
    run_command(&redis, &["SAVE"]);
    redis.kill();
    let redis = Arc::new(redis);
    let restarted = Arc::clone(&redis);
    let restart = tokio::task::spawn_blocking(move || restarted.restart());
    wait_for_status(&harness, "degraded\n").await;
    assert_degraded(&mut harness, "").await;
    restart.await.expect("Redis has loaded its data");
    wait_for_status(&harness, "ok\n").await;
}

/// The Redis user may use the keys of one limit and not those of the other.
#[tokio::test]
async fn a_limit_that_redis_decides_is_not_degraded_by_one_that_it_refuses() {
    let (redis, mut harness) = start(RedisServer::builder(), LIMITS).await;
    run_command(&redis, &["ACL", "SETUSER", "default", "resetkeys", "~tg:*:open*", "~tg:rule:*"]);
    for _ in 0..POLLS {
        assert!(harness.say(&["TIDE.CHECK open k"]).await.starts_with("*5 :1 "));
        assert!(harness.say(&["TIDE.CHECK api k"]).await.starts_with("*5 :1 "));
        assert_metric(&harness, r#"tidegate_degraded{limit="api"} 1"#).await;
        assert_metric(&harness, r#"tidegate_degraded{limit="open"} 0"#).await;
    }
    run_command(&redis, &["ACL", "SETUSER", "default", "~*"]);
    wait_for_status(&harness, "ok\n").await;
}

#[tokio::test]
async fn a_server_whose_limits_all_deny_because_redis_refuses_is_not_ready() {
    let (redis, mut harness) = start(RedisServer::builder(), SHUT).await;
    run_command(&redis, &["CONFIG", "SET", "maxmemory", "1mb"]);
    assert!(harness.say(&["TIDE.CHECK shut k"]).await.starts_with("*5 :0 "));
    wait_for_status(&harness, "denying\n").await;
    for _ in 0..POLLS {
        assert!(harness.say(&["TIDE.CHECK shut k"]).await.starts_with("*5 :0 "));
        assert_eq!(harness.admin("/readyz").await, (503, "denying\n".to_owned()));
    }
    run_command(&redis, &["CONFIG", "SET", "maxmemory", "0"]);
    wait_for_status(&harness, "ok\n").await;
    assert!(harness.say(&["TIDE.CHECK shut k"]).await.starts_with("*5 :1 "));
}

/// `CL.THROTTLE` and rules in requests are limits without a name.
#[tokio::test]
async fn health_follows_decisions_of_limits_without_a_name() {
    let (redis, mut harness) = start(RedisServer::builder(), LIMITS).await;
    harness.say(&["CL.THROTTLE k 10 10 60", "TIDE.CHECK 100/s k"]).await;
    run_command(&redis, &["CONFIG", "SET", "maxmemory", "1mb"]);
    for name in ["CL.THROTTLE", "*"] {
        assert_metric(&harness, &format!("tidegate_degraded{{limit=\"{name}\"}} 0")).await;
    }
    harness.say(&["CL.THROTTLE k 10 10 60", "TIDE.CHECK 100/s k"]).await;
    for name in ["CL.THROTTLE", "*"] {
        assert_metric(&harness, &format!("tidegate_degraded{{limit=\"{name}\"}} 1")).await;
    }
    assert_eq!(harness.admin("/readyz").await.1, "degraded\n");
    run_command(&redis, &["CONFIG", "SET", "maxmemory", "0"]);
    wait_for_status(&harness, "ok\n").await;
}

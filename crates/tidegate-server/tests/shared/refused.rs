//! Redis answers but refuses to decide: health follows the decisions and not a `PING`.

use crate::harness::Harness;
use crate::outage::is_noticed;
use std::sync::Arc;
use std::time::Duration;
use tidegate_testbed::RedisServer;
use tidegate_testbed::redis::Builder;

const LIMITS: &str = "[limits.api]\nrule = \"1000000/s\"\n\
                      [limits.open]\nrule = \"1000000/s\"\non_error = \"allow\"\n";
const SHUT: &str = "[limits.shut]\nrule = \"1000000/s\"\non_error = \"deny\"\n";
/// How often health is read while all decisions are made without Redis.
const POLLS: usize = 30;

/// A server that decides in Redis.
async fn served(builder: Builder, limits: &str) -> (RedisServer, Harness) {
    let redis = builder.start();
    let harness = Harness::new(&redis.url(), limits).await;
    assert_eq!(harness.admin("/readyz").await, (200, "ok\n".to_owned()));
    (redis, harness)
}

fn tell(redis: &RedisServer, words: &[&str]) {
    let reply = redis.command(words);
    assert!(reply.is_ok(), "{}: {reply:?}", words.join(" "));
}

async fn has_metric(harness: &Harness, line: &str) {
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

/// Every decision is made without Redis, and every look at the health says so.
async fn is_degraded(harness: &mut Harness, code: &str) {
    let before = failures(harness).await;
    for poll in 1..=POLLS {
        assert!(harness.say(&["TIDE.CHECK api k"]).await.starts_with("*5 :1 "), "{code}");
        assert_eq!(harness.admin("/readyz").await, (200, "degraded\n".to_owned()), "{code} {poll}");
        has_metric(harness, "tidegate_store_up 0").await;
        has_metric(harness, r#"tidegate_degraded{limit="api"} 1"#).await;
    }
    assert_eq!(failures(harness).await - before, POLLS as u64, "{code}");
    let (_, body) = harness.admin("/readyz?verbose").await;
    assert!(body.contains("[!] the limit `api` is decided without the store"), "{body}");
    assert!(body.contains(code), "{body}");
    let (_, limits) = harness.admin("/v1/limits").await;
    let limits: serde_json::Value = serde_json::from_str(&limits).expect("it is JSON");
    let degraded = limits["limits"][0]["degraded"].as_str();
    assert!(degraded.is_some_and(|why| why.contains(code)), "{limits}");
}

#[tokio::test]
async fn health_follows_decisions_where_redis_is_full() {
    let (redis, mut harness) = served(RedisServer::builder(), LIMITS).await;
    tell(&redis, &["CONFIG", "SET", "maxmemory", "1mb"]);
    is_degraded(&mut harness, "OOM").await;
    tell(&redis, &["CONFIG", "SET", "maxmemory", "0"]);
    is_noticed(&harness, "ok\n").await;
    has_metric(&harness, "tidegate_store_up 1").await;
    has_metric(&harness, r#"tidegate_degraded{limit="api"} 0"#).await;
}

#[tokio::test]
async fn health_follows_decisions_where_redis_has_too_few_replicas() {
    let (redis, mut harness) = served(RedisServer::builder(), LIMITS).await;
    tell(&redis, &["CONFIG", "SET", "min-replicas-to-write", "1"]);
    is_degraded(&mut harness, "NOREPLICAS").await;
    tell(&redis, &["CONFIG", "SET", "min-replicas-to-write", "0"]);
    is_noticed(&harness, "ok\n").await;
}

#[tokio::test]
async fn health_follows_decisions_where_redis_permits_no_scripts() {
    let (redis, mut harness) = served(RedisServer::builder(), LIMITS).await;
    tell(&redis, &["ACL", "SETUSER", "default", "-eval", "-evalsha"]);
    is_degraded(&mut harness, "NOPERM").await;
    tell(&redis, &["ACL", "SETUSER", "default", "+eval", "+evalsha"]);
    is_noticed(&harness, "ok\n").await;
}

#[tokio::test]
async fn health_follows_decisions_where_redis_cannot_save() {
    let builder = RedisServer::builder().option("enable-protected-configs", "yes");
    let (redis, mut harness) = served(builder, LIMITS).await;
    tell(&redis, &["CONFIG", "SET", "dir", "/proc"]);
    tell(&redis, &["CONFIG", "SET", "save", "3600 1"]);
    redis.command(&["BGSAVE"]);
    tidegate_testbed::eventually("the save has failed", Duration::from_secs(20), || {
        redis.command(&["INFO", "persistence"]).text().contains("rdb_last_bgsave_status:err")
    });
    is_degraded(&mut harness, "MISCONF").await;
    tell(&redis, &["CONFIG", "SET", "save", ""]);
    is_noticed(&harness, "ok\n").await;
}

#[tokio::test]
async fn health_follows_decisions_where_redis_is_a_replica() {
    let (redis, mut harness) = served(RedisServer::builder(), LIMITS).await;
    tell(&redis, &["REPLICAOF", "127.0.0.1", "1"]);
    is_degraded(&mut harness, "replica").await;
    tell(&redis, &["REPLICAOF", "NO", "ONE"]);
    is_noticed(&harness, "ok\n").await;
}

#[tokio::test]
async fn health_follows_decisions_where_redis_loads() {
    let builder = RedisServer::builder()
        .option("key-load-delay", "5000")
        .option("loading-process-events-interval-bytes", "1024");
    let (redis, mut harness) = served(builder, LIMITS).await;
    tell(&redis, &["DEBUG", "POPULATE", "2000"]);
    tell(&redis, &["SAVE"]);
    redis.kill();
    let redis = Arc::new(redis);
    let restarted = Arc::clone(&redis);
    let restart = tokio::task::spawn_blocking(move || restarted.restart());
    is_noticed(&harness, "degraded\n").await;
    is_degraded(&mut harness, "").await;
    restart.await.expect("it has loaded all of it");
    is_noticed(&harness, "ok\n").await;
}

/// A user may be permitted one limit's keys and not another's.
#[tokio::test]
async fn a_limit_that_redis_decides_is_not_degraded_by_one_that_it_refuses() {
    let (redis, mut harness) = served(RedisServer::builder(), LIMITS).await;
    tell(&redis, &["ACL", "SETUSER", "default", "resetkeys", "~tg:*:open*", "~tg:rule:*"]);
    for _ in 0..POLLS {
        assert!(harness.say(&["TIDE.CHECK open k"]).await.starts_with("*5 :1 "));
        assert!(harness.say(&["TIDE.CHECK api k"]).await.starts_with("*5 :1 "));
        has_metric(&harness, r#"tidegate_degraded{limit="api"} 1"#).await;
        has_metric(&harness, r#"tidegate_degraded{limit="open"} 0"#).await;
    }
    tell(&redis, &["ACL", "SETUSER", "default", "~*"]);
    is_noticed(&harness, "ok\n").await;
}

#[tokio::test]
async fn a_server_whose_limits_all_deny_because_redis_refuses_is_not_ready() {
    let (redis, mut harness) = served(RedisServer::builder(), SHUT).await;
    tell(&redis, &["CONFIG", "SET", "maxmemory", "1mb"]);
    assert!(harness.say(&["TIDE.CHECK shut k"]).await.starts_with("*5 :0 "));
    is_noticed(&harness, "denying\n").await;
    for _ in 0..POLLS {
        assert!(harness.say(&["TIDE.CHECK shut k"]).await.starts_with("*5 :0 "));
        assert_eq!(harness.admin("/readyz").await, (503, "denying\n".to_owned()));
    }
    tell(&redis, &["CONFIG", "SET", "maxmemory", "0"]);
    is_noticed(&harness, "ok\n").await;
    assert!(harness.say(&["TIDE.CHECK shut k"]).await.starts_with("*5 :1 "));
}

/// `CL.THROTTLE` and rules that requests bring have no name, and are limits all the same.
#[tokio::test]
async fn health_follows_decisions_of_limits_without_a_name() {
    let (redis, mut harness) = served(RedisServer::builder(), LIMITS).await;
    harness.say(&["CL.THROTTLE k 10 10 60", "TIDE.CHECK 100/s k"]).await;
    tell(&redis, &["CONFIG", "SET", "maxmemory", "1mb"]);
    for name in ["CL.THROTTLE", "*"] {
        has_metric(&harness, &format!("tidegate_degraded{{limit=\"{name}\"}} 0")).await;
    }
    harness.say(&["CL.THROTTLE k 10 10 60", "TIDE.CHECK 100/s k"]).await;
    for name in ["CL.THROTTLE", "*"] {
        has_metric(&harness, &format!("tidegate_degraded{{limit=\"{name}\"}} 1")).await;
    }
    assert_eq!(harness.admin("/readyz").await.1, "degraded\n");
    tell(&redis, &["CONFIG", "SET", "maxmemory", "0"]);
    is_noticed(&harness, "ok\n").await;
}

//! T32: every error of Redis, provoked on a real server: its remedy or the policy follows, and never a panic.

use crate::stage::{PATIENT, Stage, TIMEOUT, becomes, limiter_with, ready, store_at};
use std::sync::Arc;
use std::time::Duration;
use tidegate_redis::{
    DecisionSource, LimitState, OnError, RedisLimiter, RedisStore, RedisStoreError, Settings,
    try_check_all,
};
use tidegate_testbed::redis::Builder;
use tidegate_testbed::{Fault, RedisServer, Reply};

async fn limiter_on(server: &RedisServer) -> (RedisStore, RedisLimiter) {
    let store = store_at(&server.url(), Settings::default()).await;
    let limiter = limiter_with(&store, "errors", "1000000/s", OnError::Deny);
    (store, limiter)
}

/// Returns a server and a limiter that it decides for.
async fn served(builder: Builder) -> (RedisServer, RedisLimiter) {
    let server = builder.start();
    let (_, limiter) = limiter_on(&server).await;
    ready(&limiter).await;
    decides(&limiter).await;
    (server, limiter)
}

/// Waits until Redis decides.
async fn decides(limiter: &RedisLimiter) {
    becomes("Redis decides", TIMEOUT, async || {
        limiter.decide(b"key", 1).await.source == DecisionSource::Redis
    })
    .await;
}

/// Checks that the policy decides because of this error.
async fn refuses(limiter: &RedisLimiter, code: &str) {
    becomes(code, TIMEOUT, async || {
        let asked = limiter.try_check("key", 1).await;
        asked.is_err_and(|error| error.to_string().contains(code))
    })
    .await;
    let told = limiter.decide(b"key", 1).await;
    assert_eq!((told.source, told.decision.is_deny()), (DecisionSource::Policy, true), "{code}");
    assert!(limiter.stats().failed > 0, "{code}");
}

fn tell(server: &RedisServer, words: &[&str]) {
    let reply = server.command(words);
    assert!(reply.is_ok(), "{}: {reply:?}", words.join(" "));
}

/// T32.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn noscript_the_text_of_the_script_is_sent() {
    let (server, limiter) = served(RedisServer::builder()).await;
    let failed = limiter.stats().failed;
    for _ in 0..5 {
        tell(&server, &["SCRIPT", "FLUSH"]);
        decides(&limiter).await;
    }
    let errors = server.command(&["INFO", "errorstats"]).text();
    assert!(errors.contains("errorstat_NOSCRIPT:count="), "{errors}");
    // On a busy machine some requests may time out.
    assert!(limiter.stats().failed <= failed + 2);
}

/// T32.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readonly_a_replica_is_not_asked_until_it_is_a_primary() {
    let (server, limiter) = served(RedisServer::builder()).await;
    tell(&server, &["REPLICAOF", "127.0.0.1", "1"]);
    let error = limiter.try_check("key", 1).await.expect_err("it is a replica");
    assert!(!error.may_have_charged() && error.to_string().contains("READONLY"), "{error}");
    refuses(&limiter, "is a replica").await;
    tell(&server, &["REPLICAOF", "NO", "ONE"]);
    decides(&limiter).await;
}

/// T32.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn loading_no_request_waits_for_a_server_that_loads() {
    let builder = RedisServer::builder()
        .option("key-load-delay", "5000")
        .option("loading-process-events-interval-bytes", "1024");
    let (server, limiter) = served(builder).await;
    tell(&server, &["DEBUG", "POPULATE", "400"]);
    tell(&server, &["SAVE"]);
    server.kill();
    let server = Arc::new(server);
    let restarted = Arc::clone(&server);
    let restart = tokio::task::spawn_blocking(move || restarted.restart());
    refuses(&limiter, "LOADING").await;
    restart.await.expect("it has loaded all of it");
    decides(&limiter).await;
}

/// T32.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn oom_the_policy_decides_while_the_server_is_full() {
    let (server, limiter) = served(RedisServer::builder()).await;
    tell(&server, &["CONFIG", "SET", "maxmemory", "1mb"]);
    refuses(&limiter, "OOM").await;
    tell(&server, &["CONFIG", "SET", "maxmemory", "0"]);
    decides(&limiter).await;
}

/// Returns how often Redis has answered with this error.
fn answered(server: &RedisServer, code: &str) -> u64 {
    let errors = server.command(&["INFO", "errorstats"]).text();
    let line =
        errors.lines().find_map(|line| line.strip_prefix(&format!("errorstat_{code}:count=")));
    line.map_or(0, |count| count.trim().parse().expect("it is a number"))
}

/// Waits until Redis decides all requests of a second.
async fn is_well(limiter: &RedisLimiter) {
    becomes("Redis decides all", TIMEOUT, async || {
        let _ = limiter.check("key").await;
        limiter.health().state == LimitState::Up
    })
    .await;
}

/// T32. Without requests, and with a `PING` that is answered, the probe writes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_limit_is_probed_until_it_recovers_even_without_requests() {
    let (server, limiter) = served(RedisServer::builder()).await;
    is_well(&limiter).await;
    tell(&server, &["CONFIG", "SET", "maxmemory", "1mb"]);
    refuses(&limiter, "OOM").await;
    let before = answered(&server, "OOM");
    becomes("it is probed ten times", TIMEOUT, async || {
        let health = limiter.health();
        assert!(health.state.is_degraded() && !health.last_failure.is_empty(), "{health:?}");
        answered(&server, "OOM") >= before + 10
    })
    .await;
    assert_eq!(limiter.health().state, LimitState::Down, "it has been a second");
    tell(&server, &["CONFIG", "SET", "maxmemory", "0"]);
    becomes("it is well", TIMEOUT, async || limiter.health().state == LimitState::Idle).await;
    is_well(&limiter).await;
}

/// T32. Redis is slower than the store's deadline, and faster than the limit's own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_probe_has_the_deadline_of_its_limit_and_counts_as_an_answer() {
    let stage = Stage::new();
    let store = stage.store_with(Settings::default().deadline(Duration::from_millis(20))).await;
    let rule = "1000000/s".parse().expect("it is a rule");
    let limiter = store.builder("slow", rule).deadline(PATIENT).build().expect("Redis can keep it");
    ready(&limiter).await;
    tell(&stage.server, &["CONFIG", "SET", "maxmemory", "1mb"]);
    assert_ne!(limiter.decide(b"key", 1).await.source, DecisionSource::Redis);
    stage.proxy.set(Fault::Delay(Duration::from_millis(60)));
    tell(&stage.server, &["CONFIG", "SET", "maxmemory", "0"]);
    becomes("the probe is answered", TIMEOUT, async || limiter.health().state == LimitState::Up)
        .await;
    assert!(store.health()[0].is_up, "no probe has timed out");
}

/// T32.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn busy_the_policy_decides_during_a_long_script() {
    let (server, limiter) =
        served(RedisServer::builder().option("busy-reply-threshold", "50")).await;
    let server = Arc::new(server);
    let busy = Arc::clone(&server);
    let script =
        tokio::task::spawn_blocking(move || busy.command(&["EVAL", "while true do end", "0"]));
    refuses(&limiter, "BUSY").await;
    tell(&server, &["SCRIPT", "KILL"]);
    assert!(matches!(script.await.expect("it was killed"), Reply::Error(_)));
    decides(&limiter).await;
}

/// T32.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn misconf_the_policy_decides_while_the_server_cannot_save() {
    let (server, limiter) =
        served(RedisServer::builder().option("enable-protected-configs", "yes")).await;
    tell(&server, &["CONFIG", "SET", "dir", "/proc"]);
    tell(&server, &["CONFIG", "SET", "save", "3600 1"]);
    server.command(&["BGSAVE"]);
    refuses(&limiter, "MISCONF").await;
    tell(&server, &["CONFIG", "SET", "save", ""]);
    decides(&limiter).await;
}

/// T32.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wrongtype_affects_only_its_own_key() {
    let (server, limiter) = served(RedisServer::builder()).await;
    server.command(&["DEL", "tg:{key}:errors"]);
    server.command(&["LPUSH", "tg:{key}:errors", "x"]);
    for _ in 0..10 {
        refuses(&limiter, "WRONGTYPE").await;
        let other = limiter.decide(b"other", 1).await;
        assert_eq!(other.source, DecisionSource::Redis, "one key does not open the breaker");
    }
    server.command(&["DEL", "tg:{key}:errors"]);
    decides(&limiter).await;
}

/// T32.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_value_of_another_program_is_an_error() {
    let server = RedisServer::start();
    let store = store_at(&server.url(), Settings::default()).await;
    let values: [&[u8]; 6] = [b"", b"5", b"hello", &[0; 24], &[0xff; 40], &[0x41; 64]];
    for (place, rule) in
        ["10/h", "10/h sliding", "10/h sliding-log", "concurrency 5"].iter().enumerate()
    {
        let name = format!("foreign{place}");
        let limiter = limiter_with(&store, &name, rule, OnError::Allow);
        ready(&limiter).await;
        let key = format!("tg:{{key}}:{name}");
        for value in values {
            server.command(&[b"SET", key.as_bytes(), value]);
            let _ = limiter.check("key").await;
            drop(limiter.try_acquire("key").await);
            server.command(&["DEL", &key]);
            becomes("Redis decides", TIMEOUT, async || limiter.try_check("key", 1).await.is_ok())
                .await;
        }
    }
}

/// T32. A cluster node that has no slots at first, and then all.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clusterdown_and_crossslot_let_the_policy_decide() {
    let server = RedisServer::builder()
        .option("cluster-enabled", "yes")
        .option("cluster-node-timeout", "500")
        .start();
    let (_store, limiter) = limiter_on(&server).await;
    refuses(&limiter, "CLUSTERDOWN").await;
    tell(&server, &["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]);
    decides(&limiter).await;
    // Its address is that of a single server, so keys of several slots are sent in one script.
    let asks = [&b"a"[..], b"b"].map(|key| limiter.request(key).cost(1));
    let error = try_check_all(asks).await.expect_err("two slots");
    assert!(
        matches!(&error, RedisStoreError::Refused { code, .. } if code == "CROSSSLOT"),
        "{error}"
    );
    assert!(!error.may_have_charged());
    decides(&limiter).await;
}

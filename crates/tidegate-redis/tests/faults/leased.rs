//! T28, T29 for requests that wait for the same lease: at most until the deadline, and for one answer.

use crate::stage::{Outage, PATIENT, Stage, TIMEOUT, becomes, ready};
use std::time::Duration;
use tidegate_redis::{DecisionSource, OnError, RedisLimiter, Settings, SourcedDecision};
use tidegate_testbed::{Fault, RedisServer};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

const CALLERS: usize = 40;

async fn leasing(stage: &Stage, rule: &str, deadline: Duration) -> RedisLimiter {
    let store = stage.store_with(Settings::default().deadline(deadline)).await;
    let rule = rule.parse().unwrap_or_else(|error| panic!("{error}"));
    let builder = store.builder("leased", rule).lease(true).on_error(OnError::Deny);
    let limiter = builder.build().expect("Redis can keep it");
    ready(&limiter).await;
    // A new node gets no leases at first.
    let mut key = 0_u64;
    becomes("leases are given", TIMEOUT, async || {
        key += 1;
        limiter.decide(&key.to_le_bytes(), 1).await.source == DecisionSource::Lease
    })
    .await;
    limiter
}

/// Sends many requests about one key at once. Returns the decisions, and how long the last one took.
async fn all_at_once(
    limiter: &RedisLimiter,
    key: &'static [u8],
    callers: usize,
) -> (Vec<SourcedDecision>, Duration) {
    let began = Instant::now();
    let mut asked = JoinSet::new();
    for _ in 0..callers {
        let limiter = limiter.clone();
        asked.spawn(async move { limiter.decide(key, 1).await });
    }
    (asked.join_all().await, began.elapsed())
}

/// Returns how many scripts for leases and decisions the server has run.
fn scripts(server: &RedisServer) -> u64 {
    let calls = |line: &str| -> Option<u64> {
        let rest = line.strip_prefix("cmdstat_eval")?.split_once("calls=")?.1;
        rest.split(',').next()?.parse().ok()
    };
    let info = server.command(&["INFO", "commandstats"]).text();
    info.lines().filter_map(calls).sum()
}

/// T29. One after the other, they would take three deadlines until the breaker opens.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_requests_that_wait_for_a_lease_are_decided_within_one_deadline() {
    let deadline = Duration::from_millis(500);
    let stage = Stage::new();
    let limiter = leasing(&stage, "1000/h burst 1000", deadline).await;
    stage.begin(Outage::Silent);
    let (told, waited) = all_at_once(&limiter, b"key", CALLERS).await;
    assert!(told.iter().all(|told| told.source == DecisionSource::Policy));
    assert_eq!(limiter.stats().failed, CALLERS as u64);
    // The other half is for a busy machine.
    assert!(waited < deadline * 5 / 2, "{waited:?}");
}

/// T29.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_waits_for_several_leases_waits_for_one_deadline() {
    let (deadline, delay) = (Duration::from_millis(800), Duration::from_millis(300));
    let stage = Stage::new();
    let limiter = leasing(&stage, "400/h burst 400", deadline).await;
    let before = limiter.stats().lent;
    stage.proxy.set(Fault::Delay(delay));
    let (told, waited) = all_at_once(&limiter, b"key", 400).await;
    // The first lease is small, the second as large as possible, and a third would be late.
    let leased = told.iter().filter(|told| told.source == DecisionSource::Lease).count() as u64;
    assert!((1..200).contains(&leased), "{leased}");
    assert!(waited < deadline * 2, "{waited:?}");
    becomes("the third comes all the same", TIMEOUT, async || {
        limiter.stats().lent - before > leased
    })
    .await;
}

/// Adds a lease of another node, as `lend.lua` does, so large that no further lease is granted.
fn lend_to_others(server: &RedisServer, key: &str, amount: f64) {
    let lease = [1_f64.to_le_bytes(), amount.to_le_bytes()].concat();
    let leases = format!("tg:{{{key}}}:leased#leases");
    let ends_us = "9000000000000000";
    server.command(&[b"ZADD", leases.as_bytes(), ends_us.as_bytes(), &lease]);
}

/// T29. The refusal of a lease takes one round trip, and the decision without a lease another.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_for_a_lease_and_then_for_a_decision_has_one_deadline() {
    let (deadline, delay) = (Duration::from_millis(800), Duration::from_millis(500));
    let stage = Stage::new();
    let limiter = leasing(&stage, "1000/h burst 1000", deadline).await;
    lend_to_others(&stage.server, "key", 500.0);
    lend_to_others(&stage.server, "other", 500.0);
    let told = limiter.decide(b"key", 1).await;
    assert_eq!(told.source, DecisionSource::Redis, "there is no lease for it");
    stage.proxy.set(Fault::Delay(delay));
    let began = Instant::now();
    // The first request has shown that there are no leases.
    let told = limiter.decide(b"other", 1).await;
    assert_eq!(told.source, DecisionSource::Policy, "the second would come after {:?}", delay * 2);
    assert!(began.elapsed() > delay, "it was waited for");
}

/// T28. Requests that wait for a denial are denied by it, without asking Redis.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_requests_that_wait_for_a_lease_are_denied_by_one_answer() {
    let stage = Stage::new();
    let limiter = leasing(&stage, "10/h burst 10", PATIENT).await;
    while limiter.check("key").await.is_allow() {}
    // Denials are cached for a second.
    sleep(Duration::from_millis(1_100)).await;
    stage.proxy.set(Fault::Delay(Duration::from_millis(200)));
    let before = scripts(&stage.server);
    let (told, _) = all_at_once(&limiter, b"key", CALLERS).await;
    let asked = scripts(&stage.server) - before;
    assert!(
        told.iter().all(|told| told.decision.is_deny() && told.decision.retry_after().is_some())
    );
    // One request asked; the rule is read and leases are returned at intervals.
    assert!(asked <= 5, "{asked} scripts for {CALLERS} callers");
}

/// T28.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_waits_for_a_lease_is_decided_if_the_rule_changes_meanwhile() {
    let delay = Duration::from_millis(300);
    let stage = Stage::new();
    let limiter = leasing(&stage, "1000/h burst 1000", PATIENT).await;
    stage.proxy.set(Fault::Delay(delay));
    let changing = {
        let limiter = limiter.clone();
        let rule = "2000/h burst 2000".parse().expect("it is a rule");
        tokio::spawn(async move { limiter.set_rule(rule).await })
    };
    sleep(delay / 2).await;
    let asked = tokio::time::timeout(TIMEOUT, all_at_once(&limiter, b"key", CALLERS)).await;
    let (told, _) = asked.expect("no request waits for ever");
    assert!(told.iter().all(|told| told.decision.is_allow()), "{told:?}");
    changing.await.expect("the task does not panic").expect("Redis answers");
}

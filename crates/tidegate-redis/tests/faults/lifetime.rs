//! T35: every key in Redis expires when its state has no effect any more.

use crate::stage::{PATIENT, id, limiter, ready, store_at, witness_at};
use std::time::Duration;
use tidegate_redis::{RedisLimiter, RedisStore, Settings, try_check_all};
use tidegate_testbed::{Random, RedisServer, Reply};
use tokio::time::sleep;

pub(crate) const RULES: [&str; 18] = [
    "100/s burst 20",
    "7/min burst 3",
    "50/s burst 10 start empty",
    "10/s leaky capacity 4",
    "10/s queue capacity 5",
    "5/min fixed",
    "10/s fixed",
    "3/s fixed from first",
    "5/day calendar",
    "5/min sliding",
    "20/s sliding",
    "5/min sliding-log",
    "100/s sliding-log",
    "5/s smooth",
    "5/s warmup 1s",
    "10r/m burst=5",
    "concurrency 5 lease 2s",
    "concurrency 5",
];
const SUBJECTS: u64 = 4;
const OPERATIONS: u64 = 60;
const SECOND_MS: u64 = 1_000;
const DAY_MS: u64 = 86_400_000;
const WEEK_MS: u64 = 7 * DAY_MS;
/// How long the answer to an idempotent request is stored.
const ONCE_MS: u64 = 10_000;
/// Until a limit has this age, a key that starts empty is not full.
const YOUNG_MS: u64 = 1_000;
const BEGIN_EMPTY: [&str; 3] = ["start empty", "smooth", "warmup"];

async fn store(server: &RedisServer) -> RedisStore {
    store_at(&server.url(), Settings::default().deadline(PATIENT)).await
}

async fn operate(limiter: &RedisLimiter, random: &mut Random) {
    let key = random.below(SUBJECTS).to_string();
    let cost = random.below(4);
    match random.below(10) {
        0 => limiter.refund(&key, cost).await.expect("it answers"),
        1 => limiter.reset(&key).await.expect("it answers"),
        2 => drop(limiter.check_once(&key, cost, id(&random.below(9).to_string())).await),
        3 => {
            let asks = [1, 2].map(|cost| limiter.request(key.as_bytes()).cost(cost));
            let _ = try_check_all(asks).await.expect("it answers");
        }
        4 => drop(limiter.try_check(&key, u64::MAX).await.expect("it answers")),
        5 if limiter.rule().is_concurrency() => {
            // Some permits are never released.
            std::mem::forget(limiter.try_acquire(&key).await);
        }
        6 => sleep(Duration::from_millis(3)).await,
        _ => drop(limiter.try_check(&key, cost).await.expect("it answers")),
    }
}

/// Returns the longest time that this key may live.
async fn lives_ms(limiter: &RedisLimiter, key: &str) -> u64 {
    let Some(rest) = key.strip_prefix("tg:{") else { return WEEK_MS };
    let (subject, rest) = rest.split_once('}').expect("a tag has an end");
    if rest.matches(':').count() > 1 {
        return ONCE_MS;
    }
    let drains =
        limiter.request(subject).cost(0).peek().await.expect("it answers").reset_after.as_micros();
    // A permit without a lease is held for a day, since it may be released at any time.
    let rule = limiter.rule().to_string();
    let least_ms = if BEGIN_EMPTY.iter().any(|word| rule.contains(word)) { YOUNG_MS } else { 0 };
    drains.div_ceil(1_000).clamp(least_ms, DAY_MS) + SECOND_MS
}

async fn lives_as_long_as_it_may(server: &RedisServer, limiter: &RedisLimiter) -> usize {
    let keys = server.command(&["KEYS", "*"]);
    for key in keys.items().iter().map(Reply::text) {
        // In this order, since the remaining time to live only decreases.
        let most_ms = lives_ms(limiter, &key).await;
        let left = server.command(&["PTTL", &key]);
        let Reply::Integer(left_ms) = left else { panic!("{left:?}") };
        // -2: the key has expired. -1: the key never expires.
        let is_right = left_ms == -2 || u64::try_from(left_ms).is_ok_and(|ms| ms <= most_ms);
        assert!(is_right, "`{}`: {key} lives {left_ms} of {most_ms} ms", limiter.rule());
    }
    keys.items().len()
}

/// T35.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_key_lives_until_it_has_drained_and_a_second_more() {
    let server = RedisServer::start();
    let store = store(&server).await;
    for (seed, rule) in (0..).zip(RULES) {
        server.command(&["FLUSHALL"]);
        let limiter = limiter(&store, &format!("life{seed}"), rule);
        let mut random = Random(seed);
        let mut most = 0;
        for _ in 0..4 {
            for _ in 0..OPERATIONS / 4 {
                operate(&limiter, &mut random).await;
            }
            most = most.max(lives_as_long_as_it_may(&server, &limiter).await);
        }
        assert!(most > 1, "`{rule}`: nothing was kept");
    }
}

/// T35.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_state_that_is_converted_to_another_rule_lives_as_long_as_that_rule_needs() {
    let server = RedisServer::start();
    let store = store(&server).await;
    let limiter = limiter(&store, "change", "1000/h burst 1000");
    for rule in RULES.iter().filter(|rule| !rule.contains("concurrency")) {
        for subject in 0..SUBJECTS {
            let _ = limiter.try_check(subject.to_string(), 2).await.expect("it answers");
        }
        limiter.set_rule(rule.parse().unwrap()).await.expect("it answers");
        // A limiter that has never had another rule.
        let witness = witness_at(&server.url(), "change", rule).await;
        ready(&witness).await;
        for subject in 0..SUBJECTS {
            let _ = witness.try_check(subject.to_string(), 1).await.expect("it answers");
        }
        lives_as_long_as_it_may(&server, &witness).await;
    }
}

/// Returns the values, when they expire, and how many writes there were.
fn written(server: &RedisServer) -> Vec<Reply> {
    let mut all = Vec::new();
    for key in server.command(&["KEYS", "tg:{*"]).items().iter().map(Reply::text) {
        all.extend([server.command(&["GET", &key]), server.command(&["PEXPIRETIME", &key])]);
    }
    let info = server.command(&["INFO", "commandstats"]);
    for command in ["set", "setrange", "pexpire", "del"] {
        let stat = info.field(&format!("cmdstat_{command}")).unwrap_or_default();
        all.push(Reply::Simple(stat.split(',').next().unwrap_or_default().to_owned()));
    }
    all
}

/// T35.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_denied_request_writes_nothing() {
    let server = RedisServer::start();
    let store = store(&server).await;
    for (number, rule) in RULES.iter().enumerate() {
        server.command(&["FLUSHALL"]);
        let limiter = limiter(&store, &format!("denied{number}"), rule);
        ready(&limiter).await;
        let most = limiter.request("key").cost(0).peek().await.expect("it answers").limit;
        // A denied request does not take what is remaining.
        let _ = limiter.try_check("key", most.min(3)).await.expect("it answers");
        for cost in [most + 1, u64::MAX] {
            let before = written(&server);
            let decision = limiter.try_check("key", cost).await.expect("it answers");
            if !decision.is_deny() {
                assert!(cost < u64::MAX, "`{rule}` admits everything");
                continue;
            }
            let _ = limiter.check_once("key", cost, id("id")).await;
            let other = limiter.request(b"other").cost(1);
            let asks = [other, limiter.request(b"key").cost(cost)];
            let joint = try_check_all(asks).await.expect("it answers");
            assert!(joint.decision.is_deny(), "`{rule}`: {cost}: {joint:?}");
            assert_eq!(written(&server), before, "`{rule}`: {cost}");
        }
    }
}

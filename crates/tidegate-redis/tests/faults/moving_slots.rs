//! T32: requests about a slot that moves from one primary to another: MOVED, ASK and TRYAGAIN.

use crate::cluster::{address, counts};
use crate::stage::{PATIENT, TIMEOUT, becomes, id, limiter_with, ready, store_at, witness_at};
use tidegate_redis::{DecisionSource, OnError, RedisLimiter, Settings, check_all};
use tidegate_testbed::{Cluster, RedisServer};

const RULE: &str = "10/h burst 10";
const KEY: &str = "tg:{key}:moving";

async fn limiter_of(cluster: &Cluster) -> RedisLimiter {
    let store = store_at(&address(cluster), Settings::default().deadline(PATIENT)).await;
    let limiter = limiter_with(&store, "moving", RULE, OnError::Deny);
    ready(&limiter).await;
    limiter
}

fn errors(server: &RedisServer, code: &str) -> bool {
    server.command(&["INFO", "errorstats"]).text().contains(&format!("errorstat_{code}:"))
}

/// T32.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn moved_ask_and_tryagain_lose_nothing_and_charge_nothing_twice() {
    let cluster = Cluster::start();
    let limiter = limiter_of(&cluster).await;
    let take = async |times: u64, left: u64| {
        for done in 1..=times {
            let told = limiter.decide(b"key", 1).await;
            assert_eq!(told.source, DecisionSource::Redis, "{}", limiter.stats().last_failure);
            assert_eq!(told.decision.remaining, left + times - done);
        }
    };
    take(2, 8).await;

    let migration = cluster.begin_migration(cluster.slot_of(KEY));
    let (from, to) = (migration.from(), migration.to());
    take(2, 6).await;
    // The key has moved, and the key of the stored answer does not exist: neither node has both, until the slot has
    // moved.
    assert!(limiter.check_once("key", 1, id("1")).await.is_deny());
    assert!(errors(from, "TRYAGAIN"));
    assert!(limiter.stats().last_failure.contains("TRYAGAIN"));
    migration.move_key(KEY);
    take(3, 3).await;
    assert!(
        errors(from, "ASK") && errors(to, "NOSCRIPT"),
        "the new owner does not have the script yet"
    );
    assert!(limiter.check_once("key", 1, id("1")).await.is_deny());
    assert!(errors(to, "TRYAGAIN"));
    assert!(!errors(from, "MOVED"));

    migration.finish();
    take(2, 1).await;
    assert!(errors(from, "MOVED"));
    for _ in 0..2 {
        assert_eq!(limiter.check_once("key", 1, id("1")).await.remaining, 0);
    }
    assert!(limiter.check("key").await.is_deny());

    let witness = witness_at(&address(&cluster), "moving", RULE).await;
    becomes("all is charged", TIMEOUT, async || counts(&witness, "key").await == Some(10)).await;
}

/// Returns a limiter with a lease.
async fn leasing(cluster: &Cluster) -> RedisLimiter {
    let store = store_at(&address(cluster), Settings::default().deadline(PATIENT)).await;
    let rule = "1000/h burst 1000".parse().expect("it is a rule");
    let builder = store.builder("moving", rule).lease(true).on_error(OnError::Deny);
    let limiter = builder.build().expect("Redis can keep it");
    ready(&limiter).await;
    becomes("a lease is given", TIMEOUT, async || {
        limiter.decide(b"key", 1).await.source == DecisionSource::Lease
    })
    .await;
    limiter
}

/// T32. A lease needs two keys, and neither node has both, so requests are decided without leases.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_limit_with_leases_is_decided_by_redis_while_its_slot_moves() {
    let cluster = Cluster::start();
    let limiter = leasing(&cluster).await;
    let migration = cluster.begin_migration(cluster.slot_of(KEY));
    let (from, to) = (migration.from(), migration.to());
    // One of the two keys is on either node, until the slot has moved.
    migration.move_key(KEY);
    let mut shared = 0;
    becomes("leases are refused and decided without", TIMEOUT, async || {
        let told = limiter.decide(b"key", 1).await;
        assert!(told.decision.is_allow(), "{told:?}: {}", limiter.stats().last_failure);
        shared += u64::from(told.source == DecisionSource::Redis);
        shared >= 20 && (errors(from, "TRYAGAIN") || errors(to, "TRYAGAIN"))
    })
    .await;
    assert_eq!(limiter.stats().failed, 0, "{}", limiter.stats().last_failure);
    migration.finish();
    becomes("leases are given again", TIMEOUT, async || {
        limiter.decide(b"key", 1).await.source == DecisionSource::Lease
    })
    .await;
}

/// T32. Several limits of one subject are several keys of one slot.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_limits_as_one_are_decided_by_redis_while_their_slot_moves() {
    let cluster = Cluster::start();
    let store = store_at(&address(&cluster), Settings::default().deadline(PATIENT)).await;
    let limiters = ["moving", "second"].map(|name| limiter_with(&store, name, RULE, OnError::Deny));
    for limiter in &limiters {
        ready(limiter).await;
    }
    let asks = limiters.each_ref().map(|limiter| limiter.request(b"key").cost(1));
    assert!(check_all(asks).await.decision.is_allow());
    let migration = cluster.begin_migration(cluster.slot_of(KEY));
    let (from, to) = (migration.from(), migration.to());
    migration.move_key(KEY);
    for left in (0..9).rev() {
        let joint = check_all(asks).await;
        let remaining: Vec<u64> = joint.each.iter().map(|decision| decision.remaining).collect();
        assert_eq!((joint.decision.is_allow(), &remaining[..]), (true, &[left, left][..]));
    }
    assert!(check_all(asks).await.decision.is_deny());
    assert!(errors(from, "TRYAGAIN") || errors(to, "TRYAGAIN"));
    assert_eq!(limiters[0].stats().failed + limiters[1].stats().failed, 0);
    // If one limit denies, the charge to the other is refunded.
    limiters[0].reset("key").await.expect("it is one key");
    assert!(check_all(asks).await.decision.is_deny());
    assert_eq!(
        limiters[0].request("key").cost(0).peek().await.expect("it is one key").remaining,
        10
    );
    migration.finish();
    assert!(check_all(asks).await.decision.is_deny());
}

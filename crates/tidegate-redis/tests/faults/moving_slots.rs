//! T32: a slot that moves from one primary to another while it is asked about: MOVED, ASK and TRYAGAIN.

use crate::cluster::{address, counts};
use crate::stage::{PATIENCE, PATIENT, becomes, limiter_with, ready, store_at, witness_at};
use tidegate_redis::{OnError, RedisLimiter, Settings, Source};
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t32_moved_ask_and_tryagain_lose_nothing_and_charge_nothing_twice() {
    let cluster = Cluster::start();
    let limiter = limiter_of(&cluster).await;
    let take = async |times: u64, left: u64| {
        for done in 1..=times {
            let told = limiter.decide(b"key", 1).await;
            assert_eq!(told.source, Source::Shared, "{}", limiter.stats().last_failure);
            assert_eq!(told.decision.remaining, left + times - done);
        }
    };
    take(2, 8).await;

    let migration = cluster.begin_migration(cluster.slot_of(KEY));
    let (from, to) = (migration.from(), migration.to());
    take(2, 6).await;
    // The key is there, and the place where the answer is kept is nowhere: neither of the two can say that it has
    // both, until the slot has moved.
    assert!(limiter.check_once("key", 1, "1").await.is_deny());
    assert!(errors(from, "TRYAGAIN"));
    assert!(limiter.stats().last_failure.contains("TRYAGAIN"));
    migration.move_key(KEY);
    take(3, 3).await;
    assert!(errors(from, "ASK") && errors(to, "NOSCRIPT"), "who is asked has not seen the script");
    assert!(limiter.check_once("key", 1, "1").await.is_deny());
    assert!(errors(to, "TRYAGAIN"));
    assert!(!errors(from, "MOVED"));

    migration.finish();
    take(2, 1).await;
    assert!(errors(from, "MOVED"));
    for _ in 0..2 {
        assert_eq!(limiter.check_once("key", 1, "1").await.remaining, 0);
    }
    assert!(limiter.check("key").await.is_deny());

    let witness = witness_at(&address(&cluster), "moving", RULE).await;
    becomes("all is charged", PATIENCE, async || counts(&witness, "key").await == Some(10)).await;
}

//! T33 for concurrency: permits that are held before, during and after an outage.

use crate::stage::{Outage, PATIENT, Stage, TIMEOUT, becomes, limiter_with, ready};
use tidegate_redis::{OnError, RedisLimiter, RedisPermit, Settings};

const NODES: u64 = 3;
const RULE: &str = "concurrency 6";

async fn nodes(stage: &Stage, on_error: OnError) -> Vec<RedisLimiter> {
    let mut limiters = Vec::new();
    for _ in 0..NODES {
        let store = stage.store_with(Settings::default().deadline(PATIENT)).await;
        let limiter = limiter_with(&store, "permits", RULE, on_error);
        ready(&limiter).await;
        limiters.push(limiter);
    }
    limiters
}

/// Acquires all free permits, at all nodes in turn.
async fn hold(nodes: &[RedisLimiter], key: &str) -> Vec<RedisPermit> {
    let mut held = Vec::new();
    for limiter in nodes.iter().cycle().take(nodes.len() * 10) {
        held.extend(limiter.try_acquire(key).await.ok());
    }
    held
}

async fn is_back(limiter: &RedisLimiter) {
    becomes("Redis answers again", TIMEOUT, async || {
        limiter.request("probe").cost(0).peek().await.is_ok()
    })
    .await;
}

/// T33.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn permits_granted_by_redis_are_not_granted_again_without_it() {
    let stage = Stage::new();
    let nodes = nodes(&stage, OnError::Local { nodes: NODES }).await;
    let held = hold(&nodes, "key").await;
    assert_eq!(held.len(), 6);
    stage.begin(Outage::Refused);
    assert_eq!(hold(&nodes, "key").await.len(), 0);
    assert_eq!(hold(&nodes, "other").await.len(), 6, "another key has its own permits");
    assert!(nodes.iter().all(|limiter| limiter.stats().failed >= 10));
}

/// T33.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn permits_granted_without_redis_are_not_granted_again_by_it() {
    let stage = Stage::new();
    let nodes = nodes(&stage, OnError::Local { nodes: NODES }).await;
    stage.begin(Outage::Refused);
    let held = hold(&nodes, "key").await;
    assert_eq!(held.len(), 6);
    stage.end(Outage::Refused);
    for limiter in &nodes {
        is_back(limiter).await;
    }
    assert_eq!(hold(&nodes, "key").await.len(), 0, "the shares still hold their permits");
    drop(held);
    let held = hold(&nodes[..1], "key").await;
    assert_eq!(held.len(), 6, "one node may have all again");
    for permit in held {
        assert!(permit.release().await.expect("it answers"), "Redis granted them");
    }
    assert_eq!(hold(&nodes, "key").await.len(), 6);
}

/// T28.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_redis_permits_are_granted_by_the_policy() {
    for (on_error, given) in [(OnError::Allow, 30), (OnError::Deny, 0)] {
        let stage = Stage::new();
        let nodes = nodes(&stage, on_error).await;
        stage.begin(Outage::Refused);
        let held = hold(&nodes, "key").await;
        assert_eq!(held.len(), given, "{on_error:?}");
        let stats: Vec<_> = nodes.iter().map(RedisLimiter::stats).collect();
        assert!(stats.iter().all(|stats| stats.failed == 10 && stats.allowed + stats.denied == 10));
    }
}

/// T33. No other process can release the permit, and without a lease it would be held for a day.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_permit_that_was_released_during_an_outage_is_free_after_it() {
    let stage = Stage::new();
    let limiter = &nodes(&stage, OnError::default()).await[0];
    let witness = stage.witness("permits", RULE).await;
    let mut held = Vec::new();
    for key in ["dropped", "released"] {
        held.push(limiter.request(key).cost(6).try_acquire().await.expect("there is room"));
        assert!(witness.try_acquire(key).await.is_err(), "Redis knows of it");
    }
    stage.begin(Outage::Refused);
    let released = held.pop().expect("it was taken").release().await;
    let error = released.expect_err("Redis does not answer");
    assert!(error.to_string().contains(&stage.proxy.address().to_string()), "{error}");
    drop(held);
    stage.end(Outage::Refused);
    for key in ["dropped", "released"] {
        becomes("it is free", TIMEOUT, async || {
            witness.request(key).cost(6).try_acquire().await.is_ok()
        })
        .await;
    }
}

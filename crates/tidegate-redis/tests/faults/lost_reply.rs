//! T31: the script has run, and its answer is lost. Nothing is sent again that might be charged twice.

use crate::stage::{PATIENCE, PATIENT, Stage, becomes, limiter, limiter_with, ready};
use std::time::Duration;
use tidegate_redis::{JointAsk, OnError, RedisLimiter, Settings, Source, StoreError, check_all};
use tidegate_testbed::Fault;
use tokio::time::sleep;

const RULE: &str = "100/h burst 100";
const COST: u64 = 7;
const ROUNDS: u32 = 6;
const FAULTS: [Fault; 2] = [Fault::LoseReply, Fault::ResetMidReply];

/// How often the cost of a key has been charged, in Redis's own eyes.
async fn charges(witness: &RedisLimiter, key: &str) -> u64 {
    let left = witness.peek(key, 0).await.expect("its way does not fail").remaining;
    assert_eq!((100 - left) % COST, 0, "{left} left");
    (100 - left) / COST
}

async fn recovers(limiter: &RedisLimiter) {
    becomes("Redis decides again", PATIENCE, async || {
        limiter.decide(b"probe", 0).await.source == Source::Shared
    })
    .await;
}

/// A stage, a limiter behind its network, and who sees what Redis has counted.
async fn stage() -> (Stage, RedisLimiter, RedisLimiter) {
    let stage = Stage::new();
    let settings = Settings::default().deadline(PATIENT);
    let limiter = limiter(&stage.store_with(settings).await, "lost", RULE);
    ready(&limiter).await;
    let witness = stage.witness("lost", RULE).await;
    (stage, limiter, witness)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t31_a_request_whose_reply_is_lost_is_charged_at_most_once() {
    let (stage, limiter, witness) = stage().await;
    let mut charged = 0;
    for fault in FAULTS {
        for round in 0..ROUNDS {
            let key = format!("{fault:?}-{round}");
            stage.proxy.set(fault);
            let error = limiter.try_check(&key, COST).await.expect_err("the reply is lost");
            stage.proxy.set(Fault::Pass);
            recovers(&limiter).await;
            // Time in which it could be sent again.
            sleep(Duration::from_millis(30)).await;
            let times = charges(&witness, &key).await;
            assert!(times <= 1, "{fault:?}: charged {times} times");
            assert!(times == 0 || error.may_have_charged(), "{error}");
            charged += times;
        }
    }
    // It was lost after the script had run, or this would say nothing; but for a connection that was lost before.
    assert!(charged >= u64::from(ROUNDS), "{charged}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t31_who_asks_again_with_the_same_id_is_charged_once_and_told_the_same() {
    let (stage, limiter, witness) = stage().await;
    for fault in FAULTS {
        let key = format!("{fault:?}");
        stage.proxy.set(fault);
        let _ = limiter.check_once(&key, COST, "42").await;
        assert!(limiter.stats().failed > 0);
        stage.proxy.set(Fault::Pass);
        recovers(&limiter).await;
        for _ in 0..3 {
            let decision = limiter.check_once(&key, COST, "42").await;
            assert!(decision.is_allow());
            assert_eq!(decision.remaining, 100 - COST);
        }
        assert_eq!(charges(&witness, &key).await, 1);
        let _ = limiter.check_once(&key, COST, "43").await;
        assert_eq!(charges(&witness, &key).await, 2, "another id is another request");
    }
}

/// What is said again is charged to nobody, nor is this node's share asked about it, which has been charged already when the
/// answer was lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t31_who_asks_again_is_told_the_same_though_the_share_would_deny_it() {
    const RULE: &str = "9/h burst 9";
    let stage = Stage::new();
    let store = stage.store_with(Settings::default().deadline(PATIENT)).await;
    let limiter = limiter_with(&store, "lost", RULE, OnError::Local { nodes: 3 });
    ready(&limiter).await;
    let witness = stage.witness("lost", RULE).await;
    let left = async |key: &str| witness.peek(key, 0).await.expect("it answers").remaining;
    let mut lost = 0;
    for key in (0..ROUNDS).map(|round| format!("key-{round}")) {
        stage.proxy.set(Fault::LoseReply);
        assert!(limiter.check_once(&key, 2, "42").await.is_allow(), "the share has three");
        stage.proxy.set(Fault::Pass);
        recovers(&limiter).await;
        if left(&key).await == 9 {
            // The connection was lost before: it has not come to Redis.
            continue;
        }
        lost += 1;
        assert!(limiter.check_n(&key, 2).await.is_deny(), "the share has one left");
        for _ in 0..5 {
            let decision = limiter.check_once(&key, 2, "42").await;
            assert_eq!((decision.is_allow(), decision.remaining), (true, 7));
        }
        assert!(limiter.check_once(&key, 2, "43").await.is_deny(), "that is another one");
        assert_eq!(left(&key).await, 7, "and not charged");
        assert!(limiter.check_once(&key, 1, "44").await.is_allow(), "the share still has one");
        assert_eq!(left(&key).await, 6);
    }
    assert!(lost > 0, "no reply was lost");
}

/// What was said to one request is nothing to another, which may cost more than is left.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t31_who_asks_for_another_cost_with_the_same_id_asks_something_else() {
    let (_stage, limiter, witness) = stage().await;
    assert!(limiter.check_once("key", COST, "42").await.is_allow());
    assert!(limiter.check_once("key", 101, "42").await.is_deny());
    assert!(limiter.check_once("key", 2 * COST, "42").await.is_allow());
    assert_eq!(limiter.check_once("key", COST, "42").await.remaining, 100 - COST);
    assert_eq!(charges(&witness, "key").await, 3);
    assert_eq!(limiter.stats().failed, 0, "{}", limiter.stats().last_failure);
}

/// Also of another kind, and also on a node that has not heard of it yet.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t31_who_asks_again_under_another_rule_is_told_what_was_said_under_the_first() {
    let (stage, limiter, witness) = stage().await;
    ready(&witness).await;
    for (rule, number) in [("2/h burst 2", 0), ("2/h sliding-log", 1), ("1000/h", 2)] {
        limiter.set_rule(RULE.parse().unwrap()).await.expect("it answers");
        let (id, key) = (format!("id-{number}"), format!("key-{number}"));
        assert_eq!(limiter.check_once(&key, COST, &id).await.remaining, 100 - COST);
        limiter.set_rule(rule.parse().unwrap()).await.expect("it answers");
        for node in [&limiter, &witness] {
            let decision = node.check_once(&key, COST, &id).await;
            assert!(decision.is_allow(), "`{rule}`: {decision:?}");
            assert_eq!(decision.remaining, 100 - COST, "`{rule}`");
            assert_eq!(node.stats().failed, 0, "`{rule}`: {}", node.stats().last_failure);
        }
    }
    drop(stage);
}

/// What is kept for an id is told from what is kept of leases.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t31_an_id_may_be_called_as_anything_else_of_its_key_is() {
    let stage = Stage::new();
    let store = stage.store_with(Settings::default().deadline(PATIENT)).await;
    let builder = store.builder("lost", "1000/s burst 1000".parse().unwrap());
    let limiter = builder.lease(true).build().expect("Redis can keep it");
    ready(&limiter).await;
    becomes("a lease is taken", PATIENCE, async || {
        let _ = limiter.check("key").await;
        limiter.stats().lent > 0
    })
    .await;
    assert!(limiter.check_once("key", 1, "leases").await.is_allow());
    assert_eq!(limiter.stats().failed, 0, "{}", limiter.stats().last_failure);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t31_several_requests_as_one_are_charged_at_most_once() {
    let (stage, limiter, witness) = stage().await;
    stage.proxy.set(Fault::LoseReply);
    let asks = [&b"a"[..], b"b"].map(|key| JointAsk { limiter: &limiter, key, cost: COST });
    let error = check_all(&asks).await.expect_err("the reply is lost");
    assert!(matches!(error, StoreError::Lost { .. } | StoreError::Down { .. }), "{error}");
    stage.proxy.set(Fault::Pass);
    recovers(&limiter).await;
    let both = [charges(&witness, "a").await, charges(&witness, "b").await];
    assert!(both == [1, 1] || both == [0, 0], "{both:?}");
}

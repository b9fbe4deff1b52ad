//! T31: the script has run, and its reply is lost. A request that may have been charged is not sent again.

use crate::stage::{PATIENT, Stage, TIMEOUT, becomes, id, limiter, limiter_with, ready};
use std::time::Duration;
use tidegate_redis::{
    DecisionSource, OnError, RedisLimiter, RedisStoreError, Settings, try_check_all,
};
use tidegate_testbed::Fault;
use tokio::time::sleep;

const RULE: &str = "100/h burst 100";
const COST: u64 = 7;
const ROUNDS: u32 = 6;
const FAULTS: [Fault; 2] = [Fault::LoseReply, Fault::ResetMidReply];

/// Returns how often a key was charged in Redis.
async fn charges(witness: &RedisLimiter, key: &str) -> u64 {
    let left = witness.request(key).cost(0).peek().await.expect("its way does not fail").remaining;
    assert_eq!((100 - left) % COST, 0, "{left} left");
    (100 - left) / COST
}

async fn recovers(limiter: &RedisLimiter) {
    becomes("Redis decides again", TIMEOUT, async || {
        limiter.decide(b"probe", 0).await.source == DecisionSource::Redis
    })
    .await;
}

/// Returns a stage, a limiter behind the proxy, and one with a direct connection.
async fn stage() -> (Stage, RedisLimiter, RedisLimiter) {
    let stage = Stage::new();
    let settings = Settings::default().deadline(PATIENT);
    let limiter = limiter(&stage.store_with(settings).await, "lost", RULE);
    ready(&limiter).await;
    let witness = stage.witness("lost", RULE).await;
    (stage, limiter, witness)
}

/// T31.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_whose_reply_is_lost_is_charged_at_most_once() {
    let (stage, limiter, witness) = stage().await;
    let mut charged = 0;
    for fault in FAULTS {
        for round in 0..ROUNDS {
            let key = format!("{fault:?}-{round}");
            stage.proxy.set(fault);
            let error = limiter.try_check(&key, COST).await.expect_err("the reply is lost");
            stage.proxy.set(Fault::Pass);
            recovers(&limiter).await;
            // Time in which the request could be sent again.
            sleep(Duration::from_millis(30)).await;
            let times = charges(&witness, &key).await;
            assert!(times <= 1, "{fault:?}: charged {times} times");
            assert!(times == 0 || error.may_have_charged(), "{error}");
            charged += times;
        }
    }
    // Most replies must be lost after the script has run, or this test would prove nothing.
    assert!(charged >= u64::from(ROUNDS), "{charged}");
}

/// T31.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repeated_request_with_the_same_id_is_charged_once_and_gets_the_same_answer() {
    let (stage, limiter, witness) = stage().await;
    for fault in FAULTS {
        let key = format!("{fault:?}");
        stage.proxy.set(fault);
        let _ = limiter.check_once(&key, COST, id("42")).await;
        assert!(limiter.stats().failed > 0);
        stage.proxy.set(Fault::Pass);
        recovers(&limiter).await;
        for _ in 0..3 {
            let decision = limiter.check_once(&key, COST, id("42")).await;
            assert!(decision.is_allow());
            assert_eq!(decision.remaining, 100 - COST);
        }
        assert_eq!(charges(&witness, &key).await, 1);
        let _ = limiter.check_once(&key, COST, id("43")).await;
        assert_eq!(charges(&witness, &key).await, 2, "another id is another request");
    }
}

/// T31. A repeated answer is not charged, also not to the share, which was charged when the reply was lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repeated_request_gets_the_same_answer_even_if_the_share_would_deny_it() {
    const RULE: &str = "9/h burst 9";
    let stage = Stage::new();
    let store = stage.store_with(Settings::default().deadline(PATIENT)).await;
    let limiter = limiter_with(&store, "lost", RULE, OnError::Local { nodes: 3 });
    ready(&limiter).await;
    let witness = stage.witness("lost", RULE).await;
    let left =
        async |key: &str| witness.request(key).cost(0).peek().await.expect("it answers").remaining;
    let mut lost = 0;
    for key in (0..ROUNDS).map(|round| format!("key-{round}")) {
        stage.proxy.set(Fault::LoseReply);
        assert!(limiter.check_once(&key, 2, id("42")).await.is_allow(), "the share has three");
        stage.proxy.set(Fault::Pass);
        recovers(&limiter).await;
        if left(&key).await == 9 {
            // The connection was lost before the request reached Redis.
            continue;
        }
        lost += 1;
        assert!(limiter.check_n(&key, 2).await.is_deny(), "the share has one left");
        for _ in 0..5 {
            let decision = limiter.check_once(&key, 2, id("42")).await;
            assert_eq!((decision.is_allow(), decision.remaining), (true, 7));
        }
        assert!(limiter.check_once(&key, 2, id("43")).await.is_deny(), "that is another one");
        assert_eq!(left(&key).await, 7, "and not charged");
        assert!(limiter.check_once(&key, 1, id("44")).await.is_allow(), "the share still has one");
        assert_eq!(left(&key).await, 6);
    }
    assert!(lost > 0, "no reply was lost");
}

/// T31. The answer to one request must not admit another, which may cost more than is remaining.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_cost_with_the_same_id_is_another_request() {
    let (_stage, limiter, witness) = stage().await;
    assert!(limiter.check_once("key", COST, id("42")).await.is_allow());
    assert!(limiter.check_once("key", 101, id("42")).await.is_deny());
    assert!(limiter.check_once("key", 2 * COST, id("42")).await.is_allow());
    assert_eq!(limiter.check_once("key", COST, id("42")).await.remaining, 100 - COST);
    assert_eq!(charges(&witness, "key").await, 3);
    assert_eq!(limiter.stats().failed, 0, "{}", limiter.stats().last_failure);
}

/// T31. Also under another algorithm, and on a node that does not know the new rule yet.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repeated_request_under_another_rule_gets_the_answer_under_the_first() {
    let (stage, limiter, witness) = stage().await;
    ready(&witness).await;
    for (rule, number) in [("2/h burst 2", 0), ("2/h sliding-log", 1), ("1000/h", 2)] {
        limiter.set_rule(RULE.parse().unwrap()).await.expect("it answers");
        let (order, key) = (format!("id-{number}"), format!("key-{number}"));
        assert_eq!(limiter.check_once(&key, COST, id(&order)).await.remaining, 100 - COST);
        limiter.set_rule(rule.parse().unwrap()).await.expect("it answers");
        for node in [&limiter, &witness] {
            let decision = node.check_once(&key, COST, id(&order)).await;
            assert!(decision.is_allow(), "`{rule}`: {decision:?}");
            assert_eq!(decision.remaining, 100 - COST, "`{rule}`");
            assert_eq!(node.stats().failed, 0, "`{rule}`: {}", node.stats().last_failure);
        }
    }
    drop(stage);
}

/// T31. The key of an id cannot be confused with the list of leases.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_id_may_be_called_as_anything_else_of_its_key_is() {
    let stage = Stage::new();
    let store = stage.store_with(Settings::default().deadline(PATIENT)).await;
    let builder = store.builder("lost", "1000/s burst 1000".parse().unwrap());
    let limiter = builder.lease(true).build().expect("Redis can keep it");
    ready(&limiter).await;
    becomes("a lease is taken", TIMEOUT, async || {
        let _ = limiter.check("key").await;
        limiter.stats().lent > 0
    })
    .await;
    assert!(limiter.check_once("key", 1, id("leases")).await.is_allow());
    assert_eq!(limiter.stats().failed, 0, "{}", limiter.stats().last_failure);
}

/// T31.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_requests_as_one_are_charged_at_most_once() {
    let (stage, limiter, witness) = stage().await;
    stage.proxy.set(Fault::LoseReply);
    let asks = [&b"a"[..], b"b"].map(|key| limiter.request(key).cost(COST));
    let error = try_check_all(asks).await.expect_err("the reply is lost");
    assert!(
        matches!(error, RedisStoreError::Lost { .. } | RedisStoreError::Down { .. }),
        "{error}"
    );
    stage.proxy.set(Fault::Pass);
    recovers(&limiter).await;
    let both = [charges(&witness, "a").await, charges(&witness, "b").await];
    assert!(both == [1, 1] || both == [0, 0], "{both:?}");
}

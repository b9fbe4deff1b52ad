//! T31: the script has run, and its answer is lost. Nothing is sent again that might be charged twice.

use crate::stage::{PATIENCE, PATIENT, Stage, becomes, limiter, ready};
use std::time::Duration;
use tidegate_redis::{JointAsk, RedisLimiter, Settings, Source, StoreError, check_all};
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
        limiter.check_once(&key, COST, "42").await;
        assert!(limiter.stats().failed > 0);
        stage.proxy.set(Fault::Pass);
        recovers(&limiter).await;
        for _ in 0..3 {
            let decision = limiter.check_once(&key, COST, "42").await;
            assert!(decision.is_allow());
            assert_eq!(decision.remaining, 100 - COST);
        }
        assert_eq!(charges(&witness, &key).await, 1);
        limiter.check_once(&key, COST, "43").await;
        assert_eq!(charges(&witness, &key).await, 2, "another id is another request");
    }
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

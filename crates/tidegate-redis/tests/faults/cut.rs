//! T28, T29, T31: connections that are closed too early: in one direction, or in the middle of a reply.

use crate::stage::{PATIENT, Stage, TIMEOUT, becomes, limiter, limiter_with, median, ready};
use std::time::Duration;
use tidegate_redis::{DecisionSource, OnError, RedisLimiter, Settings};
use tidegate_testbed::Fault;
use tokio::time::{Instant, sleep};

/// The default deadline.
const DEADLINE: Duration = Duration::from_millis(20);
/// How late a timer may be on a busy machine.
const SLACK: Duration = Duration::from_millis(40);
const RULE: &str = "10/h burst 10";

/// A reply to a decision has four bytes or more, and a handshake some tens: connections are cut before, within and after them.
const FAULTS: [Fault; 5] = [
    Fault::HalfClose,
    Fault::Truncate(0),
    Fault::Truncate(1),
    Fault::Truncate(3),
    Fault::Truncate(30),
];
/// The faults under which no reply to a decision is complete.
const FAULTS_OF_EACH_REPLY: usize = 4;

async fn recovers(limiter: &RedisLimiter) {
    becomes("Redis decides again", TIMEOUT, async || {
        limiter.decide(b"probe", 0).await.source == DecisionSource::Redis
    })
    .await;
}

/// T28.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_on_a_cut_connection_is_decided_within_the_deadline() {
    for fault in FAULTS {
        let stage = Stage::new();
        let mut limiters = Vec::new();
        for number in 0..7 {
            let limiter = limiter(&stage.store().await, &format!("cut-{number}"), RULE);
            ready(&limiter).await;
            limiters.push(limiter);
        }
        stage.proxy.set(fault);
        let mut times = Vec::new();
        for limiter in &limiters {
            for _ in 0..5 {
                let began = Instant::now();
                let _ = limiter.check("key").await;
                times.push(began.elapsed());
            }
        }
        let median = median(times);
        assert!(median <= DEADLINE + SLACK, "{fault:?}: {median:?}");
    }
}

/// T28.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_on_a_cut_connection_is_decided_by_the_policy() {
    for fault in &FAULTS[..FAULTS_OF_EACH_REPLY] {
        let stage = Stage::new();
        let store = stage.store().await;
        for (name, on_error, source, admitted) in [
            ("local", OnError::Local { nodes: 1 }, DecisionSource::LocalShare, 10),
            ("allow", OnError::Allow, DecisionSource::Policy, 15),
            ("deny", OnError::Deny, DecisionSource::Policy, 0),
        ] {
            stage.proxy.set(Fault::Pass);
            let limiter = limiter_with(&store, name, "10/h burst 10", on_error);
            ready(&limiter).await;
            stage.proxy.set(*fault);
            let before = limiter.stats();
            let mut passed = 0;
            for _ in 0..15 {
                let told = limiter.decide(b"key", 1).await;
                assert_eq!(told.source, source, "{fault:?}, {name}");
                passed += u64::from(!told.decision.is_deny());
            }
            assert_eq!(passed, admitted, "{fault:?}, {name}");
            assert_eq!(limiter.stats().failed - before.failed, 15, "{fault:?}, {name}");
        }
    }
}

/// T29.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_limit_reconnects_by_itself_after_a_cut() {
    for fault in FAULTS {
        let stage = Stage::new();
        let store = stage.store().await;
        let limiter = limiter_with(&store, "back", "1000/s", OnError::Deny);
        ready(&limiter).await;
        recovers(&limiter).await;
        let before = stage.proxy.connections();
        stage.proxy.set(fault);
        becomes("it is found out", TIMEOUT, async || {
            limiter.decide(b"key", 1).await.source == DecisionSource::Policy
        })
        .await;
        // Long enough for the pauses between attempts to have grown.
        sleep(Duration::from_millis(300)).await;
        let tried = stage.proxy.connections() - before;
        assert!(tried <= 60, "{fault:?}: {tried} connections in a moment");
        stage.proxy.set(Fault::Pass);
        becomes("Redis decides again", Duration::from_secs(6), async || {
            limiter.decide(b"key", 1).await.source == DecisionSource::Redis
        })
        .await;
        assert!(store.health()[0].is_up, "{fault:?}");
        assert!(stage.proxy.connections() > before, "{fault:?}");
    }
}

/// T31. The server runs a request even if its reply is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_on_a_cut_connection_is_charged_at_most_once() {
    const COST: u64 = 3;
    let mut charged = 0;
    for fault in &FAULTS[..FAULTS_OF_EACH_REPLY] {
        let stage = Stage::new();
        let settings = Settings::default().deadline(PATIENT);
        let limiter = limiter(&stage.store_with(settings).await, "once", RULE);
        ready(&limiter).await;
        let witness = stage.witness("once", RULE).await;
        recovers(&limiter).await;
        for round in 0..4 {
            let key = format!("key-{round}");
            stage.proxy.set(*fault);
            let error = limiter.try_check(&key, COST).await.expect_err("no reply comes whole");
            stage.proxy.set(Fault::Pass);
            recovers(&limiter).await;
            // Time in which the request could be sent again.
            sleep(Duration::from_millis(30)).await;
            let left = witness
                .request(&key)
                .cost(0)
                .peek()
                .await
                .expect("its way does not fail")
                .remaining;
            assert!(left == 10 || left == 10 - COST, "{fault:?}: {left} left");
            assert!(left == 10 || error.may_have_charged(), "{fault:?}: {error}");
            charged += u64::from(left < 10);
        }
    }
    assert!(charged > 0, "no reply was cut after the script had run: this says nothing");
}

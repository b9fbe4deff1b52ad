//! T29: a server that accepts connections and never answers.

use crate::stage::{Outage, Stage, TIMEOUT, becomes, limiter, limiter_with, ready};
use std::time::Duration;
use tidegate_redis::{DecisionSource, OnError, RedisStoreError, Settings};
use tidegate_testbed::Fault;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

/// The required time.
const GIVEN_UP: Duration = Duration::from_secs(3);
/// How late a busy machine may be.
const SLACK: Duration = Duration::from_secs(2);

/// T29. The proxy never resumes a connection that has lost data, so the limiter must have reconnected.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_never_answers_is_dropped_within_three_seconds() {
    let stage = Stage::new();
    let limiter = limiter_with(&stage.store().await, "silent", "1000/s", OnError::Deny);
    ready(&limiter).await;
    let before = stage.proxy.connections();
    stage.proxy.set(Fault::BlackHole);
    // Every connection has a request without an answer.
    for _ in 0..4 {
        let _ = limiter.check("key").await;
    }
    stage.proxy.set(Fault::Pass);
    let began = Instant::now();
    becomes("Redis decides again", TIMEOUT, async || {
        limiter.decide(b"key", 1).await.source == DecisionSource::Redis
    })
    .await;
    assert!(began.elapsed() <= GIVEN_UP + SLACK, "after {:?}", began.elapsed());
    assert!(stage.proxy.connections() > before);
}

/// T29.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_connection_is_detected_without_requests() {
    let stage = Stage::new();
    let store = stage.store().await;
    becomes("it is up", TIMEOUT, async || store.health()[0].is_up).await;
    stage.begin(Outage::Silent);
    let within = GIVEN_UP + SLACK;
    becomes("it is found down", within, async || !store.health()[0].is_up).await;
    assert!(!store.health()[0].why_down.is_empty());
    // It stays down: accepting a connection is not answering.
    for _ in 0..40 {
        sleep(Duration::from_millis(50)).await;
        assert!(!store.health()[0].is_up);
    }
}

/// T29.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_number_of_waiting_requests_is_bounded_and_others_are_decided_at_once() {
    const MAX: usize = 5;
    let deadline = Duration::from_secs(2);
    let settings = Settings::default().in_flight_max(MAX).deadline(deadline);
    let stage = Stage::new();
    let limiter = limiter(&stage.store_with(settings).await, "shed", "10/h");
    ready(&limiter).await;
    stage.begin(Outage::Silent);
    let mut asked = JoinSet::new();
    for _ in 0..200 {
        let limiter = limiter.clone();
        asked.spawn(async move {
            let began = Instant::now();
            (limiter.try_check("key", 1).await, began.elapsed())
        });
    }
    let (mut waited, mut shed) = (0, 0);
    while let Some(answer) = asked.join_next().await {
        match answer.expect("the task does not panic") {
            (Err(RedisStoreError::Overloaded { max, .. }), time) => {
                assert_eq!(max, MAX);
                assert!(time < deadline / 2, "shed after {time:?}");
                shed += 1;
            }
            (Err(_), _) => waited += 1,
            (Ok(decision), _) => panic!("decided without a reply: {decision:?}"),
        }
    }
    assert_eq!((waited, shed), (MAX, 200 - MAX));
}

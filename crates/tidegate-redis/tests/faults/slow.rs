//! T30: a server that is slow, always or now and then.

use crate::stage::{PATIENCE, PATIENT, Stage, becomes, limiter, limiter_with, median, ready};
use std::time::Duration;
use tidegate_redis::{OnError, Settings, Source};
use tidegate_testbed::Fault;
use tokio::time::{Instant, sleep};

/// How late a timer of a busy machine may be.
const SLACK: Duration = Duration::from_millis(40);

/// To learn the rule takes two round trips here, and to decide two more: the server has forgotten its scripts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t30_all_steps_of_a_decision_share_one_deadline() {
    let stage = Stage::new();
    let deadline = Duration::from_millis(100);
    let store = stage.store_with(Settings::default().deadline(deadline)).await;
    becomes("it is up", PATIENCE, async || store.health()[0].is_up).await;
    stage.proxy.set(Fault::Delay(Duration::from_millis(40)));
    let mut times = Vec::new();
    for number in 0..5 {
        stage.server.command(&["SCRIPT", "FLUSH"]);
        let limiter = limiter(&store, &format!("steps-{number}"), "10/h");
        let began = Instant::now();
        limiter.check("key").await;
        times.push(began.elapsed());
    }
    let median = median(times);
    assert!(median <= deadline + SLACK, "{median:?}");
}

/// A server that answers a `PING` is up, but not for who cannot wait so long.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t30_a_server_slower_than_the_deadline_is_left_alone() {
    let stage = Stage::new();
    let limiter = limiter_with(&stage.store().await, "slower", "1000/s", OnError::Deny);
    ready(&limiter).await;
    stage.proxy.set(Fault::Delay(Duration::from_millis(100)));
    becomes("it is left alone", PATIENCE, async || {
        let error = limiter.try_check("key", 1).await.expect_err("nobody answers in time");
        error.to_string().contains("left alone")
    })
    .await;
    let mut slow = 0;
    for _ in 0..150 {
        let began = Instant::now();
        limiter.check("key").await;
        slow += u32::from(began.elapsed() > Duration::from_millis(10));
        sleep(Duration::from_millis(10)).await;
    }
    // Two for the noise of the machine; three for each time that it is tried for the good of nobody.
    assert!(slow <= 2, "{slow} of 150 have waited");
    stage.proxy.set(Fault::Pass);
    becomes("Redis decides again", PATIENCE, async || {
        limiter.decide(b"key", 1).await.source == Source::Shared
    })
    .await;
}

/// Those behind a late reply on its connection wait with it; all others are as quick as before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t30_one_reply_in_a_hundred_that_is_late_does_not_slow_the_others() {
    let stage = Stage::new();
    let settings = Settings::default().deadline(PATIENT);
    let limiter = limiter(&stage.store_with(settings).await, "others", "1000000/s");
    ready(&limiter).await;
    let late = Duration::from_millis(50);
    let mut medians = Vec::new();
    for fault in [Fault::Pass, Fault::DelayOneIn { n: 100, delay: late }] {
        stage.proxy.set(fault);
        let mut times = Vec::new();
        for number in 0..1_000_u32 {
            let began = Instant::now();
            let told = limiter.decide(&number.to_le_bytes(), 1).await;
            times.push(began.elapsed());
            assert_eq!(told.source, Source::Shared);
        }
        medians.push(median(times));
    }
    assert!(medians[1] <= medians[0] * 3 + Duration::from_millis(1), "{medians:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t30_who_is_known_to_be_denied_is_denied_without_asking() {
    let stage = Stage::new();
    let settings = Settings::default().deadline(PATIENT);
    let limiter = limiter(&stage.store_with(settings).await, "known", "1/min");
    ready(&limiter).await;
    assert!(limiter.check("key").await.is_allow());
    assert!(limiter.check("key").await.is_deny());
    let asked = stage.proxy.request_bytes();
    let began = Instant::now();
    let mut remembered = 0;
    while began.elapsed() < Duration::from_millis(200) {
        let told = limiter.decide(b"key", 1).await;
        assert!(told.decision.is_deny());
        assert_eq!(told.source, Source::Remembered);
        remembered += 1;
    }
    assert_eq!(limiter.stats().remembered, remembered);
    // A PING may have gone by, but nothing that was asked for a request.
    let more = stage.proxy.request_bytes() - asked;
    assert!(more <= 200, "{more} bytes for {remembered} requests");
}

//! T30: a server that is slow, always or sometimes.

use crate::stage::{PATIENT, Stage, TIMEOUT, becomes, limiter, limiter_with, median, ready};
use std::time::Duration;
use tidegate_redis::{DecisionSource, OnError, RedisLimiter, Settings, check_all};
use tidegate_testbed::Fault;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

/// How late a late reply is.
const LATE: [Duration; 3] =
    [Duration::from_millis(5), Duration::from_millis(50), Duration::from_millis(500)];
/// The number of denied keys.
const KEYS: u64 = 100;
/// How late a timer may be on a busy machine.
const SLACK: Duration = Duration::from_millis(40);

fn one_in_a_hundred(delay: Duration) -> Fault {
    Fault::DelayOneIn { n: 100, delay }
}

/// T30. Reading the rule takes two round trips here, and the decision two more, since the server has no scripts cached.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_steps_of_a_decision_share_one_deadline() {
    let stage = Stage::new();
    let deadline = Duration::from_millis(100);
    let store = stage.store_with(Settings::default().deadline(deadline)).await;
    becomes("it is up", TIMEOUT, async || store.health()[0].is_up).await;
    stage.proxy.set(Fault::Delay(Duration::from_millis(40)));
    let mut times = Vec::new();
    for number in 0..5 {
        stage.server.command(&["SCRIPT", "FLUSH"]);
        let limiter = limiter(&store, &format!("steps-{number}"), "10/h");
        let began = Instant::now();
        let _ = limiter.check("key").await;
        times.push(began.elapsed());
    }
    let median = median(times);
    assert!(median <= deadline + SLACK, "{median:?}");
}

/// T30. A server may answer a `PING` later than any request can wait.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_slower_than_the_deadline_is_not_asked() {
    let stage = Stage::new();
    let limiter = limiter_with(&stage.store().await, "slower", "1000/s", OnError::Deny);
    ready(&limiter).await;
    stage.proxy.set(Fault::Delay(Duration::from_millis(100)));
    becomes("it is not asked", TIMEOUT, async || {
        let error = limiter.try_check("key", 1).await.expect_err("no answer comes in time");
        error.to_string().contains("until it answers again")
    })
    .await;
    let mut slow = 0;
    for _ in 0..150 {
        let began = Instant::now();
        let _ = limiter.check("key").await;
        slow += u32::from(began.elapsed() > Duration::from_millis(10));
        sleep(Duration::from_millis(10)).await;
    }
    // Two for a busy machine; three for each time that the breaker closed too early.
    assert!(slow <= 2, "{slow} of 150 have waited");
    stage.proxy.set(Fault::Pass);
    becomes("Redis decides again", TIMEOUT, async || {
        limiter.decide(b"key", 1).await.source == DecisionSource::Redis
    })
    .await;
}

/// T30. Requests behind a late reply on its connection wait with it; all others do not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_reply_in_a_hundred_that_is_late_does_not_slow_the_others() {
    let stage = Stage::new();
    let settings = Settings::default().deadline(PATIENT);
    let limiter = limiter(&stage.store_with(settings).await, "others", "1000000/s");
    ready(&limiter).await;
    let mut medians = Vec::new();
    for fault in [Fault::Pass].into_iter().chain(LATE.map(one_in_a_hundred)) {
        stage.proxy.set(fault);
        let mut times = Vec::new();
        for number in 0..1_000_u32 {
            let began = Instant::now();
            let told = limiter.decide(&number.to_le_bytes(), 1).await;
            times.push(began.elapsed());
            assert_eq!(told.source, DecisionSource::Redis);
        }
        medians.push(median(times));
    }
    let most = medians[0] * 3 + Duration::from_millis(1);
    assert!(medians.iter().all(|median| *median <= most), "{medians:?}");
}

/// Returns how many requests a few callers are denied in a short time.
async fn denied_in_a_moment(limiter: &RedisLimiter) -> u64 {
    let ends = Instant::now() + Duration::from_millis(100);
    let mut callers = JoinSet::new();
    for caller in 0..8_u64 {
        let limiter = limiter.clone();
        callers.spawn(async move {
            let mut denied = 0;
            for number in caller.. {
                if Instant::now() >= ends {
                    break;
                }
                let told = limiter.decide(&(number % KEYS).to_le_bytes(), 1).await;
                assert!(told.decision.is_deny(), "{told:?}");
                denied += 1;
            }
            denied
        });
    }
    callers.join_all().await.into_iter().sum()
}

/// T30. Runs with and without late replies alternate, so that other work of the machine slows both. If denials waited for
/// replies, every late run would be slower; one that is not proves that they do not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn late_replies_do_not_slow_cached_denials() {
    let stage = Stage::new();
    let settings = Settings::default().deadline(PATIENT);
    let limiter = limiter(&stage.store_with(settings).await, "throughput", "1/h");
    ready(&limiter).await;
    for number in 0..KEYS {
        assert!(limiter.check(number.to_le_bytes()).await.is_allow());
    }
    for late in LATE {
        let mut parts = Vec::new();
        for _ in 0..8 {
            stage.proxy.set(Fault::Pass);
            let calm = denied_in_a_moment(&limiter).await;
            stage.proxy.set(one_in_a_hundred(late));
            parts.push(denied_in_a_moment(&limiter).await * 100 / calm.max(1));
        }
        assert!(parts.iter().any(|part| *part >= 95), "{late:?}: {parts:?} in a hundred");
    }
}

/// T30.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cached_denial_does_not_ask_redis() {
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
        assert_eq!(told.source, DecisionSource::CachedDenial);
        remembered += 1;
    }
    assert_eq!(limiter.stats().denied_by_cache, remembered);
    // There may have been a PING, but no script.
    let more = stage.proxy.request_bytes() - asked;
    assert!(more <= 200, "{more} bytes for {remembered} requests");
}

/// T30. What the other limit has remaining is reported from the cache.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cached_denial_of_one_of_several_limits_does_not_ask_redis() {
    let stage = Stage::new();
    let store = stage.store_with(Settings::default().deadline(PATIENT)).await;
    let (user, site) = (limiter(&store, "user", "1/h"), limiter(&store, "site", "9/h burst 9"));
    ready(&user).await;
    ready(&site).await;
    let asks = |cost| [(&user, cost), (&site, 1)];
    let decide = async |cost| {
        let asks = asks(cost).map(|(limiter, cost)| limiter.request(b"key").cost(cost));
        let joint = check_all(asks).await;
        (joint.decision.is_allow(), joint.each[1].remaining)
    };
    assert_eq!(decide(1).await, (true, 8));
    assert_eq!(decide(1).await, (false, 8));
    let (asked, began, mut remembered) = (stage.proxy.request_bytes(), Instant::now(), 0);
    while began.elapsed() < Duration::from_millis(200) {
        // A larger cost is denied by the same entry.
        assert_eq!(decide(1 + remembered % 2).await, (false, 8));
        remembered += 1;
    }
    assert_eq!(user.stats().denied_by_cache, remembered);
    assert_eq!(site.stats().denied_by_cache, 0, "it has denied nothing");
    assert_eq!(site.stats().allowed, 1, "a request that another limit denies is not allowed");
    let more = stage.proxy.request_bytes() - asked;
    // Two limits may have read their rules, and there may have been a PING.
    assert!(more <= 500, "{more} bytes for {remembered} requests");
    assert_eq!(user.decide(b"key", 1).await.source, DecisionSource::CachedDenial, "alone too");
    user.refund("key", 1).await.expect("it answers");
    assert_eq!(decide(1).await, (true, 7), "a refund removes the cached denial");
}

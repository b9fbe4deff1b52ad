//! T28: a server that does not answer. The policy of each limit decides, within the deadline.

use crate::stage::{Outage, Stage, TIMEOUT, becomes, id, limiter, limiter_with, median, ready};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use tidegate::{Decision, Retry};
use tidegate_core::Verdict;
use tidegate_redis::{
    DecisionSource, LimitState, OnError, RedisLimiter, RedisStore, check_all, try_check_all,
};
use tokio::time::{Instant, sleep};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// The default deadline.
const DEADLINE: Duration = Duration::from_millis(20);
/// How late a timer may be on a busy machine.
const SLACK: Duration = Duration::from_millis(40);
const RULE: &str = "10/h burst 10";

async fn timed(limiter: &RedisLimiter, key: &str) -> Duration {
    let began = Instant::now();
    let _ = limiter.check(key).await;
    began.elapsed()
}

/// Waits until the circuit breaker is open.
async fn breaker_opens(limiter: &RedisLimiter) {
    becomes("the breaker is open", TIMEOUT, async || {
        let error = limiter.try_check("probe", 1).await.expect_err("Redis does not answer");
        error.to_string().contains("until it answers again")
    })
    .await;
}

/// T28.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_failing_decision_comes_within_the_deadline() {
    for outage in Outage::ALL {
        let stage = Stage::new();
        let mut limiters = Vec::new();
        for number in 0..7 {
            let store = stage.store().await;
            let limiter = limiter(&store, &format!("first-{number}"), RULE);
            ready(&limiter).await;
            limiters.push(limiter);
        }
        stage.begin(outage);
        let mut times = Vec::new();
        for limiter in &limiters {
            times.push(timed(limiter, "key").await);
            assert_eq!(limiter.stats().failed, 1, "{outage:?}");
        }
        let median = median(times);
        assert!(median <= DEADLINE + SLACK, "{outage:?}: {median:?}");
    }
}

/// T28.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_is_not_up_yet_is_no_error_and_its_health_reports_it() {
    let stage = Stage::new();
    stage.begin(Outage::Refused);
    let store = RedisStore::connect(&stage.proxy.url()).await.expect("it is an address");
    let limiter = limiter_with(&store, "not yet", RULE, OnError::Deny);
    let down = store.health();
    assert!(down.iter().all(|server| !server.is_up && !server.why_down.is_empty()), "{down:?}");
    assert!(limiter.ready().await.is_err());
    assert_eq!(limiter.health().state, LimitState::Down);
    assert!(limiter.check("key").await.is_deny());
    stage.end(Outage::Refused);
    ready(&limiter).await;
    becomes("Redis decides", TIMEOUT, async || limiter.check("key").await.is_allow()).await;
    becomes("and health says so", TIMEOUT, async || {
        let _ = limiter.check("other").await;
        limiter.health().state == LimitState::Up
    })
    .await;
}

/// T28. A denial returns without waiting, so a loop of requests could block its thread.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_loop_of_requests_during_an_outage_lets_other_tasks_run() {
    let stage = Stage::new();
    let store = stage.store().await;
    let limiter = limiter_with(&store, "loop", RULE, OnError::Deny);
    ready(&limiter).await;
    stage.begin(Outage::Refused);
    breaker_opens(&limiter).await;
    let is_over = Arc::new(AtomicBool::new(false));
    let asking = tokio::spawn({
        let is_over = Arc::clone(&is_over);
        async move {
            while !is_over.load(Ordering::Relaxed) {
                let _ = limiter.check("key").await;
            }
        }
    });
    let (tell, told) = std::sync::mpsc::channel();
    tokio::spawn(async move { tell.send(()) });
    // Measured by the thread: a timer of the runtime would be blocked too.
    let told = told.recv_timeout(TIMEOUT);
    is_over.store(true, Ordering::Relaxed);
    asking.await.expect("it ends");
    told.expect("the other task has run");
}

/// T28.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_limit_that_has_never_reached_redis_answers_within_the_deadline_too() {
    let stage = Stage::new();
    stage.begin(Outage::Silent);
    let store = stage.store().await;
    let mut times = Vec::new();
    for number in 0..7 {
        let limiter = limiter(&store, &format!("never-{number}"), RULE);
        times.push(timed(&limiter, "key").await);
        assert_eq!(limiter.stats().failed, 1);
    }
    let median = median(times);
    assert!(median <= DEADLINE + SLACK, "{median:?}");
}

/// T28. The breaker opens by the requests alone: a `PING` fails only a second later.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_three_timeouts_no_request_waits() {
    let stage = Stage::new();
    let limiter = limiter(&stage.store().await, "three", RULE);
    ready(&limiter).await;
    stage.begin(Outage::Silent);
    let mut waited = 0;
    for number in 0..30 {
        waited += u32::from(timed(&limiter, &number.to_string()).await >= DEADLINE / 2);
    }
    // Two more for a busy machine.
    assert!((3..=5).contains(&waited), "{waited} of 30 have waited");
}

/// T28. Of a thousand decisions, half take at most a tenth of the required time, and nearly all no more than it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn once_the_breaker_is_open_answers_come_at_once() {
    for outage in Outage::ALL {
        let stage = Stage::new();
        let limiter = limiter(&stage.store().await, "at-once", RULE);
        ready(&limiter).await;
        stage.begin(outage);
        breaker_opens(&limiter).await;
        let mut times = Vec::new();
        for number in 0..1_000 {
            times.push(timed(&limiter, &number.to_string()).await);
        }
        times.sort();
        assert!(times[500] <= Duration::from_micros(100), "{outage:?}: median {:?}", times[500]);
        assert!(times[950] <= Duration::from_millis(1), "{outage:?}: p95 {:?}", times[950]);
    }
}

/// T28.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_redis_each_limit_decides_by_its_policy_and_counts_it() {
    let stage = Stage::new();
    let store = stage.store().await;
    let [local, allow, deny] = [
        ("local", OnError::Local { nodes: 1 }),
        ("allow", OnError::Allow),
        ("deny", OnError::Deny),
    ]
    .map(|(name, on_error)| limiter_with(&store, name, RULE, on_error));
    for limiter in [&local, &allow, &deny] {
        ready(limiter).await;
        becomes("Redis decides", TIMEOUT, async || {
            limiter.decide(b"before", 1).await.source == DecisionSource::Redis
        })
        .await;
    }
    stage.begin(Outage::Refused);
    for (limiter, source, admitted) in [
        (&local, DecisionSource::LocalShare, 10),
        (&allow, DecisionSource::Policy, 15),
        (&deny, DecisionSource::Policy, 0),
    ] {
        let before = limiter.stats();
        let mut passed = 0;
        for _ in 0..15 {
            let told = limiter.decide(b"key", 1).await;
            assert_eq!(told.source, source);
            passed += u64::from(!told.decision.is_deny());
        }
        assert_eq!(passed, admitted, "{source:?}");
        let after = limiter.stats();
        assert_eq!(after.failed - before.failed, 15);
        assert_eq!(after.allowed - before.allowed, admitted);
        assert_eq!(after.denied - before.denied, 15 - admitted);
        assert!(after.last_failure.contains(&stage.proxy.address().to_string()));
    }
    let retry_after = deny.check("key").await.retry_after();
    assert!(retry_after.is_some(), "a denial has a retry time");
}

/// T28. Neither the policy nor Redis decides, so no failure is counted and there is no retry time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rule_that_admits_nothing_is_decided_without_redis() {
    for on_error in [OnError::Local { nodes: 2 }, OnError::Allow, OnError::Deny] {
        let stage = Stage::new();
        let store = stage.store().await;
        let shut = limiter_with(&store, "shut", "0/s", on_error);
        let open = limiter_with(&store, "open", RULE, OnError::Allow);
        stage.begin(Outage::Refused);
        let asks = [&open, &shut].map(|limiter| limiter.request(b"key").cost(1));
        let joint = [check_all(asks).await, try_check_all(asks).await.expect("it needs no Redis")];
        let mut denials: Vec<Decision> = joint.iter().map(|joint| joint.decision).collect();
        denials.extend(joint.iter().map(|joint| joint.each[1]));
        denials.push(shut.check("key").await);
        denials.push(shut.check_once("key", 1, id("id")).await);
        denials.push(shut.try_check("key", 1).await.expect("it needs no Redis"));
        denials.push(shut.peek("key").await.expect("it needs no Redis"));
        denials.push(shut.try_acquire("key").await.expect_err("it admits nothing").decision);
        for (place, denial) in denials.iter().enumerate() {
            assert_eq!(denial.verdict, Verdict::Deny(Retry::Never), "{on_error:?} {place}");
        }
        let nothing = [0, 1].map(|cost| asks[1].cost(cost));
        assert!(check_all([nothing[0]]).await.decision.is_allow(), "it costs nothing");
        assert!(check_all(nothing).await.decision.is_deny());
        assert!(
            shut.check_n("key", 0).await.is_allow()
                && shut.request("key").cost(0).try_acquire().await.is_ok()
        );
        assert_eq!((shut.stats().failed, shut.health().state.is_degraded()), (0, false));
    }
}

/// T28. Its requests do not ask Redis, so the rule is published in the background.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_other_nodes_adopt_a_rule_that_admits_nothing() {
    let stage = Stage::new();
    let other = limiter_with(&stage.store().await, "shared", RULE, OnError::Allow);
    ready(&other).await;
    let shut = limiter_with(&stage.store().await, "shared", "0/s", OnError::Allow);
    becomes("the other denies", TIMEOUT, async || other.check("key").await.is_deny()).await;
    drop(shut);
}

/// T28.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_limit_recovers_by_itself() {
    for outage in Outage::ALL {
        let stage = Stage::new();
        let store = stage.store().await;
        let limiter = limiter_with(&store, "back", "1000/s", OnError::Deny);
        ready(&limiter).await;
        stage.begin(outage);
        breaker_opens(&limiter).await;
        assert!(!store.health()[0].is_up, "{outage:?}");
        // Long enough for the pauses between attempts to have grown.
        sleep(Duration::from_millis(300)).await;
        stage.end(outage);
        becomes("Redis decides again", Duration::from_secs(6), async || {
            limiter.decide(b"key", 1).await.source == DecisionSource::Redis
        })
        .await;
        assert!(store.health()[0].is_up, "{outage:?}");
    }
}

/// T28.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_last_failure_is_reported_and_not_the_first() {
    let stage = Stage::new();
    let limiter = limiter(&stage.store().await, "last", RULE);
    ready(&limiter).await;
    stage.begin(Outage::Silent);
    let _ = limiter.check("key").await;
    let first = limiter.stats().last_failure;
    assert!(first.contains("within 20ms"), "{first}");
    breaker_opens(&limiter).await;
    let _ = limiter.check("key").await;
    let last = limiter.stats().last_failure;
    assert!(last.contains("until it answers again"), "{last}");
}

/// Counts events of level `WARN`.
struct Lines(Arc<AtomicUsize>);

impl Subscriber for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() == Level::WARN && metadata.target().starts_with("tidegate_redis")
    }

    fn event(&self, _: &Event<'_>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

/// T28. On one thread, since the subscriber only gets the events of its thread.
#[tokio::test]
async fn an_outage_is_logged_and_not_with_every_request() {
    let lines = Arc::new(AtomicUsize::new(0));
    let _listening = tracing::subscriber::set_default(Lines(Arc::clone(&lines)));
    let stage = Stage::new();
    let limiter = limiter(&stage.store().await, "logged", RULE);
    ready(&limiter).await;
    stage.begin(Outage::Refused);
    for _ in 0..500 {
        let _ = limiter.check("key").await;
    }
    assert_eq!(limiter.stats().failed, 500);
    assert_eq!(lines.load(Ordering::Relaxed), 1);
}

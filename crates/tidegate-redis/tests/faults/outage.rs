//! T28: a server that is not there. Every limit has its policy, and nobody waits for what will not come.

use crate::stage::{Outage, PATIENCE, Stage, becomes, limiter, limiter_with, median, ready};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use tidegate::{Decision, Retry};
use tidegate_core::Verdict;
use tidegate_redis::{
    JointAsk, LimitState, OnError, RedisLimiter, RedisStore, Source, check_all, decide_all,
};
use tokio::time::{Instant, sleep};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// What the default settings say.
const DEADLINE: Duration = Duration::from_millis(20);
/// How late a timer of a busy machine may be.
const SLACK: Duration = Duration::from_millis(40);
const RULE: &str = "10/h burst 10";

async fn timed(limiter: &RedisLimiter, key: &str) -> Duration {
    let began = Instant::now();
    let _ = limiter.check(key).await;
    began.elapsed()
}

/// Until nobody is sent to the server any more.
async fn is_left_alone(limiter: &RedisLimiter) {
    becomes("the breaker is open", PATIENCE, async || {
        let error = limiter.try_check("probe", 1).await.expect_err("nobody is there");
        error.to_string().contains("left alone")
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t28_the_first_failing_decision_comes_within_the_deadline() {
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t28_a_store_that_is_not_there_yet_is_no_error_and_is_said_by_its_health() {
    let stage = Stage::new();
    stage.begin(Outage::Refused);
    let store = RedisStore::connect(&stage.proxy.url()).await.expect("it is an address");
    let limiter = limiter_with(&store, "not yet", RULE, OnError::Deny);
    let down = store.health();
    assert!(down.iter().all(|server| !server.is_up && !server.why_down.is_empty()), "{down:?}");
    assert!(limiter.ready().await.is_err());
    assert_eq!(limiter.health().state, LimitState::Away);
    assert!(limiter.check("key").await.is_deny());
    stage.end(Outage::Refused);
    ready(&limiter).await;
    becomes("Redis decides", PATIENCE, async || limiter.check("key").await.is_allow()).await;
    becomes("and health says so", PATIENCE, async || {
        let _ = limiter.check("other").await;
        limiter.health().state == LimitState::Up
    })
    .await;
}

/// Nothing is waited for, so who asks in a loop would keep its thread for itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn t28_who_asks_in_a_loop_while_nobody_is_there_lets_others_run() {
    let stage = Stage::new();
    let store = stage.store().await;
    let limiter = limiter_with(&store, "loop", RULE, OnError::Deny);
    ready(&limiter).await;
    stage.begin(Outage::Refused);
    is_left_alone(&limiter).await;
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
    // By the thread, and not by a timer of the runtime, which would be kept from running too.
    let told = told.recv_timeout(PATIENCE);
    is_over.store(true, Ordering::Relaxed);
    asking.await.expect("it ends");
    told.expect("the other one has run");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t28_a_limit_that_has_never_reached_redis_answers_within_the_deadline_too() {
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

/// Nobody else waits, although it is known only a second later that nobody answers a `PING` either.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t28_after_three_that_have_waited_in_vain_nobody_waits() {
    let stage = Stage::new();
    let limiter = limiter(&stage.store().await, "three", RULE);
    ready(&limiter).await;
    stage.begin(Outage::Silent);
    let mut waited = 0;
    for number in 0..30 {
        waited += u32::from(timed(&limiter, &number.to_string()).await >= DEADLINE / 2);
    }
    // Two for the noise of the machine.
    assert!((3..=5).contains(&waited), "{waited} of 30 have waited");
}

/// A thousand are measured: half of them come within a tenth of what is demanded, nearly all within it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t28_once_the_breaker_is_open_answers_come_at_once() {
    for outage in Outage::ALL {
        let stage = Stage::new();
        let limiter = limiter(&stage.store().await, "at-once", RULE);
        ready(&limiter).await;
        stage.begin(outage);
        is_left_alone(&limiter).await;
        let mut times = Vec::new();
        for number in 0..1_000 {
            times.push(timed(&limiter, &number.to_string()).await);
        }
        times.sort();
        assert!(times[500] <= Duration::from_micros(100), "{outage:?}: median {:?}", times[500]);
        assert!(times[950] <= Duration::from_millis(1), "{outage:?}: p95 {:?}", times[950]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t28_without_redis_each_limit_does_as_it_says_and_counts_it() {
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
        becomes("Redis decides", PATIENCE, async || {
            limiter.decide(b"before", 1).await.source == Source::Shared
        })
        .await;
    }
    stage.begin(Outage::Refused);
    for (limiter, source, admitted) in
        [(&local, Source::Local, 10), (&allow, Source::Policy, 15), (&deny, Source::Policy, 0)]
    {
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
    assert!(retry_after.is_some(), "who is denied is told when to come back");
}

/// Neither the policy nor Redis has a say in it, so nothing is counted as a failure and nobody is told to come back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t28_a_rule_that_admits_nothing_is_decided_without_redis() {
    for on_error in [OnError::Local { nodes: 2 }, OnError::Allow, OnError::Deny] {
        let stage = Stage::new();
        let store = stage.store().await;
        let shut = limiter_with(&store, "shut", "0/s", on_error);
        let open = limiter_with(&store, "open", RULE, OnError::Allow);
        stage.begin(Outage::Refused);
        let asks = [&open, &shut].map(|limiter| JointAsk { limiter, key: b"key", cost: 1 });
        let joint = [decide_all(&asks).await, check_all(&asks).await.expect("it needs no Redis")];
        let mut denials: Vec<Decision> = joint.iter().map(|joint| joint.decision).collect();
        denials.extend(joint.iter().map(|joint| joint.each[1]));
        denials.push(shut.check("key").await);
        denials.push(shut.check_once("key", 1, "id").await);
        denials.push(shut.try_check("key", 1).await.expect("it needs no Redis"));
        denials.push(shut.peek("key", 1).await.expect("it needs no Redis"));
        denials.push(shut.try_acquire("key", 1).await.expect_err("it admits nothing").decision);
        for (place, denial) in denials.iter().enumerate() {
            assert_eq!(denial.verdict, Verdict::Deny(Retry::Never), "{on_error:?} {place}");
        }
        let nothing = [0, 1].map(|place| JointAsk { cost: place, ..asks[1] });
        assert!(decide_all(&nothing[..1]).await.decision.is_allow(), "it costs nothing");
        assert!(decide_all(&nothing).await.decision.is_deny());
        assert!(
            shut.check_n("key", 0).await.is_allow() && shut.try_acquire("key", 0).await.is_ok()
        );
        assert_eq!((shut.stats().failed, shut.health().state.is_degraded()), (0, false));
    }
}

/// No request asks Redis for it: so the rule is told in the background.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t28_the_other_nodes_hear_of_a_rule_that_admits_nothing() {
    let stage = Stage::new();
    let other = limiter_with(&stage.store().await, "shared", RULE, OnError::Allow);
    ready(&other).await;
    let shut = limiter_with(&stage.store().await, "shared", "0/s", OnError::Allow);
    becomes("the other denies", PATIENCE, async || other.check("key").await.is_deny()).await;
    drop(shut);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t28_it_comes_back_by_itself() {
    for outage in Outage::ALL {
        let stage = Stage::new();
        let store = stage.store().await;
        let limiter = limiter_with(&store, "back", "1000/s", OnError::Deny);
        ready(&limiter).await;
        stage.begin(outage);
        is_left_alone(&limiter).await;
        assert!(!store.health()[0].is_up, "{outage:?}");
        // Long enough for the steps of who tries to have grown.
        sleep(Duration::from_millis(300)).await;
        stage.end(outage);
        becomes("Redis decides again", Duration::from_secs(6), async || {
            limiter.decide(b"key", 1).await.source == Source::Shared
        })
        .await;
        assert!(store.health()[0].is_up, "{outage:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t28_the_last_failure_is_told_and_not_the_first() {
    let stage = Stage::new();
    let limiter = limiter(&stage.store().await, "last", RULE);
    ready(&limiter).await;
    stage.begin(Outage::Silent);
    let _ = limiter.check("key").await;
    let first = limiter.stats().last_failure;
    assert!(first.contains("within 20ms"), "{first}");
    is_left_alone(&limiter).await;
    let _ = limiter.check("key").await;
    let last = limiter.stats().last_failure;
    assert!(last.contains("left alone"), "{last}");
}

/// Counts what is said at `WARN`.
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

/// On one thread: who listens hears what is said on it.
#[tokio::test]
async fn t28_an_outage_is_logged_and_not_with_every_request() {
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

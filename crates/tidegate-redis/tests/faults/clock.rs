//! T22, T23: Redis's clock is set back or forward. The test controls it.
//!
//! Bound    After any step back, no key is denied for longer than the limit takes to recover. A step forward admits at
//!          most one extra burst.

use crate::stage::PATIENT;
use tidegate::{ManualClock, Span, Timestamp};
use tidegate_redis::{RedisLimiter, RedisStore, Settings};
use tidegate_testbed::RedisServer;

/// Rules of each algorithm that denies: the text, the burst, and the recovery time.
const RULES: [(&str, u64, Span); 8] = [
    ("10/s burst 20", 20, Span::from_secs(2)),
    ("10/min burst 5", 5, Span::from_secs(30)),
    ("10/s leaky capacity 5", 5, Span::from_millis(500)),
    ("5/min fixed", 5, Span::from_secs(60)),
    ("5/min fixed from first", 5, Span::from_secs(60)),
    ("5/min sliding", 5, Span::from_secs(120)),
    ("5/min sliding-log", 5, Span::from_secs(60)),
    ("60r/m burst=4 nodelay", 5, Span::from_secs(5)),
];
/// The middle of a minute, so that a step of a second does not leave its window.
const NOON: Timestamp = Timestamp::from_micros(1_790_000_430_000_000);
const BACK: [Span; 4] =
    [Span::from_millis(1), Span::from_secs(1), Span::from_secs(3_600), Span::from_secs(31_536_000)];
const FORWARD: [Span; 3] =
    [Span::from_secs(1), Span::from_secs(3_600), Span::from_secs(315_360_000)];

struct Stage {
    clock: ManualClock,
    store: RedisStore,
    _server: RedisServer,
}

impl Stage {
    async fn new() -> Self {
        let (server, clock) = (RedisServer::start(), ManualClock::at(NOON));
        let address = server.url().parse().expect("a server has an address");
        let settings = Settings::default().deadline(PATIENT);
        let store = RedisStore::connect_with_clock(&address, settings, clock.clone()).await;
        Self { clock, store, _server: server }
    }

    fn limiter(&self, rule: &str, step: Span) -> RedisLimiter {
        self.clock.set(NOON);
        let name = format!("{}-{}", rule.replace(' ', "-"), step.as_micros());
        self.store.limiter(&name, rule.parse().expect("a rule")).expect("Redis can keep it")
    }
}

/// Returns how many requests are admitted before one is denied.
async fn drain(limiter: &RedisLimiter) -> u64 {
    let mut passed = 0;
    while !limiter.try_check("key", 1).await.expect("it answers").is_deny() {
        passed += 1;
        assert!(passed < 1_000, "no request is denied");
    }
    passed
}

/// T22.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_that_is_set_back_denies_no_key_for_longer_than_the_limit_takes_to_fill() {
    let stage = Stage::new().await;
    for (rule, burst, fills) in RULES {
        for step in BACK {
            let limiter = stage.limiter(rule, step);
            assert_eq!(drain(&limiter).await, burst, "`{rule}`");
            stage.clock.set(NOON - step);
            assert_eq!(
                drain(&limiter).await,
                0,
                "`{rule}` after -{step:?}: a step refunds nothing"
            );
            // A step of a millisecond is ignored: time stands still for as long.
            let ridden = step.min(Span::from_millis(1));
            let retry = limiter.peek("key").await.expect("it answers").retry_after();
            let retry = retry.expect("a denial has a retry time");
            assert!(retry <= fills + ridden, "`{rule}` after -{step:?}: retry after {retry:?}");
            stage.clock.set(NOON - step + fills + ridden);
            assert_eq!(drain(&limiter).await, burst, "`{rule}` after -{step:?} and {fills:?}");
        }
    }
}

/// T22.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_that_is_set_forward_admits_at_most_one_extra_burst() {
    let stage = Stage::new().await;
    for (rule, burst, _) in RULES {
        for step in FORWARD {
            let limiter = stage.limiter(rule, step);
            assert_eq!(drain(&limiter).await, burst, "`{rule}`");
            stage.clock.set(NOON + step);
            let more = drain(&limiter).await;
            assert!(more <= burst, "`{rule}` after +{step:?}: {more} more");
            // And back again, as an operator would set it: there is no third burst.
            stage.clock.set(NOON);
            assert_eq!(drain(&limiter).await, 0, "`{rule}` after +{step:?} and back");
        }
    }
}

/// T23. Alternating steps, like two clocks that disagree.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn alternating_steps_admit_at_most_one_burst_for_each_step_forward() {
    let stage = Stage::new().await;
    for (rule, burst, _) in RULES {
        let limiter = stage.limiter(rule, Span::ZERO);
        let mut admitted = drain(&limiter).await;
        for _ in 0..5 {
            stage.clock.set(NOON + Span::from_secs(5));
            admitted += drain(&limiter).await;
            stage.clock.set(NOON);
            admitted += drain(&limiter).await;
        }
        assert!(admitted <= (1 + 5) * burst, "`{rule}`: {admitted}");
    }
}

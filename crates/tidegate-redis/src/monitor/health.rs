//! Whether Redis decides the requests of a limit, judged by those requests.
//!
//! Invariant  A limit is degraded from the first request that Redis did not decide until [`HOLD`] after the last one. A `PING`
//!            proves nothing: a server may answer it and refuse every script.
//! Invariant  Without requests, a probe writes a key beside the one that failed last.
//! Bound      One probe task for each limit, only while the limit is degraded.

use crate::connection::{RedisStoreError, ScriptRunner, Servers};
use crate::script;
use crate::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// How long a limit stays degraded after the last failure.
const HOLD: Duration = Duration::from_secs(1);
/// The interval between two probes.
const PROBE_INTERVAL: Duration = Duration::from_millis(250);
/// The suffix of the key that a probe writes.
const PROBE_SUFFIX: &[u8] = b"#probe";

/// Whether Redis decides the requests of a limit.
///
/// ```no_run
/// # fn example(limiter: tidegate_redis::RedisLimiter) {
/// use tidegate_redis::LimitState;
///
/// let health = limiter.health();
/// if health.state == LimitState::Down {
///     eprintln!("every request is decided without Redis: {}", health.last_failure);
/// }
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LimitHealth {
    /// How Redis decides the requests of the last second.
    pub state: LimitState,
    /// The error of the last request that Redis did not decide. Empty if there was none.
    pub last_failure: String,
}

/// How Redis decided the requests of a limit in the last second.
///
/// ```
/// use tidegate_redis::LimitState;
///
/// assert!(LimitState::Degraded.is_degraded() && !LimitState::Idle.is_degraded());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LimitState {
    /// There were no requests for Redis.
    Idle,
    /// Redis decided all of them.
    Up,
    /// Redis decided some, and the limit's [`OnError`](crate::OnError) the others; or one of several servers is down.
    Degraded,
    /// Redis decided none.
    Down,
}

impl LimitState {
    /// Returns whether some requests are decided without Redis.
    pub fn is_degraded(self) -> bool {
        matches!(self, Self::Degraded | Self::Down)
    }
}

/// Records which requests of one limit Redis decided.
#[derive(Debug)]
pub(crate) struct HealthTracker {
    began: Instant,
    /// When Redis last decided and last did not, in milliseconds since `began`; 0 if never.
    answered_ms: AtomicU64,
    failed_ms: AtomicU64,
    is_probed: AtomicBool,
    last_failure: Mutex<Failure>,
}

/// A request that Redis did not decide.
#[derive(Debug)]
pub(crate) struct FailedRequest<'a> {
    /// Its key in Redis.
    pub(crate) key: Vec<u8>,
    /// The deadline of its limit, which also bounds the probes.
    pub(crate) deadline: Duration,
    pub(crate) error: &'a RedisStoreError,
}

#[derive(Debug, Default)]
struct Failure {
    key: Vec<u8>,
    why: String,
}

impl Default for HealthTracker {
    fn default() -> Self {
        Self {
            began: Instant::now(),
            answered_ms: AtomicU64::new(0),
            failed_ms: AtomicU64::new(0),
            is_probed: AtomicBool::new(false),
            last_failure: Mutex::default(),
        }
    }
}

impl HealthTracker {
    /// Records a request that Redis decided.
    pub(crate) fn answered(&self) {
        let now = self.now_ms();
        // All threads share this word: writing it for every answer would slow them down.
        if self.answered_ms.load(Ordering::Relaxed) != now {
            self.answered_ms.store(now, Ordering::Relaxed);
        }
    }

    /// Records a request that Redis did not decide, and probes until Redis accepts a write beside its key.
    pub(crate) fn failed(self: &Arc<Self>, runner: &Arc<ScriptRunner>, failed: FailedRequest<'_>) {
        let deadline = failed.deadline;
        self.note(failed.key, failed.error);
        if !self.is_probed.swap(true, Ordering::AcqRel) {
            let (tracker, weak) = (Arc::downgrade(self), Arc::downgrade(runner));
            runner.runtime.spawn(probe_until_answered(tracker, weak, deadline));
        }
    }

    fn note(&self, key: Vec<u8>, error: &RedisStoreError) {
        *self.last_failure.lock() = Failure { key, why: error.to_string() };
        self.failed_ms.store(self.now_ms(), Ordering::Relaxed);
    }

    /// Returns the health of the limit.
    pub(crate) fn read(&self, servers: &Servers) -> LimitHealth {
        let nodes = servers.nodes();
        self.with(nodes.len(), nodes.iter().filter(|node| node.is_up()).count())
    }

    /// Returns the health of the limit, if `up` of `servers` servers are up.
    fn with(&self, servers: usize, up: usize) -> LimitHealth {
        let state = match (self.is_recent(&self.failed_ms), self.is_recent(&self.answered_ms)) {
            _ if up == 0 => LimitState::Down,
            (true, false) => LimitState::Down,
            (true, true) => LimitState::Degraded,
            (false, _) if up < servers => LimitState::Degraded,
            (false, true) => LimitState::Up,
            (false, false) => LimitState::Idle,
        };
        let last_failure = self.last_failure.lock().why.clone();
        LimitHealth { state, last_failure }
    }

    fn is_recent(&self, at_ms: &AtomicU64) -> bool {
        let at_ms = at_ms.load(Ordering::Relaxed);
        at_ms > 0 && Duration::from_millis(self.now_ms().saturating_sub(at_ms)) < HOLD
    }

    /// Returns the milliseconds since `began`, plus one: 0 means never.
    fn now_ms(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).map_or(u64::MAX, |ms| ms + 1)
    }
}

/// Probes Redis until it accepts a write, or the limiter is dropped.
async fn probe_until_answered(
    tracker: Weak<HealthTracker>,
    runner: Weak<ScriptRunner>,
    deadline: Duration,
) {
    loop {
        sleep(PROBE_INTERVAL).await;
        let (Some(tracker), Some(runner)) = (tracker.upgrade(), runner.upgrade()) else { return };
        let key = tracker.last_failure.lock().key.clone();
        let probe = [&key[..], PROBE_SUFFIX].concat();
        match runner.run(&script::PROBE, vec![probe], Vec::new(), deadline).await {
            Ok(_) => {
                tracker.answered();
                tracker.is_probed.store(false, Ordering::Release);
                return;
            }
            Err(error) => tracker.note(key, &error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::advance;

    fn error() -> RedisStoreError {
        RedisStoreError::Down { address: "h:1".to_owned(), reason: "refused".to_owned() }
    }

    fn state(tracker: &HealthTracker) -> LimitState {
        tracker.with(1, 1).state
    }

    #[tokio::test(start_paused = true)]
    async fn a_limit_is_degraded_until_a_second_after_the_last_failure() {
        let tracker = HealthTracker::default();
        assert_eq!(
            tracker.with(1, 1),
            LimitHealth { state: LimitState::Idle, last_failure: String::new() }
        );
        tracker.note(Vec::new(), &error());
        for _ in 0..10 {
            advance(HOLD / 2).await;
            assert_eq!(state(&tracker), LimitState::Down);
            tracker.note(Vec::new(), &error());
        }
        advance(Duration::from_millis(999)).await;
        assert_eq!(state(&tracker), LimitState::Down);
        advance(Duration::from_millis(1)).await;
        assert_eq!(state(&tracker), LimitState::Idle);
        assert_eq!(tracker.with(1, 1).last_failure, error().to_string());
    }

    #[tokio::test(start_paused = true)]
    async fn a_limit_with_answers_and_failures_is_degraded_and_one_with_answers_only_is_not() {
        let tracker = HealthTracker::default();
        tracker.answered();
        assert_eq!(state(&tracker), LimitState::Up);
        tracker.note(Vec::new(), &error());
        assert_eq!(state(&tracker), LimitState::Degraded);
        advance(HOLD / 2).await;
        tracker.answered();
        advance(HOLD / 2).await;
        assert_eq!(state(&tracker), LimitState::Up);
    }

    #[tokio::test(start_paused = true)]
    async fn a_limit_is_degraded_while_a_server_is_down_even_without_requests() {
        let tracker = HealthTracker::default();
        let state = |up| tracker.with(3, up).state;
        assert_eq!(
            [0, 1, 3].map(state),
            [LimitState::Down, LimitState::Degraded, LimitState::Idle]
        );
        assert_eq!(tracker.with(0, 0).state, LimitState::Down, "no server is known");
    }
}

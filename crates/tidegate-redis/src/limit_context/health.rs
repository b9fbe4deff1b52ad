//! Whether Redis decides a limit's requests, by what those requests met.
//!
//! Invariant  A limit is degraded from the first request that Redis did not decide until [`HOLD`] after the last one,
//!            whatever the server says to a `PING`: a server may answer that and refuse every script.
//! Invariant  While there are no requests a probe takes their place: it writes, beside the key that failed last.
//! Bound      One probe task for each limit, only while the limit is degraded, and one key.

use crate::connection::{Link, StoreError};
use crate::script;
use crate::store::Inner;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// A limit stays degraded for so long after the last failure: failures that are this close are one outage.
const HOLD: Duration = Duration::from_secs(1);
/// Between two probes.
const PROBE_EVERY: Duration = Duration::from_millis(250);
/// What is written beside a key.
const PROBE_SUFFIX: &[u8] = b"#probe";

/// Whether Redis decides the requests of a limit.
///
/// ```no_run
/// # fn example(limiter: tidegate_redis::RedisLimiter) {
/// use tidegate_redis::LimitState;
///
/// let health = limiter.health();
/// if health.state == LimitState::Away {
///     eprintln!("every request is decided without Redis: {}", health.last_failure);
/// }
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LimitHealth {
    /// Who decides.
    pub state: LimitState,
    /// Why Redis did not decide the last request that it did not decide. Empty if there was none.
    pub last_failure: String,
}

/// Who decides the requests of a limit, in the last second.
///
/// ```
/// use tidegate_redis::LimitState;
///
/// assert!(LimitState::Degraded.is_degraded() && !LimitState::Idle.is_degraded());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LimitState {
    /// There were no requests that Redis was asked about.
    Idle,
    /// Redis decided all of them.
    Up,
    /// Redis decided some, and the limit's [`OnError`](crate::OnError) the others; or one of several servers is away.
    Degraded,
    /// Redis decided none.
    Away,
}

impl LimitState {
    /// Whether requests are decided without Redis.
    ///
    /// ```
    /// assert!(tidegate_redis::LimitState::Away.is_degraded());
    /// ```
    pub fn is_degraded(self) -> bool {
        matches!(self, Self::Degraded | Self::Away)
    }
}

/// What the requests of one limit met.
#[derive(Debug)]
pub(crate) struct HealthTracker {
    began: Instant,
    /// When Redis last decided and last did not, in milliseconds since `began`; 0 if never.
    answered_ms: AtomicU64,
    failed_ms: AtomicU64,
    is_probed: AtomicBool,
    last: Mutex<Failure>,
}

/// A request that Redis did not decide.
#[derive(Debug)]
pub(crate) struct FailedRequest<'a> {
    /// Its key in Redis.
    pub(crate) key: Vec<u8>,
    /// The deadline of its limit, which its probes have too.
    pub(crate) deadline: Duration,
    pub(crate) error: &'a StoreError,
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
            last: Mutex::default(),
        }
    }
}

impl HealthTracker {
    /// Redis decided a request.
    pub(crate) fn answered(&self) {
        let now = self.now_ms();
        // A write for every answer would be shared by all threads.
        if self.answered_ms.load(Ordering::Relaxed) != now {
            self.answered_ms.store(now, Ordering::Relaxed);
        }
    }

    /// Redis did not decide a request about this key. Until it takes a write beside that key, it is probed.
    pub(crate) fn failed(self: &Arc<Self>, store: &Arc<Inner>, failed: FailedRequest<'_>) {
        let deadline = failed.deadline;
        self.note(failed.key, failed.error);
        if !self.is_probed.swap(true, Ordering::AcqRel) {
            let (tracker, weak) = (Arc::downgrade(self), Arc::downgrade(store));
            store.runtime.spawn(probe_until_answered(tracker, weak, deadline));
        }
    }

    fn note(&self, key: Vec<u8>, error: &StoreError) {
        *self.last.lock().expect("nobody panics with it") = Failure { key, why: error.to_string() };
        self.failed_ms.store(self.now_ms(), Ordering::Relaxed);
    }

    /// Who decides, with the store's servers as they are.
    pub(crate) fn read(&self, link: &Link) -> LimitHealth {
        let nodes = link.nodes();
        self.with(nodes.len(), nodes.iter().filter(|node| node.is_up()).count())
    }

    /// Who decides, where so many servers are known, and so many of them are up.
    fn with(&self, servers: usize, up: usize) -> LimitHealth {
        let state = match (self.is_recent(&self.failed_ms), self.is_recent(&self.answered_ms)) {
            _ if up == 0 => LimitState::Away,
            (true, false) => LimitState::Away,
            (true, true) => LimitState::Degraded,
            (false, _) if up < servers => LimitState::Degraded,
            (false, true) => LimitState::Up,
            (false, false) => LimitState::Idle,
        };
        let last_failure = self.last.lock().expect("nobody panics with it").why.clone();
        LimitHealth { state, last_failure }
    }

    fn is_recent(&self, at_ms: &AtomicU64) -> bool {
        let at_ms = at_ms.load(Ordering::Relaxed);
        at_ms > 0 && Duration::from_millis(self.now_ms().saturating_sub(at_ms)) < HOLD
    }

    /// Never 0.
    fn now_ms(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).map_or(u64::MAX, |ms| ms + 1)
    }
}

/// Asks Redis in place of requests until it takes a write, or nobody needs to know any more.
async fn probe_until_answered(
    tracker: Weak<HealthTracker>,
    store: Weak<Inner>,
    deadline: Duration,
) {
    loop {
        sleep(PROBE_EVERY).await;
        let (Some(tracker), Some(store)) = (tracker.upgrade(), store.upgrade()) else { return };
        let key = tracker.last.lock().expect("nobody panics with it").key.clone();
        let probe = [&key[..], PROBE_SUFFIX].concat();
        match store.run(script::probe(), vec![probe], Vec::new(), deadline).await {
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

    fn error() -> StoreError {
        StoreError::Down { address: "h:1".to_owned(), reason: "refused".to_owned() }
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
            assert_eq!(state(&tracker), LimitState::Away);
            tracker.note(Vec::new(), &error());
        }
        advance(Duration::from_millis(999)).await;
        assert_eq!(state(&tracker), LimitState::Away);
        advance(Duration::from_millis(1)).await;
        assert_eq!(state(&tracker), LimitState::Idle);
        assert_eq!(tracker.with(1, 1).last_failure, error().to_string());
    }

    #[tokio::test(start_paused = true)]
    async fn answers_among_failures_are_a_degraded_limit_and_answers_alone_are_none() {
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
    async fn servers_that_are_away_are_known_before_anything_is_asked_of_them() {
        let tracker = HealthTracker::default();
        let state = |up| tracker.with(3, up).state;
        assert_eq!(
            [0, 1, 3].map(state),
            [LimitState::Away, LimitState::Degraded, LimitState::Idle]
        );
        assert_eq!(tracker.with(0, 0).state, LimitState::Away, "nobody knows of any");
    }
}

//! Counters of decisions and of failures of Redis.
//!
//! Invariant  Every failure is counted by its kind, and one in ten seconds is logged.

use crate::connection::RedisStoreError;
use crate::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tidegate::Decision;
use tokio::time::Instant;

/// The interval between two log lines about one limit.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// The labels of [`RedisStoreError::label`].
const KINDS: [&str; 6] = ["timed_out", "lost", "down", "overloaded", "refused", "malformed"];

#[derive(Debug, Default)]
pub(crate) struct Counters {
    allowed: AtomicU64,
    /// Without denials from the cache.
    denied: AtomicU64,
    denied_by_cache: AtomicU64,
    failed: AtomicU64,
    by_kind: [AtomicU64; KINDS.len()],
    last_failure: Mutex<String>,
    failure_log: Mutex<LogThrottle>,
    refund_log: Mutex<LogThrottle>,
}

/// Limits how often one kind of event is logged.
#[derive(Debug, Default)]
struct LogThrottle {
    at: Option<Instant>,
    since: u64,
}

impl LogThrottle {
    /// Counts an event. Returns how many there were since the last line, if another line is due.
    fn due(&mut self) -> Option<u64> {
        self.since += 1;
        let now = Instant::now();
        if self.at.is_some_and(|at| now.duration_since(at) < LOG_INTERVAL) {
            return None;
        }
        self.at = Some(now);
        Some(std::mem::take(&mut self.since))
    }
}

/// What a limiter has decided on this node since it was created, and how often Redis failed to decide.
///
/// [`tidegate::store::Stats`] are the counters of a limiter in memory, which has keys to count and no failures.
///
/// ```no_run
/// # async fn example(limiter: tidegate_redis::RedisLimiter) {
/// let stats = limiter.stats();
/// println!("{} of {} without Redis", stats.failed, stats.allowed + stats.denied);
/// # }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RedisStats {
    /// Requests that were admitted, at once or after a wait.
    pub allowed: u64,
    /// Requests that were denied.
    pub denied: u64,
    /// The denied requests among these that a cached denial of Redis decided.
    pub denied_by_cache: u64,
    /// Requests that Redis did not decide.
    pub failed: u64,
    /// The same for each [label](RedisStoreError::label), always all of them in the same order.
    pub failed_by_kind: Vec<(&'static str, u64)>,
    /// How much quota this node has reserved in leases.
    pub lent: u64,
    /// How much of it the node has returned unused.
    pub returned: u64,
    /// The error of the last request that Redis did not decide.
    pub last_failure: String,
}

impl Counters {
    pub(crate) fn decided(&self, decision: &Decision) {
        let counter = if decision.is_deny() { &self.denied } else { &self.allowed };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn allowed(&self) {
        self.allowed.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn denied_by_cache(&self) {
        self.denied_by_cache.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn failed(&self, limit: &str, error: &RedisStoreError) {
        self.failed.fetch_add(1, Ordering::Relaxed);
        if let Some(kind) = KINDS.iter().position(|kind| *kind == error.label()) {
            self.by_kind[kind].fetch_add(1, Ordering::Relaxed);
        }
        *self.last_failure.lock() = error.to_string();
        if let Some(failures) = self.failure_log.lock().due() {
            tracing::warn!(limit, failures, "decided without Redis: {error}");
        }
    }

    /// Logs a refund that failed.
    pub(crate) fn refund_failed(&self, limit: &str, error: &RedisStoreError) {
        if let Some(refunds) = self.refund_log.lock().due() {
            tracing::warn!(limit, refunds, "a denied joint request stays charged: {error}");
        }
    }

    pub(crate) fn read(&self) -> RedisStats {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        RedisStats {
            allowed: read(&self.allowed),
            denied: read(&self.denied) + read(&self.denied_by_cache),
            denied_by_cache: read(&self.denied_by_cache),
            failed: read(&self.failed),
            failed_by_kind: KINDS.into_iter().zip(self.by_kind.iter().map(read)).collect(),
            lent: 0,
            returned: 0,
            last_failure: self.last_failure.lock().clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::advance;

    /// T28.
    #[tokio::test(start_paused = true)]
    async fn one_log_line_in_ten_seconds_counts_the_failures_since_the_last() {
        let mut logged = LogThrottle::default();
        assert_eq!(logged.due(), Some(1), "the first is logged at once");
        assert!((0..1_000).all(|_| logged.due().is_none()));
        advance(Duration::from_millis(9_999)).await;
        assert_eq!(logged.due(), None);
        advance(Duration::from_millis(1)).await;
        assert_eq!(logged.due(), Some(1_002));
        assert_eq!(logged.due(), None);
    }
}

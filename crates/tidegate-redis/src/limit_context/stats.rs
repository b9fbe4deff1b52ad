//! What has been decided, and how often Redis did not.
//!
//! Always   Never silent: every failure is counted by its kind, and one in ten seconds is logged.

use crate::connection::StoreError;
use crate::counter::Counter;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tidegate::Decision;
use tokio::time::Instant;

/// Between two lines in the log about one limit.
const LOG_EVERY: Duration = Duration::from_secs(10);

/// What [`StoreError::label`] calls them.
const KINDS: [&str; 6] = ["timed_out", "lost", "down", "overloaded", "refused", "malformed"];

#[derive(Debug, Default)]
pub(crate) struct Tally {
    allowed: Counter,
    /// But for those that were remembered.
    denied: Counter,
    remembered: Counter,
    failed: AtomicU64,
    by_kind: [AtomicU64; KINDS.len()],
    /// What happened to the last of them.
    last: Mutex<String>,
    logged: Mutex<Logged>,
    /// Of what could not be given back.
    kept_logged: Mutex<Logged>,
}

/// What was said of one kind of thing.
#[derive(Debug, Default)]
struct Logged {
    at: Option<Instant>,
    since: u64,
}

impl Logged {
    /// Counts one more. How many there were since the last line, if it is time for another.
    fn due(&mut self) -> Option<u64> {
        self.since += 1;
        let now = Instant::now();
        if self.at.is_some_and(|at| now.duration_since(at) < LOG_EVERY) {
            return None;
        }
        self.at = Some(now);
        Some(std::mem::take(&mut self.since))
    }
}

/// What a limiter has decided here since it was made.
///
/// ```no_run
/// # async fn example(limiter: tidegate_redis::RedisLimiter) {
/// let stats = limiter.stats();
/// println!("{} of {} without Redis", stats.failed, stats.allowed + stats.denied);
/// # }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Requests that passed, now or after a wait.
    pub allowed: u64,
    /// Requests that did not.
    pub denied: u64,
    /// Of these, those that were denied here, because Redis had denied them a moment before.
    pub remembered: u64,
    /// Requests that Redis did not decide.
    pub failed: u64,
    /// The same by kind, as [`StoreError::label`] calls them; all kinds, in the same order always.
    pub failed_by_kind: Vec<(&'static str, u64)>,
    /// How much has been lent to this node ahead of use, and how much of it was given back unused.
    pub lent: u64,
    /// See [`lent`](Self::lent).
    pub returned: u64,
    /// What happened to the last of them.
    pub last_failure: String,
}

impl Tally {
    pub(crate) fn decided(&self, decision: &Decision) {
        let counter = if decision.is_deny() { &self.denied } else { &self.allowed };
        counter.add_one();
    }

    #[inline]
    pub(crate) fn allowed(&self) {
        self.allowed.add_one();
    }

    #[inline]
    pub(crate) fn denied_here(&self) {
        self.remembered.add_one();
    }

    pub(crate) fn failed(&self, limit: &str, error: &StoreError) {
        self.failed.fetch_add(1, Ordering::Relaxed);
        if let Some(kind) = KINDS.iter().position(|kind| *kind == error.label()) {
            self.by_kind[kind].fetch_add(1, Ordering::Relaxed);
        }
        *self.last.lock().expect("nobody panics with it") = error.to_string();
        if let Some(failures) = self.logged.lock().expect("nobody panics with it").due() {
            tracing::warn!(limit, failures, "decided without Redis: {error}");
        }
    }

    /// Something that was charged could not be given back.
    pub(crate) fn kept(&self, limit: &str, error: &StoreError) {
        if let Some(parts) = self.kept_logged.lock().expect("nobody panics with it").due() {
            tracing::warn!(limit, parts, "a part of a joint decision stays charged: {error}");
        }
    }

    pub(crate) fn read(&self) -> Stats {
        let remembered = self.remembered.read();
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Stats {
            allowed: self.allowed.read(),
            denied: self.denied.read() + remembered,
            remembered,
            failed: read(&self.failed),
            failed_by_kind: KINDS.into_iter().zip(self.by_kind.iter().map(read)).collect(),
            lent: 0,
            returned: 0,
            last_failure: self.last.lock().expect("nobody panics with it").clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::advance;

    #[tokio::test(start_paused = true)]
    async fn t28_one_line_in_ten_seconds_says_how_many_there_were() {
        let mut logged = Logged::default();
        assert_eq!(logged.due(), Some(1), "the first is said at once");
        assert!((0..1_000).all(|_| logged.due().is_none()));
        advance(Duration::from_millis(9_999)).await;
        assert_eq!(logged.due(), None);
        advance(Duration::from_millis(1)).await;
        assert_eq!(logged.due(), Some(1_002));
        assert_eq!(logged.due(), None);
    }
}

//! How long a caller waits for Redis.
//!
//! Set by     `Settings::deadline` for a store ([`DEADLINE_DEFAULT`]), and `Builder::deadline` for one limit.
//! Invariant  A deadline starts with the request and covers everything that is done for it: the rule, a lease, every retry.

use std::time::Duration;
use tokio::time::Instant;

/// The maximum time that a decision waits for Redis by default: ten times a slow round trip within a data centre.
pub(super) const DEADLINE_DEFAULT: Duration = Duration::from_millis(20);

/// The time until which a caller waits for Redis.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline {
    pub(super) within: Duration,
    pub(super) ends: Instant,
}

impl From<Duration> for Deadline {
    fn from(within: Duration) -> Self {
        Self { within, ends: Instant::now() + within }
    }
}

impl Deadline {
    pub(super) fn time_left(&self) -> Duration {
        self.ends.saturating_duration_since(Instant::now())
    }

    /// Returns the output of the future, or `None` if the deadline passes first.
    pub(crate) async fn bound<F: Future>(&self, future: F) -> Option<F::Output> {
        tokio::time::timeout_at(self.ends, future).await.ok()
    }
}

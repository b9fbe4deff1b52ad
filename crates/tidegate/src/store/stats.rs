//! Counters of decisions.

use tidegate_core::{Decision, Verdict};

/// Counters of a limiter's decisions, and how full it is; see [`Limiter::stats`](crate::Limiter::stats).
///
/// ```
/// use tidegate::{Limiter, ManualClock};
///
/// let limiter = Limiter::with_clock("1/s".parse()?, ManualClock::new());
/// let _ = limiter.check("alice");
/// let _ = limiter.check("alice");
/// let stats = limiter.stats();
/// assert_eq!((stats.allowed, stats.denied, stats.keys), (1, 1, 1));
/// # Ok::<(), tidegate::RuleError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Requests that were allowed.
    pub allowed: u64,
    /// Requests that were denied.
    pub denied: u64,
    /// Requests that were admitted with a wait, or that queued for a permit.
    pub waited: u64,
    /// The requests among these whose key did not fit into the full table: decided in the shared overflow, or denied, as
    /// [`Overflow`](crate::limiter::Overflow) says.
    pub overflowed: u64,
    /// Idle keys that were evicted.
    pub evicted: u64,
    /// Keys in memory now.
    pub keys: usize,
    /// The maximum number of keys in memory.
    pub max_keys: usize,
}

/// The counters of one shard.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counters {
    pub(in crate::store) allowed: u64,
    pub(in crate::store) denied: u64,
    pub(in crate::store) waited: u64,
    pub(in crate::store) overflowed: u64,
    pub(in crate::store) evicted: u64,
}

impl Counters {
    #[inline]
    pub(in crate::store) fn count(&mut self, decision: &Decision) {
        self.count_verdict(decision.verdict);
    }

    #[inline]
    pub(in crate::store) fn count_verdict(&mut self, verdict: Verdict) {
        match verdict {
            Verdict::Allow => self.allowed += 1,
            Verdict::Wait(_) => self.waited += 1,
            Verdict::Deny(_) => self.denied += 1,
        }
    }

    pub(in crate::store) fn add_to(&self, stats: &mut Stats) {
        stats.allowed += self.allowed;
        stats.denied += self.denied;
        stats.waited += self.waited;
        stats.overflowed += self.overflowed;
        stats.evicted += self.evicted;
    }
}

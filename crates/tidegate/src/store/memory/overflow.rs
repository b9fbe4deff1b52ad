//! The maximum number of keys, and the overflow: how requests of keys beyond it are decided.
//!
//! Always   Requests never add keys beyond `max_keys`; a restored snapshot may. The overflow is one state that all keys
//!          beyond the maximum share, and it is decided like that of a key.

use crate::slot::{DecisionContext, Slot};
use crate::store::stats::Counters;
use crate::sync::wake::WakeList;
use crate::sync::{AtomicU64, Mutex, Ordering};
use tidegate_core::{Decision, Limit, Timestamp};

/// How requests of new keys are decided while a limiter is full: while it has `max_keys` keys, and those that it sweeps
/// are in debt.
///
/// ```
/// use tidegate::{Limiter, ManualClock};
/// use tidegate::limiter::Overflow;
///
/// let limiter = Limiter::builder("1/h".parse()?)
///     .max_keys(1)
///     .overflow(Overflow::Deny)
///     .with_clock(ManualClock::new());
/// assert!(limiter.check("alice").is_allow());
/// assert!(limiter.check("mallory").is_deny(), "alice is in debt, so her key is not evicted");
/// # Ok::<(), tidegate::RuleError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Overflow {
    /// The new keys share one state, as if they were one key.
    #[default]
    Share,
    /// They are denied.
    Deny,
}

#[derive(Debug)]
pub(crate) struct Capacity {
    max_keys: u64,
    keys: AtomicU64,
    pub(crate) overflow: Overflow,
    /// The state that keys beyond the maximum share.
    pub(crate) overflow_state: Mutex<OverflowState>,
}

/// It has a limit of its own, because the shards change theirs one after the other.
#[derive(Debug)]
pub(crate) struct OverflowState {
    pub(crate) limit: Limit,
    pub(crate) slot: Slot,
    /// Counts decisions about several keys at once.
    pub(super) counters: Counters,
}

impl OverflowState {
    /// Counts a decision that belongs to no shard.
    pub(crate) fn note(&mut self, decision: &Decision) {
        self.counters.count(decision);
        self.counters.overflowed += 1;
    }
}

impl Capacity {
    pub(super) fn new(max_keys: usize, overflow: Overflow, limit: Limit, slot: Slot) -> Self {
        let overflow_state =
            Mutex::new(OverflowState { limit, slot, counters: Counters::default() });
        Self { max_keys: max_keys as u64, keys: AtomicU64::new(0), overflow, overflow_state }
    }

    pub(super) fn max_keys(&self) -> usize {
        usize::try_from(self.max_keys).unwrap_or(usize::MAX)
    }

    pub(super) fn keys(&self) -> usize {
        usize::try_from(self.keys.load(Ordering::Relaxed)).unwrap_or(usize::MAX)
    }

    /// Returns whether the overflow state is idle.
    pub(super) fn is_idle(&self, now: impl FnOnce(&Limit) -> Timestamp) -> bool {
        // Dropped last, after the lock.
        let mut wakes = WakeList::default();
        let mut shared = crate::sync::lock(&self.overflow_state);
        let OverflowState { limit, slot, .. } = &mut *shared;
        slot.is_idle(&mut DecisionContext::new(limit, now(limit), &mut wakes))
    }

    /// Counts one more key, unless the store is full.
    pub(crate) fn enter(&self) -> bool {
        // Not an increment that is undone: meanwhile, other threads would find the store full.
        let more = |keys| (keys < self.max_keys).then_some(keys + 1);
        self.keys.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    /// Counts one more key, also beyond the maximum.
    pub(super) fn add_beyond_max(&self) {
        self.keys.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn leave(&self, keys: usize) {
        if keys > 0 {
            self.keys.fetch_sub(keys as u64, Ordering::Relaxed);
        }
    }
}

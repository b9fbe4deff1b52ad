//! How many keys there may be, and what becomes of those for which there is no capacity.
//!
//! Always   Never more than `max_keys` are let in, though more may come back from a snapshot. The overflow is one state that all keys without
//!          room share: it is never waved through.

use crate::slot::Slot;
use crate::store::stats::Counters;
use crate::sync::wake::WakeList;
use crate::sync::{AtomicU64, Mutex, Ordering};
use tidegate_core::{Decision, Limit, Timestamp};

/// What becomes of new keys while a limiter has no room for them: while it remembers as many as it
/// may, and those that it looks at to make room are in debt.
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
/// assert!(limiter.check("mallory").is_deny(), "alice is in debt, so she is not forgotten");
/// # Ok::<(), tidegate::RuleError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Overflow {
    /// They share one state, as if they were one key.
    #[default]
    Share,
    /// They are refused.
    Deny,
}

#[derive(Debug)]
pub(crate) struct Capacity {
    max_keys: u64,
    keys: AtomicU64,
    pub(crate) overflow: Overflow,
    /// The state that keys without room share.
    pub(crate) overflow_state: Mutex<OverflowState>,
}

/// The rule goes with it, because shards change theirs one after the other.
#[derive(Debug)]
pub(crate) struct OverflowState {
    pub(crate) limit: Limit,
    pub(crate) slot: Slot,
    /// Of what was decided here for several keys at once.
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

    /// Whether what keys without room share owes nothing.
    pub(super) fn is_idle(&self, now: impl FnOnce(&Limit) -> Timestamp) -> bool {
        // Dropped last, when the lock is not held any more.
        let mut wakes = WakeList::default();
        let mut shared = crate::sync::lock(&self.overflow_state);
        let OverflowState { limit, slot, .. } = &mut *shared;
        slot.is_idle(limit, now(limit), &mut wakes)
    }

    /// Counts one more key, if there is room for it.
    pub(crate) fn enter(&self) -> bool {
        // Not counted in and out again: others would see one too many, and find no capacity.
        let more = |keys| (keys < self.max_keys).then_some(keys + 1);
        self.keys.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    /// Counts one more key, room or not.
    pub(super) fn add_beyond_max(&self) {
        self.keys.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn leave(&self, keys: usize) {
        if keys > 0 {
            self.keys.fetch_sub(keys as u64, Ordering::Relaxed);
        }
    }
}

//! The state behind a gate: one state for the whole process, under one limit.
//!
//! Always   A token or leaky bucket is decided in one atomic word (`atomic_bucket.rs`). Everything else (other
//!          algorithms, waits, refunds, changes of the rule) locks a mutex, moves the state out of the word, and moves it
//!          back. What the word gains is in the header of `atomic_bucket.rs`.

mod atomic_bucket;

use crate::clock::{Clock, limit_now};
use crate::slot::Slot;
use crate::sync::wake::WakeList;
use crate::sync::{Mutex, MutexGuard, lock, next_id};
use atomic_bucket::AtomicBucket;
use tidegate_core::{Decision, Limit, Timestamp};

/// The state and the clock that all clones of a gate share.
pub(crate) struct GateInner<C> {
    pub(crate) number: u64,
    pub(crate) clock: C,
    pub(crate) created_at: Timestamp,
    /// The atomic word, if the first rule is a bucket.
    bucket: Option<AtomicBucket>,
    state: Mutex<GateState>,
}

/// The state under the mutex. It is current while the atomic word is `MOVED`.
pub(crate) struct GateState {
    pub(crate) limit: Limit,
    pub(crate) slot: Slot,
    /// Whether the rule has changed, so that the atomic word is no longer used.
    is_changed: bool,
}

impl<C: Clock> GateInner<C> {
    pub(crate) fn new(limit: Limit, clock: C) -> Self {
        let created_at = limit_now(&clock, &limit);
        let bucket = AtomicBucket::new(&limit, created_at);
        let slot = Slot::new(limit.fresh(created_at));
        let state = Mutex::new(GateState { limit, slot, is_changed: false });
        Self { number: next_id(), clock, created_at, bucket, state }
    }

    /// Decides in the atomic word. Returns `None` if the decision needs the mutex.
    #[inline]
    pub(crate) fn check_lock_free(&self, cost: u64) -> Option<Decision> {
        let (bucket, now) = self.bucket.as_ref()?.bucket_at(self.clock.now())?;
        let (full_at, was_enough) = self.bucket.as_ref()?.take(now, cost)?;
        Some(bucket.decision(full_at, now, cost, was_enough))
    }

    pub(crate) fn limit(&self) -> Limit {
        lock(&self.state).limit.clone()
    }

    /// Replaces the limit. The waiters that the change admits or moves are added to `wakes`.
    pub(crate) fn change(&self, new: Limit, wakes: &mut WakeList) {
        self.with(|state, old_now| {
            let now = limit_now(&self.clock, &new);
            state.slot.change((&state.limit, old_now), (&new, now), wakes);
            state.is_changed = true;
            state.limit = new;
        });
    }

    /// Calls a function with the state, and moves the state back to the atomic word afterwards.
    pub(crate) fn with<R>(&self, work: impl FnOnce(&mut GateState, Timestamp) -> R) -> R {
        let mut held = self.hold();
        let now = held.now;
        work(&mut held.state, now)
    }

    /// Locks the mutex and moves the state out of the atomic word, until the guard is dropped.
    pub(crate) fn hold(&self) -> GateGuard<'_, C> {
        let mut state = lock(&self.state);
        if let Some(bucket) = self.bucket.as_ref().filter(|_| !state.is_changed)
            && let Some(latest) = bucket.pull(&state.limit)
        {
            state.slot.state = latest;
        }
        // Read under the lock, so that a later decision never has an earlier time.
        let now = limit_now(&self.clock, &state.limit);
        GateGuard { inner: self, state, now }
    }
}

/// The locked state of a gate. When it is dropped, the state moves back to the atomic word, unless requests wait or the rule
/// has changed.
pub(crate) struct GateGuard<'a, C: Clock> {
    inner: &'a GateInner<C>,
    pub(crate) state: MutexGuard<'a, GateState>,
    pub(crate) now: Timestamp,
}

impl<C: Clock> Drop for GateGuard<'_, C> {
    fn drop(&mut self) {
        if self.state.is_changed || self.state.slot.has_waiters() {
            return;
        }
        if let Some(bucket) = &self.inner.bucket {
            bucket.push(&self.state.limit, &self.state.slot.state);
        }
    }
}

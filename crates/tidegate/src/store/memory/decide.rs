//! The decision about one request.
//!
//! Always   A bucket is first looked for in a hot cell, then in its row; both are decided at a time that was read before
//!          the lock. Everything else, also a new key, is decided at a time that is read under it: from the packed state in
//!          the key's row, or from its slot.
//! Gain     In a batch of 64 keys, a decision in a row takes 539 instructions with `take_locked` and 686 without (case
//!          `limiter-batch` of `cargo xtask instructions`; after `set_rule` a limiter no longer uses it). A throttle needs
//!          it also because its capacity comes with the request, which no packed state has.

use super::hot::CellRef;
use super::{Fingerprint, KeyLocation, KeyName, MemoryStore, Placement, Shard};
use crate::clock::Clock;
use crate::slot::{DecisionContext, Slot};
use crate::sync::wake::WakeList;
use crate::sync::{MutexGuard, Ordering, lock_observing_wait};
use std::hash::Hash;
use tidegate_core::{Decision, Limit, NarrowBucket, Timestamp};

impl<C: Clock> MemoryStore<C> {
    #[inline]
    pub(crate) fn check<K: Hash + ?Sized>(&self, key: &K, cost: u64) -> Decision {
        let name = || KeyName::of(key);
        let (key, found) = self.find(key);
        if found.is_none() {
            // The row is fetched while the clock is read.
            self.prefetch(key);
        }
        match self.quick_time() {
            Some(now) => self.check_at((key, found), cost, now, name),
            None => self.check_slowly(key, cost, name),
        }
    }

    /// Returns a key's fingerprint, and the hot cell that may have it.
    #[inline]
    fn find<K: Hash + ?Sized>(&self, key: &K) -> (Fingerprint, Option<CellRef<'_>>) {
        let key = self.secret.of(key);
        (key, self.hot.find(key))
    }

    /// Returns the time if the limiter still has the bucket that it began with, for which it may be read before the
    /// lock is taken.
    #[inline]
    pub(super) fn quick_time(&self) -> Option<Timestamp> {
        let is_quick = self.bucket.is_some() && self.is_original.load(Ordering::Relaxed);
        is_quick.then(|| self.steady_now())
    }

    /// Decides at a time that was read before.
    #[inline]
    pub(super) fn check_at(
        &self,
        (key, found): (Fingerprint, Option<CellRef<'_>>),
        cost: u64,
        now: Timestamp,
        name: impl Fn() -> KeyName,
    ) -> Decision {
        let Some((bucket, ticks)) = self.original_bucket(now) else {
            return self.check_slowly(key, cost, name);
        };
        let taken = match found.and_then(|found| found.take(bucket, key, ticks, cost)) {
            None => self.take_locked(bucket, key, cost, (now, ticks)),
            taken => taken,
        };
        match taken {
            Some((full_at, was_enough)) => bucket.decision(full_at, ticks, cost, was_enough),
            None => self.check_slowly(key, cost, name),
        }
    }

    /// Takes from the bucket of a key under the lock. Returns the state of the bucket and whether there was enough in it,
    /// which fit into registers unlike a whole decision; or `None` if the decision needs more than that.
    #[inline(never)]
    pub(super) fn take_locked(
        &self,
        bucket: &NarrowBucket,
        key: Fingerprint,
        cost: u64,
        (now, ticks): (Timestamp, u64),
    ) -> Option<(u64, bool)> {
        let (mut shard, had_to_wait) = lock_observing_wait(&self.shards[self.shard_of(key)].shard);
        if !shard.parameters.is_original {
            return None;
        }
        let taken = shard.take(bucket, key, (now, ticks), cost)?;
        if had_to_wait || shard.count_in_a_row(key) {
            self.lend(&mut shard, key, ticks);
        }
        if shard.housekeep(now, &self.hot, &self.capacity) {
            self.note_rows(&shard, key);
        }
        Some(taken)
    }

    /// Returns the bucket that the limiter began with, if it is still the rule, and its time.
    #[inline]
    pub(super) fn original_bucket(&self, now: Timestamp) -> Option<(&NarrowBucket, u64)> {
        let bucket = self.bucket.as_ref()?;
        if !self.is_original.load(Ordering::Relaxed) || now < self.epoch {
            return None;
        }
        Some((bucket, bucket.at(now.since(self.epoch))?))
    }

    /// Lends a key to a cell, where it is decided without the lock.
    #[cold]
    fn lend(&self, shard: &mut Shard, key: Fingerprint, ticks: u64) {
        // Read under the lock. A change of the rule clears the flag before it locks the shard, and then moves all keys back,
        // so a key that is lent here is moved back too.
        if self.is_original.load(Ordering::Relaxed) {
            shard.lend(&self.hot, key, ticks);
        }
    }

    /// Decides with the time read under the lock.
    #[inline(never)]
    pub(super) fn check_slowly(
        &self,
        key: Fingerprint,
        cost: u64,
        name: impl Fn() -> KeyName,
    ) -> Decision {
        let (mut shard, now) = self.enter(key);
        let location = shard.locate(key);
        let packed = shard.check_packed((key, location), now, cost, &self.capacity);
        let Some(decision) = packed else {
            return self.check_in_slot(shard, (key, location), (now, cost), name);
        };
        shard.note_named(key, (now, cost), &decision, name);
        self.housekeep(&mut shard, (key, location), now);
        decision
    }

    #[inline(never)]
    fn check_in_slot(
        &self,
        mut shard: MutexGuard<'_, Shard>,
        (key, location): (Fingerprint, KeyLocation),
        (now, cost): (Timestamp, u64),
        name: impl Fn() -> KeyName,
    ) -> Decision {
        // Dropped after the lock is released: wakers are called when no lock is held.
        let mut wakes = WakeList::default();
        let work = |slot: &mut Slot, limit: &Limit, now| {
            slot.check(&mut DecisionContext::new(limit, now, &mut wakes), cost)
        };
        let (decision, placement) = self.with_located(&mut shard, (key, location), now, work);
        if placement == Placement::Overflow {
            // The overflow state says nothing about this key, so the observers do not see the decision.
            shard.counters.count(&decision);
            shard.counters.overflowed += 1;
        } else {
            shard.note_named(key, (now, cost), &decision, name);
        }
        self.housekeep(&mut shard, (key, location), now);
        drop(shard);
        decision
    }

    /// Sweeps a few keys of the shard if it is time, after a decision about a key that was at this location.
    #[inline]
    pub(super) fn housekeep(
        &self,
        shard: &mut Shard,
        (key, location): (Fingerprint, KeyLocation),
        now: Timestamp,
    ) {
        let is_swept = shard.housekeep(now, &self.hot, &self.capacity);
        if is_swept || location == KeyLocation::Absent {
            self.note_rows(shard, key);
        }
    }

    /// Notes where the rows of this key's shard are, which may have moved in memory.
    #[inline(never)]
    pub(super) fn note_rows(&self, shard: &Shard, key: Fingerprint) {
        self.row_locations[self.shard_of(key)].store(shard.location());
    }
}

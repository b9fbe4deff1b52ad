//! One request: by the quickest way there is.
//!
//! Always   A bucket is first looked for in a hot cell, then in its row, without unpacking it; everything
//!          else goes the slow way, which can do anything.

use super::hot::CellRef;
use super::{Fingerprint, KeyName, MemoryStore, Placement, Shard};
use crate::clock::Clock;
use crate::slot::Slot;
use crate::sync::wake::WakeList;
use crate::sync::{MutexGuard, Ordering, lock, lock_observing_wait};
use std::hash::Hash;
use tidegate_core::{Decision, Limit, NarrowBucket, Timestamp};

impl<C: Clock> MemoryStore<C> {
    #[inline]
    pub(crate) fn check<K: Hash + ?Sized>(&self, key: &K, cost: u64) -> Decision {
        let name = || KeyName::of(key);
        let (key, found) = self.find(key);
        if found.is_none() {
            // It comes while we look at the clock.
            self.prefetch_apart(key);
        }
        match self.quick_time() {
            Some(now) => self.check_at((key, found), cost, now, name),
            None => self.check_slowly(key, cost, name),
        }
    }

    /// A key's fingerprint, and the hot cell that may have it.
    #[inline]
    fn find<K: Hash + ?Sized>(&self, key: &K) -> (Fingerprint, Option<CellRef<'_>>) {
        let key = self.secret.of(key);
        (key, self.hot.find(key))
    }

    /// The time, for who may try to decide without much ado.
    #[inline]
    pub(super) fn quick_time(&self) -> Option<Timestamp> {
        self.is_quick.load(Ordering::Relaxed).then(|| self.steady_now())
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
            return self.check_changed(key, cost, now, name);
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

    /// Takes from a bucket under the lock, known or new, if that is all there is to do. Tells what the bucket is then,
    /// and whether there was enough in it.
    ///
    /// What it returns fits into registers: a whole decision would go through memory twice.
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
        let Some(taken) = shard.take(bucket, key, (now, ticks), cost) else {
            let taken = shard.take_new(bucket, key, (now, ticks), cost, &self.capacity)?;
            shard.housekeep(now, &self.hot, &self.capacity);
            self.leave(shard, key);
            return Some(taken);
        };
        if had_to_wait || shard.is_asked_again(key) {
            self.lend(&mut shard, key, ticks);
        }
        if shard.housekeep(now, &self.hot, &self.capacity) {
            self.leave(shard, key);
        }
        Some(taken)
    }

    /// Decides by a bucket that has become the rule later.
    #[inline(never)]
    fn check_changed(
        &self,
        key: Fingerprint,
        cost: u64,
        now: Timestamp,
        name: impl Fn() -> KeyName,
    ) -> Decision {
        let mut shard = lock(&self.shards[self.shard_of(key)].shard);
        if let Some((bucket, ticks)) = shard.parameters.bucket_at(now)
            && let Some((full_at, was_enough)) = shard.take(&bucket, key, (now, ticks), cost)
        {
            if shard.housekeep(now, &self.hot, &self.capacity) {
                self.leave(shard, key);
            }
            return bucket.decision(full_at, ticks, cost, was_enough);
        }
        drop(shard);
        self.check_slowly(key, cost, name)
    }

    /// The bucket that the limiter began with, if it is still the rule, and its time.
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
        // Read under the lock: a change of rule says so first, and takes back what was lent after.
        if self.is_original.load(Ordering::Relaxed) {
            shard.lend(&self.hot, key, ticks);
        }
    }

    #[inline(never)]
    pub(super) fn check_slowly(
        &self,
        key: Fingerprint,
        cost: u64,
        name: impl Fn() -> KeyName,
    ) -> Decision {
        // Dropped last: whoever is to be woken is woken when no lock is held.
        let mut wakes = WakeList::default();
        let (mut shard, now) = self.enter(key);
        let quick = shard.check_row(key, now, cost, &self.capacity);
        self.row_locations[self.shard_of(key)].point_at(&shard);
        if let Some(decision) = quick {
            shard.note_named(key, (now, cost), &decision, name);
            shard.housekeep(now, &self.hot, &self.capacity);
            return decision;
        }
        let work = |slot: &mut Slot, limit: &Limit, now| slot.check(limit, now, cost, &mut wakes);
        let (decision, home) = self.with_in(&mut shard, key, now, work);
        if home == Placement::Overflow {
            // What all share says nothing about this key, so nobody else hears of it.
            shard.counters.count(&decision);
            shard.counters.overflowed += 1;
        } else {
            shard.note_named(key, (now, cost), &decision, name);
        }
        shard.housekeep(now, &self.hot, &self.capacity);
        decision
    }

    /// Gives back the lock of this key's shard, whose rows may lie somewhere else than before.
    #[inline(never)]
    fn leave(&self, shard: MutexGuard<'_, Shard>, key: Fingerprint) {
        self.row_locations[self.shard_of(key)].point_at(&shard);
    }
}

//! The memory store: many keys under one limit, in shards, at most `max_keys`, and no key in debt is evicted.
//!
//! Always   A key belongs to one shard, by its fingerprint. A shard's lock is held for one decision, for a sweep of a few
//!          dozen keys, or for a pass over the shard's rows, a few thousand at most; never for all keys. Shards are locked
//!          in the order of their index, the overflow state after them.

mod batch;
mod decide;
mod hot;
mod limit_parameters;
mod observers;
mod overflow;
mod prefetch;
mod rows;
mod shard;
mod throttle;

pub use batch::{Batch, ThrottleBatch};
pub use overflow::Overflow;

pub(crate) use limit_parameters::LimitParameters;
pub(crate) use overflow::{Capacity, OverflowState};
#[cfg(test)]
pub(crate) use rows::tests::effort;
pub(crate) use shard::{KeyLocation, PackedDecision, Shard, ShardCopy};
pub(crate) use throttle::THROTTLES;

use super::stats::Stats;
use super::top_keys::{self, KeyName, Top};
use super::{Fingerprint, Secret};
use crate::clock::{Clock, limit_now};
use crate::slot::Slot;
use crate::store::IdempotencyCache;
use crate::store::audit::{Audit, Auditor};
use crate::sync::{Arc, AtomicBool, Mutex, MutexGuard, Ordering, lock, next_id};
use hot::HotCells;
use observers::{Observers, Sketches};
use prefetch::RowLocation;
use shard::{CLOCK_SKEW_MAX, RuleChange, SweepProgress};
use std::sync::OnceLock;
use tidegate_core::{Limit, NarrowBucket, State, Timestamp, Verdict};

/// The options of a store.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StoreConfig {
    pub(crate) max_keys: usize,
    pub(crate) overflow: Overflow,
    pub(crate) has_top: bool,
    /// One key in this number is audited.
    pub(crate) audit: Option<u64>,
}

/// The origin of a store's fingerprints and times: new, or from a snapshot.
pub(crate) struct StoreOrigin {
    pub(crate) secret: Secret,
    pub(crate) created_at: Timestamp,
    /// See [`MemoryStore::shift`].
    pub(crate) shift: i64,
}

pub(crate) struct MemoryStore<C> {
    pub(crate) number: u64,
    pub(crate) clock: C,
    pub(crate) created_at: Timestamp,
    pub(crate) secret: Secret,
    pub(crate) capacity: Capacity,
    hot: HotCells,
    /// Microseconds to add to the clock: the time of a restored limiter continues from its snapshot.
    shift: i64,
    shards: Box<[Padded]>,
    /// Where each shard's rows are. Every decision writes to its shard, but these rarely change, so they stay in the cache
    /// of every core, which can prefetch a row without waiting for the shard.
    row_locations: Box<[RowLocation]>,
    /// The limiter's first rule, if it is a bucket, and the origin of its times.
    bucket: Option<NarrowBucket>,
    epoch: Timestamp,
    /// Whether the rule has never changed.
    is_original: AtomicBool,
    /// Whether busy keys are counted, by name.
    pub(crate) has_top: bool,
    /// The current rule. Locked while it changes, so that two changes do not overlap.
    current: Mutex<Limit>,
    /// The decisions of idempotent requests.
    pub(crate) idempotency: OnceLock<Arc<IdempotencyCache>>,
}

/// Aligned so that two locks never share a cache line.
#[repr(C, align(128))]
struct Padded {
    shard: Mutex<Shard>,
}

/// The approximate maximum of keys in a shard: a pass over them takes well under a millisecond.
///
/// Under shuttle there are several shards for a few keys.
const KEYS_PER_SHARD: usize = if cfg!(tidegate_shuttle) { 2 } else { 8_192 };
const SHARDS_MAX: usize = 4_096;
/// The number of rows and slots that [`MemoryStore::is_idle`] examines.
const IDLE_SWEEP: usize = 2_048;
/// A store for at least [`KEYS_FOR_THREADS`] keys has at least this many shards, so that threads rarely meet at one.
const SHARDS_FOR_THREADS: usize = 64;
const KEYS_FOR_THREADS: usize = 4_096;
/// With fewer rows than this (half a megabyte), idle rows are kept for a second: to find the row of a client that comes
/// back takes half the time of inserting it. But at most this part of `max_keys`.
///
/// Under shuttle there are only a few keys, which are evicted all the same.
const ROWS_KEPT: usize = if cfg!(tidegate_shuttle) { 8 } else { 16_384 };
const ROWS_KEPT_PART: usize = 4;

impl<C: Clock> MemoryStore<C> {
    pub(crate) fn new(limit: Limit, clock: C, config: StoreConfig) -> Self {
        let created_at = limit_now(&clock, &limit);
        Self::restored(
            limit,
            clock,
            config,
            &StoreOrigin { secret: Secret::random(), created_at, shift: 0 },
        )
    }

    /// Returns an empty store with the fingerprints and times of another one.
    pub(crate) fn restored(
        limit: Limit,
        clock: C,
        config: StoreConfig,
        origin: &StoreOrigin,
    ) -> Self {
        let StoreOrigin { secret, created_at, shift } = *origin;
        let parameters = Arc::new(LimitParameters::new(limit.clone(), created_at));
        let mut shards = config.max_keys.div_ceil(KEYS_PER_SHARD).next_power_of_two();
        if config.max_keys >= KEYS_FOR_THREADS {
            shards = shards.max(SHARDS_FOR_THREADS);
        }
        let shards = shards.min(SHARDS_MAX);
        let rows_kept = ROWS_KEPT.min(config.max_keys / ROWS_KEPT_PART) / shards;
        let shard = |index: usize| {
            let observers = config.observers(shards).map(Box::new);
            let shard = Shard::new(Arc::clone(&parameters), index, rows_kept, observers);
            Padded { shard: Mutex::new(shard) }
        };
        let slot = Slot::new(limit.fresh(created_at));
        Self {
            number: next_id(),
            clock,
            created_at,
            secret,
            shift,
            capacity: Capacity::new(config.max_keys, config.overflow, limit.clone(), slot),
            row_locations: (0..shards).map(|_| RowLocation::default()).collect(),
            shards: (0..shards).map(shard).collect(),
            hot: HotCells::default(),
            bucket: limit.narrow_bucket(),
            epoch: parameters.epoch,
            is_original: AtomicBool::new(true),
            has_top: config.has_top,
            current: Mutex::new(limit),
            idempotency: OnceLock::new(),
        }
    }

    /// Returns the index of a key's shard: the lowest bits of the high word. Its highest bits give the row. So both are
    /// known before the low word, which the hash computes later.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "only the lowest bits are wanted")]
    pub(crate) fn shard_of(&self, key: Fingerprint) -> usize {
        key.high as usize & (self.shards.len() - 1)
    }

    /// Locks a shard for more than a quick decision: its keys are moved back from hot cells.
    fn lock_shard(&self, index: usize) -> MutexGuard<'_, Shard> {
        let mut shard = lock(&self.shards[index].shard);
        shard.take_back(&self.hot);
        shard
    }

    #[inline]
    fn now(&self, is_calendar: bool) -> Timestamp {
        if is_calendar {
            return self.clock.calendar_now();
        }
        let now = self.clock.now();
        if self.shift == 0 {
            return now;
        }
        Timestamp::from_micros(now.as_micros().saturating_add_signed(self.shift))
    }

    /// Returns the time of the limiter's own clock.
    pub(crate) fn steady_now(&self) -> Timestamp {
        self.now(false)
    }

    /// Returns the time by which this limit counts.
    pub(crate) fn now_for(&self, limit: &Limit) -> Timestamp {
        self.now(limit.follows_calendar())
    }

    /// Locks a key's shard and reads the time, under the lock: a later decision must not have an earlier time.
    fn enter(&self, key: Fingerprint) -> (MutexGuard<'_, Shard>, Timestamp) {
        self.hold(self.shard_of(key))
    }

    /// Locks a shard by its index, and reads the time.
    pub(crate) fn hold(&self, index: usize) -> (MutexGuard<'_, Shard>, Timestamp) {
        let mut shard = self.lock_shard(index);
        let now = self.now_for(shard.limit());
        shard.seen = now;
        (shard, now)
    }

    /// Runs `work` on one key for a request, and counts its verdict.
    pub(crate) fn request<R>(
        &self,
        (key, name): (Fingerprint, &KeyName),
        verdict: impl FnOnce(&R) -> Verdict,
        work: impl FnOnce(&mut Slot, &Limit, Timestamp) -> R,
    ) -> (R, Placement) {
        let (mut shard, now) = self.enter(key);
        let (done, placement) = self.with_in(&mut shard, key, now, work);
        let verdict = verdict(&done);
        shard.counters.count_verdict(verdict);
        match placement {
            Placement::Overflow => shard.counters.overflowed += 1,
            Placement::Own => shard.observe_in_sketches((key, name), now, verdict),
        }
        (done, placement)
    }

    /// Runs `work` on one key; or, if the store is full and the key absent, on the overflow state. Also returns which of them
    /// it was.
    pub(crate) fn with<R>(
        &self,
        key: Fingerprint,
        work: impl FnOnce(&mut Slot, &Limit, Timestamp) -> R,
    ) -> (R, Placement) {
        let (mut shard, now) = self.enter(key);
        self.with_in(&mut shard, key, now, work)
    }

    fn with_in<R>(
        &self,
        shard: &mut Shard,
        key: Fingerprint,
        now: Timestamp,
        work: impl FnOnce(&mut Slot, &Limit, Timestamp) -> R,
    ) -> (R, Placement) {
        let location = shard.locate(key);
        self.with_located(shard, (key, location), now, work)
    }

    fn with_located<R>(
        &self,
        shard: &mut Shard,
        (key, location): (Fingerprint, KeyLocation),
        now: Timestamp,
        work: impl FnOnce(&mut Slot, &Limit, Timestamp) -> R,
    ) -> (R, Placement) {
        if location != KeyLocation::Absent {
            return (shard.with((key, location), now, work).0, Placement::Own);
        }
        if !shard.reserve_key(now, &self.capacity) {
            return (self.work_in_overflow(work), Placement::Overflow);
        }
        let (result, is_in) = shard.with((key, location), now, work);
        if is_in {
            shard.sweep_for_new_key(now, &self.capacity);
        } else {
            self.capacity.leave(1);
        }
        (result, Placement::Own)
    }

    /// The same for `work` that only reads: an absent key stays absent.
    pub(crate) fn look<R>(
        &self,
        key: Fingerprint,
        work: impl FnOnce(&mut Slot, &Limit, Timestamp) -> R,
    ) -> R {
        let (mut shard, now) = self.enter(key);
        let location = shard.locate(key);
        if location == KeyLocation::Absent {
            if !shard.reserve_key(now, &self.capacity) {
                return self.work_in_overflow(work);
            }
            self.capacity.leave(1);
        }
        shard.look(location, now, work)
    }

    /// Runs `work` on the overflow state, by its own clock: while the rule changes, it may differ from the shard's.
    fn work_in_overflow<R>(&self, work: impl FnOnce(&mut Slot, &Limit, Timestamp) -> R) -> R {
        let mut shared = lock(&self.capacity.overflow_state);
        let now = self.now_for(&shared.limit);
        self.capacity.work(&mut shared, now, work)
    }

    /// Runs `work` on a key if it is present.
    pub(crate) fn with_existing(
        &self,
        key: Fingerprint,
        work: impl FnOnce(&mut Slot, &Limit, Timestamp),
    ) {
        let (mut shard, now) = self.enter(key);
        let location = shard.locate(key);
        if location != KeyLocation::Absent {
            shard.with((key, location), now, work);
        }
        if let Some(auditor) = shard.auditor() {
            auditor.forget(key);
        }
    }

    /// Runs `work` on the overflow state, also if overflowing keys are denied.
    pub(crate) fn with_overflow<R>(
        &self,
        work: impl FnOnce(&mut Slot, &Limit, Timestamp) -> R,
    ) -> R {
        let mut shared = lock(&self.capacity.overflow_state);
        let now = self.now_for(&shared.limit);
        let OverflowState { limit, slot, .. } = &mut *shared;
        work(slot, limit, now)
    }

    pub(crate) fn rule(&self) -> Limit {
        lock(&self.current).clone()
    }

    /// Changes the rule, shard by shard: at every moment a key has one rule.
    pub(crate) fn change(&self, new: Limit) {
        let mut current = lock(&self.current);
        // Hot cells support the first rule only.
        self.is_original.store(false, Ordering::Relaxed);
        let mut change = {
            let (shard, old_now) = self.hold(0);
            let now = self.now_for(&new);
            RuleChange::to(shard.parameters.changed(new.clone(), old_now, now))
        };
        for index in 0..self.shards.len() {
            let (mut shard, old_now) = self.hold(index);
            let now = self.now_for(&new);
            shard.change(&mut change, (old_now, now));
        }
        let mut shared = lock(&self.capacity.overflow_state);
        let (old_now, now) = (self.now_for(&shared.limit), self.now_for(&new));
        let OverflowState { limit, slot, .. } = &mut *shared;
        slot.change((limit, old_now), (&new, now), &mut change.wakes);
        *limit = new.clone();
        drop(shared);
        *current = new;
    }

    #[cfg(all(test, tidegate_shuttle))]
    pub(crate) fn knows(&self, key: Fingerprint) -> bool {
        self.lock_shard(self.shard_of(key)).knows(key)
    }

    pub(crate) fn keys(&self) -> usize {
        self.capacity.keys()
    }

    pub(crate) fn stats(&self) -> Stats {
        let mut stats = Stats { max_keys: self.capacity.max_keys(), ..Stats::default() };
        for index in 0..self.shards.len() {
            let shard = self.lock_shard(index);
            shard.counters.add_to(&mut stats);
            stats.keys += shard.len();
        }
        let (allowed, denied) = self.hot.counts();
        stats.allowed += allowed;
        stats.denied += denied;
        lock(&self.capacity.overflow_state).counters.add_to(&mut stats);
        stats
    }

    pub(crate) fn top(&self, k: usize) -> Top {
        let (mut hot, mut denied, now) = (Vec::new(), Vec::new(), self.now_for(&self.rule()));
        for index in 0..self.shards.len() {
            if let Some(sketches) = self.lock_shard(index).sketches() {
                hot.extend(sketches.hot.list(now));
                denied.extend(sketches.denied.list(now));
            }
        }
        let window = top_keys::window(now);
        Top { hot: top_keys::greatest(hot, k), denied: top_keys::greatest(denied, k), window }
    }

    pub(crate) fn audit(&self) -> Option<Audit> {
        let mut audit = None;
        for index in 0..self.shards.len() {
            if let Some(auditor) = self.lock_shard(index).auditor() {
                auditor.add_to(audit.get_or_insert_with(Audit::default));
            }
        }
        audit
    }

    /// Passes a copy of each shard to `take`, one after the other. The shard is locked while it is copied.
    pub(crate) fn copy_each<E>(
        &self,
        mut take: impl FnMut(&LimitParameters, ShardCopy) -> Result<(), E>,
    ) -> Result<(), E> {
        for index in 0..self.shards.len() {
            let shard = self.lock_shard(index);
            let (parameters, copied) = (Arc::clone(&shard.parameters), shard.copy());
            drop(shard);
            take(&parameters, copied)?;
        }
        Ok(())
    }

    /// Returns a copy of the overflow state, and its limit.
    pub(crate) fn copy_overflow(&self) -> (Limit, State) {
        let shared = lock(&self.capacity.overflow_state);
        (shared.limit.clone(), shared.slot.state.clone())
    }

    pub(crate) fn restore_overflow(&self, state: State) {
        lock(&self.capacity.overflow_state).slot.state = state;
    }

    /// Grows the shards to hold `keys` keys that are about to be restored, in order.
    pub(crate) fn reserve(&self, keys: usize) {
        let each = keys.div_ceil(self.shards.len());
        (0..self.shards.len()).for_each(|index| self.lock_shard(index).reserve(each));
    }

    /// Inserts a key that was copied from another store with the same secret.
    pub(crate) fn restore_key(&self, key: Fingerprint, state: State) {
        self.lock_shard(self.shard_of(key)).restore_key(key, state, &self.capacity);
    }

    /// Evicts all idle keys. Returns how many. It sweeps a part of every shard in turn, so that a thread that waits for a
    /// shard gets it while the others are swept.
    pub(crate) fn sweep(&self) -> usize {
        let mut sweeps = vec![SweepProgress::default(); self.shards.len()];
        let (mut evicted, mut is_over) = (0, false);
        while !is_over {
            is_over = true;
            for (index, progress) in
                sweeps.iter_mut().enumerate().filter(|(_, progress)| !progress.is_over)
            {
                let (mut shard, now) = self.hold(index);
                evicted += shard.sweep_part(progress, now, &self.capacity);
                is_over &= progress.is_over;
            }
        }
        evicted
    }

    /// Returns whether the store has no keys after a sweep of a limited number, and the overflow state is idle. The first
    /// shard that has a key left ends the sweep.
    pub(crate) fn is_idle(&self) -> bool {
        let mut left = IDLE_SWEEP;
        for index in 0..self.shards.len() {
            let (mut shard, now) = self.hold(index);
            if shard.len() > 0 {
                let swept = shard.array_len().max(shard.len());
                shard.sweep(now, left, &self.capacity);
                left = left.saturating_sub(swept);
                if shard.len() > 0 || left == 0 {
                    return false;
                }
            }
        }
        self.keys() == 0 && self.capacity.is_idle(|limit| self.now_for(limit) - CLOCK_SKEW_MAX)
    }
}

/// Where a key's state was: in the store, or in the overflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Placement {
    Own,
    Overflow,
}

impl Capacity {
    /// Runs `work` on the overflow state; or, if overflowing keys are denied, on an exhausted state, so that every kind of
    /// request is denied.
    pub(crate) fn work<R>(
        &self,
        shared: &mut OverflowState,
        now: Timestamp,
        work: impl FnOnce(&mut Slot, &Limit, Timestamp) -> R,
    ) -> R {
        let OverflowState { limit, slot, .. } = shared;
        match self.overflow {
            Overflow::Share => work(slot, limit, now),
            Overflow::Deny => work(&mut Slot::closed(limit.exhausted(now)), limit, now),
        }
    }
}

impl StoreConfig {
    fn observers(&self, shards: usize) -> Option<Observers> {
        let sketches = self.has_top.then(Sketches::default);
        let auditor = self.audit.map(|sample| Auditor::new(sample, shards));
        (sketches.is_some() || auditor.is_some()).then_some(Observers { sketches, auditor })
    }
}

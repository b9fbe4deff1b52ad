//! Many keys under one limit: sharded, bounded, and never forgetting a key in debt.
//!
//! Always   A key belongs to one shard, by its fingerprint. A shard's lock is held for one decision, or
//!          for a look at a few dozen keys, or for a pass over one shard of at most some thousand rows;
//!          never for all keys. Shards are locked in the order of their index, the shared overflow
//!          after all of them.

mod arena;
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
mod throttle_batch;

pub use batch::Batch;
pub use overflow::Overflow;
pub use throttle_batch::ThrottleBatch;

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
use crate::sync::spin_mutex::{SpinGuard, SpinMutex};
use crate::sync::{Arc, AtomicBool, Mutex, Ordering, lock, next_id};
use arena::ArenaTiers;
use hot::HotCells;
use observers::{Observers, Sketches};
use prefetch::RowLocation;
use rows::ArenaSlot;
use shard::{CLOCK_SKEW_MAX, RuleChange, SweepProgress};
use std::sync::OnceLock;
use tidegate_core::{Limit, NarrowBucket, State, Timestamp, Verdict};

/// How a table is to be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StoreConfig {
    pub(crate) max_keys: usize,
    pub(crate) overflow: Overflow,
    pub(crate) has_top: bool,
    /// One key in so many is audited.
    pub(crate) audit: Option<u64>,
}

/// Where a table's keys and times come from.
pub(crate) struct StoreOrigin {
    pub(crate) secret: Secret,
    pub(crate) created_at: Timestamp,
    /// See [`MemoryStore`]'s.
    pub(crate) shift: i64,
}

pub(crate) struct MemoryStore<C> {
    pub(crate) number: u64,
    pub(crate) clock: C,
    pub(crate) created_at: Timestamp,
    pub(crate) secret: Secret,
    pub(crate) capacity: Capacity,
    hot: HotCells,
    /// What is to be added to the clock, in microseconds: the time of a limiter that was restored goes
    /// on where it was.
    shift: i64,
    shards: Box<[Padded]>,
    /// Where each shard's rows are. Apart from the shards, which every decision writes to: these hardly ever change,
    /// so every core has them at hand and can fetch a row without waiting for the shard.
    row_locations: Box<[RowLocation]>,
    arena_tiers: Option<Arc<ArenaTiers>>,
    /// The rule that the limiter began with, if it is a bucket, and what its times are counted from.
    bucket: Option<NarrowBucket>,
    epoch: Timestamp,
    /// Whether that is still the rule.
    is_original: AtomicBool,
    /// Whether busy keys are counted, by name.
    pub(crate) has_top: bool,
    /// The rule in force. Locked while it changes, so that two changes do not mix.
    current: Mutex<Limit>,
    /// The decisions of idempotent requests.
    pub(crate) idempotency: OnceLock<Arc<IdempotencyCache>>,
}

/// Two locks in one line of memory would be one lock. What a quick decision looks at comes first: with
/// many shards, each line of them has to be fetched.
#[repr(C, align(128))]
struct Padded {
    shard: SpinMutex<Shard>,
}

/// A shard has at most about so many keys: a pass over them takes well under a millisecond.
///
/// Under shuttle there are only a few keys, and still several shards.
const KEYS_PER_SHARD: usize = if cfg!(tidegate_shuttle) { 2 } else { 8_192 };
const SHARDS_MAX: usize = 4_096;
/// Who asks whether all keys are at rest looks at so many places where keys may be.
const REST_PLACES: usize = 2_048;
/// With room for many keys there are at least so many shards, for the threads that come at once.
const SHARDS_FOR_THREADS: usize = 64;
const KEYS_FOR_THREADS: usize = 4_096;
/// With fewer rows than this, half a megabyte of them, clients at rest are kept for a second: who comes again is found then,
/// which takes half the time of being put in anew. But no more than this part of those there may be.
///
/// Under shuttle there are only a few keys, and they are forgotten all the same.
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

    /// A table without keys that counts as another one did.
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
        let arena_tiers = arena_tiers(&limit, config.max_keys, shards).map(Arc::new);
        let rows_kept = ROWS_KEPT.min(config.max_keys / ROWS_KEPT_PART) / shards;
        let shard = |index: usize| {
            let observers = config.observers(shards).map(Box::new);
            let arena_slot = ArenaSlot { arena_tiers: arena_tiers.clone(), index };
            let shard = SpinMutex::new(Shard::new(
                Arc::clone(&parameters),
                arena_slot,
                rows_kept,
                observers,
            ));
            Padded { shard }
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
            arena_tiers,
            hot: HotCells::default(),
            bucket: limit.narrow_bucket(),
            epoch: parameters.epoch,
            is_original: AtomicBool::new(true),
            has_top: config.has_top,
            current: Mutex::new(limit),
            idempotency: OnceLock::new(),
        }
    }

    /// The lowest bits of the high word choose the shard, and its highest the place in it: so both are known
    /// before the low word is, which comes out of the hash later.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "only the lowest bits are wanted")]
    pub(crate) fn shard_of(&self, key: Fingerprint) -> usize {
        key.high as usize & (self.shards.len() - 1)
    }

    /// Locks a shard for whoever has more to do than a quick decision: all of its keys are in it.
    #[inline]
    fn lock_shard(&self, index: usize) -> SpinGuard<'_, Shard> {
        let (mut shard, _) = self.shards[index].shard.hold();
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

    /// What the limiter's own clock says.
    pub(crate) fn steady_now(&self) -> Timestamp {
        self.now(false)
    }

    /// The time by which this limit counts.
    pub(crate) fn now_for(&self, limit: &Limit) -> Timestamp {
        self.now(limit.follows_calendar())
    }

    /// Locks a key's shard and tells the time, which is read under the lock: whoever comes later must
    /// not bring an earlier one.
    fn enter(&self, key: Fingerprint) -> (SpinGuard<'_, Shard>, Timestamp) {
        self.hold(self.shard_of(key))
    }

    /// Locks a shard by its index, for who works on several keys.
    #[inline]
    pub(crate) fn hold(&self, index: usize) -> (SpinGuard<'_, Shard>, Timestamp) {
        let mut shard = self.lock_shard(index);
        let now = self.now_for(shard.limit());
        shard.seen = now;
        (shard, now)
    }

    /// Works on one key for a request, which is counted by its verdict.
    pub(crate) fn request<R>(
        &self,
        (key, name): (Fingerprint, &KeyName),
        verdict: impl FnOnce(&R) -> Verdict,
        work: impl FnOnce(&mut Slot, &Limit, Timestamp) -> R,
    ) -> (R, Placement) {
        let (mut shard, now) = self.enter(key);
        let (done, home) = self.with_in(&mut shard, key, now, work);
        let verdict = verdict(&done);
        shard.counters.count_verdict(verdict);
        match home {
            Placement::Overflow => shard.counters.overflowed += 1,
            Placement::Own => shard.observe_in_sketches((key, name), now, verdict),
        }
        (done, home)
    }

    /// Works on one key. Tells where it was: a key for which there is no room is worked on in the
    /// shared overflow, or denied there.
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

    /// The same, for looking only: a key that is not known is not remembered for it.
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

    /// Works on what keys without room share, by its own clock: in the middle of a change of rule that
    /// may be another than the shard's.
    fn work_in_overflow<R>(&self, work: impl FnOnce(&mut Slot, &Limit, Timestamp) -> R) -> R {
        let mut shared = lock(&self.capacity.overflow_state);
        let now = self.now_for(&shared.limit);
        self.capacity.work(&mut shared, now, work)
    }

    /// Works on a key if it is known.
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
        if let Some(auditor) =
            shard.observers.as_mut().and_then(|observers| observers.auditor.as_mut())
        {
            auditor.forget(key);
        }
    }

    /// Works on what keys without room share.
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

    /// Changes the rule, shard by shard: at every moment every key has one rule.
    pub(crate) fn change(&self, new: Limit) {
        let mut current = lock(&self.current);
        // The cells know one rule only.
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
        drop(current);
        self.tend();
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
            let shard = self.lock_shard(index);
            if let Some(sketches) =
                shard.observers.as_ref().and_then(|observers| observers.sketches.as_ref())
            {
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
            let shard = self.lock_shard(index);
            if let Some(auditor) =
                shard.observers.as_ref().and_then(|observers| observers.auditor.as_ref())
            {
                auditor.add_to(audit.get_or_insert_with(Audit::default));
            }
        }
        audit
    }

    /// Hands over what each shard holds, one after the other; the lock is held while it is copied.
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

    /// What keys without room share, and the rule that it is under.
    pub(crate) fn copy_overflow(&self) -> (Limit, State) {
        let shared = lock(&self.capacity.overflow_state);
        (shared.limit.clone(), shared.slot.state.clone())
    }

    pub(crate) fn restore_overflow(&self, state: State) {
        lock(&self.capacity.overflow_state).slot.state = state;
    }

    /// Makes room for so many keys that are about to be taken in: they come in order, and would crowd
    /// into the first homes of rows that are to grow yet.
    pub(crate) fn reserve(&self, keys: usize) {
        let each = keys.div_ceil(self.shards.len());
        (0..self.shards.len()).for_each(|index| self.lock_shard(index).reserve(each));
    }

    /// Takes in a key that was copied from another table with the same secret.
    pub(crate) fn restore_key(&self, key: Fingerprint, state: State) {
        self.lock_shard(self.shard_of(key)).restore_key(key, state, &self.capacity);
        self.tend();
    }

    /// Looks through all keys and forgets those at rest. Tells how many. It takes a part of every shard in
    /// turn, so that whoever waits for one finds it free while the others are looked through.
    pub(crate) fn sweep(&self) -> usize {
        let mut looks = vec![SweepProgress::default(); self.shards.len()];
        let (mut forgotten, mut is_over) = (0, false);
        while !is_over {
            is_over = true;
            for (index, look) in looks.iter_mut().enumerate().filter(|(_, look)| !look.is_over) {
                let (mut shard, now) = self.hold(index);
                forgotten += shard.sweep_part(look, now, &self.capacity);
                is_over &= look.is_over;
            }
        }
        forgotten
    }

    /// Whether a look at some keys leaves none, and what keys without room share is at rest too. Shard by shard, since
    /// most have no keys where there are few; the first that keeps one ends the look.
    pub(crate) fn is_idle(&self) -> bool {
        let mut left = REST_PLACES;
        for index in 0..self.shards.len() {
            let (mut shard, now) = self.hold(index);
            if shard.len() > 0 {
                let looked_at = shard.places().max(shard.len());
                shard.sweep(now, left, &self.capacity);
                left = left.saturating_sub(looked_at);
                if shard.len() > 0 || left == 0 {
                    return false;
                }
            }
        }
        self.keys() == 0 && self.capacity.is_idle(|limit| self.now_for(limit) - CLOCK_SKEW_MAX)
    }
}

/// Memory for the rows of all shards: for as many keys as there may be, evenly spread but for four
/// standard deviations.
fn arena_tiers(limit: &Limit, max_keys: usize, shards: usize) -> Option<ArenaTiers> {
    let keys = max_keys / shards;
    let keys = keys + 4 * keys.isqrt();
    ArenaTiers::new(shards, shard::arena_words(limit.packed_words(), keys))
}

/// Where a key was worked on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Placement {
    Own,
    Overflow,
}

impl Capacity {
    /// Works on what keys without room share; or, if they are to be refused, on a state that has
    /// nothing left, so that every way of asking hears no.
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

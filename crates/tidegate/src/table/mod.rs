//! Many keys under one limit: sharded, bounded, and never forgetting a key in debt.
//!
//! Always   A key belongs to one shard, by its fingerprint. A shard's lock is held for one decision, or
//!          for a look at a few dozen keys, or for a pass over one shard of at most some thousand rows;
//!          never for all keys. Shards are locked in the order of their index, the shared overflow
//!          after all of them.

mod audit;
mod batch;
mod fingerprint;
mod memory;
mod prefetch;
mod room;
mod rows;
mod shard;
mod tally;
mod top;
mod watch;

pub use audit::Audit;
pub use batch::Batch;
pub use room::Overflow;
pub use tally::Stats;
pub use top::{KeyName, Top, TopKey};

pub(crate) use fingerprint::{Fingerprint, Secret};
pub(crate) use room::{Room, Shared};
pub(crate) use shard::Shard;

use crate::clock::Clock;
use crate::slot::Slot;
use crate::spot;
use crate::sync::{Arc, AtomicBool, Mutex, MutexGuard, Ordering, lock, lock_briefly};
use crate::turn::Wakes;
use audit::Auditor;
use tidegate_core::{Decision, Limit, NarrowBucket, Span, State, Timestamp, Verdict};
use watch::{Sketches, Watch};

/// How a table is to be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) max_keys: usize,
    pub(crate) overflow: Overflow,
    pub(crate) has_top: bool,
    /// One key in so many is audited.
    pub(crate) audit: Option<u64>,
}

/// What a shard decides by. Shards change theirs one after the other.
#[derive(Debug)]
pub(crate) struct Terms {
    pub(crate) limit: Limit,
    bucket: Option<NarrowBucket>,
    /// The state of a key that nobody has asked about.
    fresh: State,
    is_calendar: bool,
    /// What packed times are counted from.
    epoch: Timestamp,
}

pub(crate) struct Table<C> {
    pub(crate) number: u64,
    pub(crate) clock: C,
    pub(crate) birth: Timestamp,
    pub(crate) secret: Secret,
    pub(crate) room: Room,
    shards: Box<[Padded<Mutex<Shard>>]>,
    /// Whether the rule goes by the calendar; a hint for who reads the clock before the lock.
    is_calendar: AtomicBool,
    /// The rule as it stands. Held while it changes, so that two changes do not mix.
    ruling: Mutex<Limit>,
}

/// Two locks in one line of memory would be one lock.
#[repr(align(128))]
struct Padded<T>(T);

/// A shard has at most about so many keys: a pass over them takes well under a millisecond.
///
/// Under shuttle there are only a few keys, and still several shards.
const KEYS_PER_SHARD: usize = if cfg!(tidegate_shuttle) { 2 } else { 8_192 };
const SHARDS_MAX: usize = 4_096;
/// With room for many keys there are at least so many shards, for the threads that come at once.
const SHARDS_FOR_THREADS: usize = 64;
const KEYS_FOR_THREADS: usize = 65_536;

impl Terms {
    fn new(limit: Limit, birth: Timestamp) -> Self {
        // A microsecond early, because nothing can be told to be full at the epoch itself.
        let epoch = birth - Span::from_micros(1);
        let (bucket, fresh) = (limit.narrow_bucket(), limit.fresh(birth));
        Self { bucket, fresh, is_calendar: limit.follows_calendar(), limit, epoch }
    }

    /// The terms of another rule: keys that nobody has asked about go over like all others.
    fn changed(&self, limit: Limit, old_now: Timestamp, now: Timestamp) -> Self {
        let fresh = limit.take_over_between(&self.limit, &self.fresh, old_now, now);
        let (bucket, is_calendar) = (limit.narrow_bucket(), limit.follows_calendar());
        Self { bucket, fresh, is_calendar, limit, epoch: self.epoch }
    }

    fn unpack(&self, words: &[u64]) -> State {
        let mut packed = [0; 3];
        packed[..words.len()].copy_from_slice(words);
        self.limit.unpack(&packed, self.epoch)
    }

    /// A slot as a row, if it can be one.
    fn pack(&self, slot: &Slot) -> Option<[u64; 3]> {
        if slot.is_plain() { self.limit.pack(&slot.state, self.epoch) } else { None }
    }

    /// Whether forgetting a key in this state changes no answer.
    fn is_at_rest(&self, words: &[u64], now: Timestamp) -> bool {
        if let Some(bucket) = &self.bucket
            && now >= self.epoch
            && let Some(now) = bucket.at(now.since(self.epoch))
        {
            return words[0] <= now;
        }
        self.limit.peek(&self.unpack(words), now, 0).reset_after.is_zero()
    }
}

impl<C: Clock> Table<C> {
    pub(crate) fn new(limit: Limit, clock: C, plan: Plan) -> Self {
        let birth = spot::now(&clock, &limit);
        Self::restored(limit, clock, plan, Secret::random(), birth)
    }

    pub(crate) fn restored(
        limit: Limit,
        clock: C,
        plan: Plan,
        secret: Secret,
        birth: Timestamp,
    ) -> Self {
        let terms = Arc::new(Terms::new(limit.clone(), birth));
        let mut shards = plan.max_keys.div_ceil(KEYS_PER_SHARD).next_power_of_two();
        if plan.max_keys >= KEYS_FOR_THREADS {
            shards = shards.max(SHARDS_FOR_THREADS);
        }
        let shards = shards.min(SHARDS_MAX);
        let shard = |index: usize| {
            let watch = plan.watch(secret.words[0] ^ index as u64).map(Box::new);
            Padded(Mutex::new(Shard::new(Arc::clone(&terms), index, watch)))
        };
        let slot = Slot::new(limit.fresh(birth));
        Self {
            number: spot::next_number(),
            clock,
            birth,
            secret,
            room: Room::new(plan.max_keys, plan.overflow, limit.clone(), slot),
            shards: (0..shards).map(shard).collect(),
            is_calendar: AtomicBool::new(limit.follows_calendar()),
            ruling: Mutex::new(limit),
        }
    }

    /// The low bits choose the shard; the high word chooses the place in it.
    #[inline]
    pub(crate) fn shard_of(&self, key: Fingerprint) -> usize {
        key.low as usize & (self.shards.len() - 1)
    }

    #[inline]
    fn lock_shard(&self, index: usize) -> MutexGuard<'_, Shard> {
        lock_briefly(&self.shards[index].0)
    }

    /// The time, for who has no lock yet.
    #[inline]
    fn read_clock(&self) -> Timestamp {
        if self.is_calendar.load(Ordering::Relaxed) {
            return self.clock.calendar_now();
        }
        self.clock.now()
    }

    /// Locks a key's shard and tells the time. It is read before the lock is there, so that it is
    /// held for less, and read again if somebody was faster.
    #[inline]
    fn enter(&self, key: Fingerprint, read: Timestamp) -> (MutexGuard<'_, Shard>, Timestamp) {
        let is_calendar = self.is_calendar.load(Ordering::Relaxed);
        let mut shard = self.lock_shard(self.shard_of(key));
        let now = shard.time(read, || self.read_clock());
        if shard.terms.is_calendar == is_calendar {
            return (shard, now);
        }
        // In the middle of a change of rule to one with another clock.
        let now = spot::now(&self.clock, shard.limit());
        (shard, now)
    }

    /// Locks a shard by its index, for who works on several keys.
    pub(crate) fn hold(&self, index: usize) -> (MutexGuard<'_, Shard>, Timestamp) {
        let mut shard = self.lock_shard(index);
        let now = spot::now(&self.clock, shard.limit());
        let now = shard.time(now, || now);
        (shard, now)
    }

    #[inline]
    pub(crate) fn check(
        &self,
        key: Fingerprint,
        cost: u64,
        name: impl Fn() -> KeyName,
    ) -> Decision {
        self.check_at(key, cost, self.read_clock(), name)
    }

    /// Decides at a time that was read before.
    #[inline]
    fn check_at(
        &self,
        key: Fingerprint,
        cost: u64,
        read: Timestamp,
        name: impl Fn() -> KeyName,
    ) -> Decision {
        let (mut shard, now) = self.enter(key, read);
        let Some(bucket) = shard.terms.bucket else {
            return self.check_slowly(shard, key, (now, cost), name);
        };
        let Some(taken) = shard.check_bucket(&bucket, key, now, cost) else {
            return self.check_slowly(shard, key, (now, cost), name);
        };
        shard.housekeep(now, &self.room);
        if shard.watch.is_some() {
            shard.tell(key, (now, cost), &taken.decision(&bucket, cost), name);
        }
        drop(shard);
        taken.decision(&bucket, cost)
    }

    #[inline(never)]
    fn check_slowly(
        &self,
        mut shard: MutexGuard<'_, Shard>,
        key: Fingerprint,
        (now, cost): (Timestamp, u64),
        name: impl Fn() -> KeyName,
    ) -> Decision {
        // Dropped last: whoever is to be woken is woken when no lock is held.
        let mut wakes = Wakes::default();
        if let Some(decision) = shard.check_row(key, now, cost, &self.room) {
            shard.note_named(key, (now, cost), &decision, name);
            shard.housekeep(now, &self.room);
            return decision;
        }
        let work = |slot: &mut Slot, limit: &Limit, now| slot.check(limit, now, cost, &mut wakes);
        let (decision, home) = self.with_in(&mut shard, key, now, work);
        shard.note_named(key, (now, cost), &decision, name);
        shard.housekeep(now, &self.room);
        if home == Home::Shared {
            shard.tally.overflowed += 1;
        }
        drop(shard);
        decision
    }

    /// Works on one key for a request, which is counted by its verdict.
    pub(crate) fn ask<R>(
        &self,
        key: Fingerprint,
        verdict: impl FnOnce(&R) -> Verdict,
        work: impl FnOnce(&mut Slot, &Limit, Timestamp) -> R,
    ) -> (R, Home) {
        let (mut shard, now) = self.enter(key, self.read_clock());
        let done = self.with_in(&mut shard, key, now, work);
        shard.tally.count_verdict(verdict(&done.0));
        if done.1 == Home::Shared {
            shard.tally.overflowed += 1;
        }
        done
    }

    /// Works on one key. Tells where it was: a key for which there is no room is worked on in the
    /// shared overflow, or denied there.
    pub(crate) fn with<R>(
        &self,
        key: Fingerprint,
        work: impl FnOnce(&mut Slot, &Limit, Timestamp) -> R,
    ) -> (R, Home) {
        let (mut shard, now) = self.enter(key, self.read_clock());
        self.with_in(&mut shard, key, now, work)
    }

    fn with_in<R>(
        &self,
        shard: &mut Shard,
        key: Fingerprint,
        now: Timestamp,
        work: impl FnOnce(&mut Slot, &Limit, Timestamp) -> R,
    ) -> (R, Home) {
        if shard.knows(key) {
            return (shard.with(key, now, work).0, Home::Own);
        }
        if !shard.make_room(now, &self.room) {
            let mut shared = lock(&self.room.shared);
            return (self.room.work(&mut shared, now, work), Home::Shared);
        }
        let (result, is_in) = shard.with(key, now, work);
        if is_in {
            shard.sweep_for_new_key(now, &self.room);
        } else {
            self.room.leave(1);
        }
        (result, Home::Own)
    }

    /// The same, for looking only: a key that is not known is not remembered for it.
    pub(crate) fn look<R>(
        &self,
        key: Fingerprint,
        work: impl FnOnce(&mut Slot, &Limit, Timestamp) -> R,
    ) -> R {
        let (mut shard, now) = self.enter(key, self.read_clock());
        if !shard.knows(key) {
            if !shard.make_room(now, &self.room) {
                return self.room.work(&mut lock(&self.room.shared), now, work);
            }
            self.room.leave(1);
        }
        shard.look(key, now, work)
    }

    /// Works on a key if it is known.
    pub(crate) fn with_known(
        &self,
        key: Fingerprint,
        work: impl FnOnce(&mut Slot, &Limit, Timestamp),
    ) {
        let (mut shard, now) = self.enter(key, self.read_clock());
        if shard.knows(key) {
            shard.with(key, now, work);
        }
        if let Some(auditor) = shard.watch.as_mut().and_then(|watch| watch.auditor.as_mut()) {
            auditor.forget(key);
        }
    }

    /// Works on what keys without room share.
    pub(crate) fn with_shared<R>(&self, work: impl FnOnce(&mut Slot, &Limit, Timestamp) -> R) -> R {
        let mut shared = lock(&self.room.shared);
        let now = spot::now(&self.clock, &shared.limit);
        let Shared { limit, slot, .. } = &mut *shared;
        work(slot, limit, now)
    }

    pub(crate) fn rule(&self) -> Limit {
        lock(&self.ruling).clone()
    }

    /// Changes the rule, shard by shard: at every moment every key has one rule.
    pub(crate) fn change(&self, new: Limit) {
        let mut wakes = Wakes::default();
        let mut ruling = lock(&self.ruling);
        let terms = {
            let (shard, old_now) = self.hold(0);
            let now = spot::now(&self.clock, &new);
            Arc::new(shard.terms.changed(new.clone(), old_now, now))
        };
        for index in 0..self.shards.len() {
            let (mut shard, old_now) = self.hold(index);
            let now = spot::now(&self.clock, &new);
            shard.change(Arc::clone(&terms), (old_now, now), &self.room, &mut wakes);
        }
        let mut shared = lock(&self.room.shared);
        let (old_now, now) = (spot::now(&self.clock, &shared.limit), spot::now(&self.clock, &new));
        let Shared { limit, slot, .. } = &mut *shared;
        slot.change((limit, old_now), (&new, now), &mut wakes);
        *limit = new.clone();
        drop(shared);
        self.is_calendar.store(new.follows_calendar(), Ordering::Relaxed);
        *ruling = new;
    }

    #[cfg(all(test, tidegate_shuttle))]
    pub(crate) fn knows(&self, key: Fingerprint) -> bool {
        self.lock_shard(self.shard_of(key)).knows(key)
    }

    pub(crate) fn keys(&self) -> usize {
        self.room.keys()
    }

    pub(crate) fn stats(&self) -> Stats {
        let mut stats = Stats { max_keys: self.room.max_keys(), ..Stats::default() };
        for index in 0..self.shards.len() {
            let shard = self.lock_shard(index);
            shard.tally.add_to(&mut stats);
            stats.keys += shard.len();
        }
        lock(&self.room.shared).tally.add_to(&mut stats);
        stats
    }

    pub(crate) fn top(&self, k: usize) -> Top {
        let (mut hot, mut denied) = (Vec::new(), Vec::new());
        for index in 0..self.shards.len() {
            let shard = self.lock_shard(index);
            if let Some(sketches) = shard.watch.as_ref().and_then(|watch| watch.sketches.as_ref()) {
                hot.extend(sketches.hot.list());
                denied.extend(sketches.denied.list());
            }
        }
        Top { hot: top::greatest(hot, k), denied: top::greatest(denied, k) }
    }

    pub(crate) fn audit(&self) -> Option<Audit> {
        let mut audit = None;
        for index in 0..self.shards.len() {
            let shard = self.lock_shard(index);
            if let Some(auditor) = shard.watch.as_ref().and_then(|watch| watch.auditor.as_ref()) {
                auditor.add_to(audit.get_or_insert_with(Audit::default));
            }
        }
        audit
    }

    /// Looks through all keys, one shard at a time, and forgets those at rest. Tells how many.
    pub(crate) fn sweep(&self) -> usize {
        (0..self.shards.len())
            .map(|index| {
                let (mut shard, now) = self.hold(index);
                shard.sweep(now, usize::MAX, &self.room)
            })
            .sum()
    }
}

/// Where a key was worked on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Home {
    Own,
    Shared,
}

impl Room {
    /// Works on what keys without room share; or, if they are to be refused, on a state that has
    /// nothing left, so that every way of asking hears no.
    pub(crate) fn work<R>(
        &self,
        shared: &mut Shared,
        now: Timestamp,
        work: impl FnOnce(&mut Slot, &Limit, Timestamp) -> R,
    ) -> R {
        let Shared { limit, slot, .. } = shared;
        match self.overflow {
            Overflow::Share => work(slot, limit, now),
            Overflow::Deny => work(&mut Slot::closed(limit.exhausted(now)), limit, now),
        }
    }
}

impl Plan {
    fn watch(&self, seed: u64) -> Option<Watch> {
        let sketches = self.has_top.then(|| Sketches::new(seed));
        let auditor = self.audit.map(Auditor::new);
        (sketches.is_some() || auditor.is_some()).then_some(Watch { sketches, auditor })
    }
}

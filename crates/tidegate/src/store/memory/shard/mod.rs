//! A part of the keys under one lock: packed rows for most keys, slots for the others.
//!
//! Always   A key is a row or a slot, never both. It is a slot while it has waiters or permits, or if its state does not
//!          fit into a row; then it becomes a row again. An idle key is evicted when a sweep reaches it, a key in debt
//!          never.

mod change;
mod sweep;

pub(super) use change::RuleChange;
pub(super) use sweep::{CLOCK_SKEW_MAX, SweepProgress};

use super::LimitParameters;
use super::hot::{HotCells, MOVED};
use super::observers::Observers;
use super::overflow::Capacity;
use super::rows::{Row, Rows};
use crate::slot::Slot;
use crate::store::fingerprint::{Fingerprint, FingerprintHasher};
use crate::store::stats::Counters;
use crate::store::top_keys::KeyName;
use crate::sync::Arc;
use crate::sync::wake::WakeList;
use indexmap::IndexMap;
use std::hash::BuildHasherDefault;
use sweep::DECISIONS_PER_SWEEP;
use tidegate_core::{Decision, Limit, NarrowBucket, State, Timestamp, Verdict};

type Slots = IndexMap<Fingerprint, Slot, BuildHasherDefault<FingerprintHasher>>;

/// The fields that every decision needs come first, so that they share a few cache lines.
#[repr(C)]
pub(crate) struct Shard {
    pub(super) parameters: Arc<LimitParameters>,
    /// The latest time of a decision in this shard.
    pub(super) seen: Timestamp,
    /// The low word of the key that was decided last, and how many decisions in a row were about it.
    last: u64,
    times: u32,
    /// The number of decisions until the next sweep for idle keys.
    until_sweep: u32,
    pub(super) observers: Option<Box<Observers>>,
    pub(super) counters: Counters,
    rows: PackedRows,
    /// Where the next sweep begins: in the rows, and in the slots.
    cursor: usize,
    slot_cursor: usize,
    slots: Slots,
    /// With fewer rows than this, idle rows are kept for a second.
    rows_kept: usize,
    /// Keys that are in a hot cell.
    lent: Vec<Fingerprint>,
    /// The shard's index, from which its rows take their first size.
    index: usize,
}

/// A copy of a shard's keys.
pub(crate) struct ShardCopy {
    /// The number of words of state in a row, after the two of the fingerprint.
    pub(crate) words: usize,
    pub(crate) rows: Vec<u64>,
    pub(crate) slots: Vec<(Fingerprint, Vec<u64>)>,
}

/// Rows of the width of the rule's packed states.
enum PackedRows {
    /// States of no fixed size: every key is a slot.
    None,
    One(Rows<3>),
    Two(Rows<4>),
    Three(Rows<5>),
}

/// Evaluates an expression with rows of any width.
macro_rules! each_width {
    ($packed:expr, $rows:ident => $do:expr, else $none:expr) => {
        match $packed {
            PackedRows::None => $none,
            PackedRows::One($rows) => $do,
            PackedRows::Two($rows) => $do,
            PackedRows::Three($rows) => $do,
        }
    };
}
use each_width;

impl PackedRows {
    fn new(words: usize, seed: usize) -> Self {
        match words {
            0 => Self::None,
            1 => Self::One(Rows::new(seed)),
            2 => Self::Two(Rows::new(seed)),
            _ => Self::Three(Rows::new(seed)),
        }
    }

    fn copy_to(&self, copy: &mut Vec<u64>) {
        each_width!(self, rows => rows.copy_to(copy), else copy.clear());
    }
}

/// A key that is decided this often in a row moves to a hot cell. A schedule of shuttle has fewer decisions.
const TIMES_IN_A_ROW: u32 = if cfg!(tidegate_shuttle) { 1 } else { 32 };

impl Shard {
    pub(super) fn new(
        parameters: Arc<LimitParameters>,
        index: usize,
        rows_kept: usize,
        observers: Option<Box<Observers>>,
    ) -> Self {
        Self {
            rows: PackedRows::new(parameters.limit.packed_words(), index),
            parameters,
            seen: Timestamp::EPOCH,
            last: 0,
            times: 0,
            lent: Vec::new(),
            cursor: 0,
            slot_cursor: 0,
            until_sweep: DECISIONS_PER_SWEEP,
            counters: Counters::default(),
            slots: Slots::default(),
            rows_kept,
            observers,
            index,
        }
    }

    pub(crate) fn limit(&self) -> &Limit {
        &self.parameters.limit
    }

    pub(crate) fn len(&self) -> usize {
        let rows = each_width!(&self.rows, rows => rows.len(), else 0);
        rows + self.slots.len()
    }

    pub(crate) fn knows(&self, key: Fingerprint) -> bool {
        each_width!(&self.rows, rows => rows.find(key).is_ok(), else false)
            || self.slots.contains_key(&key)
    }

    /// Returns where the rows are, see [`Rows::location`].
    pub(super) fn location(&self) -> (usize, usize, usize) {
        each_width!(&self.rows, rows => rows.location(), else (0, 0, 0))
    }

    /// Takes from the bucket of a row without unpacking it. Returns the row's new word, and whether there was enough in
    /// the bucket.
    ///
    /// Returns `None` if there is more to do: the key is absent or observed, or another thread has brought a later time
    /// than this one, which was read before the lock.
    #[inline]
    pub(super) fn take(
        &mut self,
        bucket: &NarrowBucket,
        key: Fingerprint,
        (now, ticks): (Timestamp, u64),
        cost: u64,
    ) -> Option<(u64, bool)> {
        let PackedRows::One(rows) = &mut self.rows else { return None };
        if now < self.seen || self.observers.as_ref().is_some_and(|observers| observers.wants(key))
        {
            return None;
        }
        let at = rows.find(key).ok()?;
        let full_at = &mut rows.row_mut(at)[2];
        // Also while the key is in a hot cell.
        if bucket.is_ahead_of_clock(*full_at, ticks) {
            return None;
        }
        self.seen = now;
        let Some(after) = bucket.take(*full_at, ticks, cost) else {
            self.counters.denied += 1;
            return Some((*full_at, false));
        };
        *full_at = after;
        self.counters.allowed += 1;
        Some((after, true))
    }

    /// The same for an absent key, which is inserted if it is admitted and there is capacity.
    #[inline(never)]
    pub(super) fn take_new(
        &mut self,
        bucket: &NarrowBucket,
        key: Fingerprint,
        (now, ticks): (Timestamp, u64),
        cost: u64,
        capacity: &Capacity,
    ) -> Option<(u64, bool)> {
        let PackedRows::One(rows) = &self.rows else { return None };
        let is_watched = self.observers.as_ref().is_some_and(|observers| observers.wants(key));
        if now < self.seen || is_watched || cost == 0 || !self.slots.is_empty() {
            return None;
        }
        let fresh = self.parameters.fresh_word?;
        if rows.find(key).is_ok() || bucket.is_ahead_of_clock(fresh, ticks) {
            return None;
        }
        let after = bucket.take(fresh, ticks, cost).filter(|_| capacity.enter())?;
        self.seen = now;
        self.counters.allowed += 1;
        self.insert_row(key, [after, 0, 0], now, capacity);
        Some((after, true))
    }

    /// Returns whether this key has been decided so often in a row that it should move to a hot cell.
    #[inline]
    pub(super) fn is_asked_again(&mut self, key: Fingerprint) -> bool {
        if self.last == key.low {
            self.times = self.times.wrapping_add(1);
            return self.times.is_multiple_of(TIMES_IN_A_ROW);
        }
        (self.last, self.times) = (key.low, 0);
        false
    }

    /// Moves a key to a hot cell, if its cell is free.
    pub(super) fn lend(&mut self, hot: &HotCells, key: Fingerprint, ticks: u64) {
        let PackedRows::One(rows) = &mut self.rows else { return };
        let Ok(at) = rows.find(key) else { return };
        let full_at = &mut rows.row_mut(at)[2];
        if hot.lend(key, *full_at, ticks) {
            *full_at = MOVED;
            self.lent.push(key);
        }
    }

    /// Moves all keys from hot cells back to their rows.
    #[inline]
    pub(super) fn take_back(&mut self, hot: &HotCells) {
        if !self.lent.is_empty() {
            self.take_back_all(hot);
        }
    }

    #[cold]
    fn take_back_all(&mut self, hot: &HotCells) {
        let PackedRows::One(rows) = &mut self.rows else { return };
        for key in self.lent.drain(..) {
            if let Ok(at) = rows.find(key) {
                rows.row_mut(at)[2] = hot.take_back(key);
            }
        }
    }

    /// Decides about a key that is a row or absent. Returns `None` if it is a slot or has to become one, or if it is
    /// absent and the store is full.
    pub(super) fn check_row(
        &mut self,
        key: Fingerprint,
        now: Timestamp,
        cost: u64,
        capacity: &Capacity,
    ) -> Option<Decision> {
        let (limit, epoch) = (&self.parameters.limit, self.parameters.epoch);
        let decide = |words: &[u64]| {
            let mut packed = [0; 3];
            packed[..words.len()].copy_from_slice(words);
            let mut state = limit.unpack(&packed, epoch);
            let decision = limit.decide(&mut state, now, cost);
            limit.pack(&state, epoch).map(|packed| (decision, packed))
        };
        let is_new = each_width!(&mut self.rows, rows => {
            if let Ok(at) = rows.find(key) {
                let words = &mut rows.row_mut(at)[2..];
                let (decision, packed) = decide(words)?;
                words.copy_from_slice(&packed[..words.len()]);
                return Some(decision);
            }
            self.slots.is_empty() || !self.slots.contains_key(&key)
        }, else false);
        if !is_new {
            return None;
        }
        let mut state = self.parameters.fresh.clone();
        let decision = limit.decide(&mut state, now, cost);
        let packed = limit.pack(&state, epoch);
        if cost > 0 && decision.is_deny() {
            // A denial charges nothing, so the key may stay absent.
            return Some(decision);
        }
        if !self.reserve_key(now, capacity) {
            // If the store is full, `peek` reads the overflow state too.
            return None;
        }
        let Some(packed) = packed.filter(|_| cost > 0) else {
            capacity.leave(1);
            return (cost == 0).then_some(decision);
        };
        self.insert_row(key, packed, now, capacity);
        Some(decision)
    }

    /// Counts one more key. If the store is full, sweeps for an idle key that it can replace.
    pub(crate) fn reserve_key(&mut self, now: Timestamp, capacity: &Capacity) -> bool {
        if capacity.enter() {
            return true;
        }
        self.sweep(now, self.parameters.sweep_budget_when_full(self.len()), capacity);
        capacity.enter()
    }

    /// Inserts a row for a new key that has been counted.
    fn insert_row(
        &mut self,
        key: Fingerprint,
        packed: [u64; 3],
        now: Timestamp,
        capacity: &Capacity,
    ) {
        let is_idle = self.parameters.idle_test(self.idle_before(now));
        let dropped = each_width!(&mut self.rows, rows => {
            rows.insert(row_of(key, packed), |row| !is_idle(&row[2..]))
        }, else 0);
        drop(is_idle);
        self.forget(dropped, capacity);
        self.sweep_for_new_key(now, capacity);
    }

    /// Counts a decision and passes it to the observers.
    #[inline]
    pub(crate) fn note_named(
        &mut self,
        key: Fingerprint,
        (now, cost): (Timestamp, u64),
        decision: &Decision,
        name: impl Fn() -> KeyName,
    ) {
        self.counters.count(decision);
        self.tell(key, (now, cost), decision, name);
    }

    /// Passes a decision to the observers.
    #[inline]
    pub(super) fn tell(
        &mut self,
        key: Fingerprint,
        asked: (Timestamp, u64),
        decision: &Decision,
        name: impl Fn() -> KeyName,
    ) {
        if let Some(observers) = &mut self.observers {
            observers.observe(&self.parameters.limit, key, asked, decision, name);
        }
    }

    /// Passes a decision to the sketches only: the auditor cannot follow reservations, which may be cancelled.
    pub(super) fn tell_sketches(
        &mut self,
        (key, name): (Fingerprint, &KeyName),
        now: Timestamp,
        verdict: Verdict,
    ) {
        if let Some(sketches) =
            self.observers.as_mut().and_then(|observers| observers.sketches.as_mut())
        {
            sketches.observe(key, now, matches!(verdict, Verdict::Deny(_)), || name.clone());
        }
    }

    /// Passes a decision at no cost to the observers without counting it: it was made in another shard.
    pub(crate) fn hear(
        &mut self,
        key: Fingerprint,
        now: Timestamp,
        decision: &Decision,
        name: impl Fn() -> KeyName,
    ) {
        self.tell(key, (now, 0), decision, name);
    }

    /// Sweeps some keys once in a number of decisions. Returns whether it did.
    #[inline]
    pub(super) fn housekeep(
        &mut self,
        now: Timestamp,
        hot: &HotCells,
        capacity: &Capacity,
    ) -> bool {
        self.until_sweep -= 1;
        let is_time = self.until_sweep == 0;
        if is_time {
            self.sweep_periodically(now, hot, capacity);
        }
        is_time
    }

    /// Runs `work` on one key. An absent key is inserted if it is not idle afterwards; the caller has counted it. Returns
    /// also whether it was inserted.
    pub(crate) fn with<R>(
        &mut self,
        key: Fingerprint,
        now: Timestamp,
        work: impl FnOnce(&mut Slot, &Limit, Timestamp) -> R,
    ) -> (R, bool) {
        let parameters = Arc::clone(&self.parameters);
        let limit = &parameters.limit;
        if let Some(slot) = self.slots.get_mut(&key) {
            let result = work(slot, limit, now);
            self.settle(key);
            return (result, false);
        }
        let known = self.state(key);
        let is_new = known.is_none();
        let mut slot = Slot::new(known.unwrap_or_else(|| parameters.fresh.clone()));
        let result = work(&mut slot, limit, now);
        if !is_new {
            self.replace_row(key, slot);
        } else if !slot.is_idle(limit, now, &mut WakeList::default()) {
            let packed = self.parameters.pack(&slot);
            self.put(key, slot, packed);
            return (result, true);
        }
        (result, false)
    }

    /// Runs `work`, which only reads, on a slot or on a copy of a row. In a slot, what has expired may change.
    pub(crate) fn look<R>(
        &mut self,
        key: Fingerprint,
        now: Timestamp,
        work: impl FnOnce(&mut Slot, &Limit, Timestamp) -> R,
    ) -> R {
        let parameters = Arc::clone(&self.parameters);
        let limit = &parameters.limit;
        if let Some(slot) = self.slots.get_mut(&key) {
            return work(slot, limit, now);
        }
        let state = self.state(key).unwrap_or_else(|| parameters.fresh.clone());
        work(&mut Slot::new(state), limit, now)
    }

    /// Returns the state of a key that is a row.
    fn state(&self, key: Fingerprint) -> Option<State> {
        each_width!(&self.rows, rows => {
            let at = rows.find(key).ok()?;
            Some(self.parameters.unpack(&rows.row(at)[2..]))
        }, else None)
    }

    /// Writes a state back to its row, or turns the row into a slot if the state no longer fits.
    fn replace_row(&mut self, key: Fingerprint, slot: Slot) {
        let packed = self.parameters.pack(&slot);
        let is_row = each_width!(&mut self.rows, rows => {
            let Ok(at) = rows.find(key) else { return };
            match packed {
                Some(packed) => {
                    let words = &mut rows.row_mut(at)[2..];
                    words.copy_from_slice(&packed[..words.len()]);
                }
                None => {
                    rows.remove(at);
                }
            }
            packed.is_some()
        }, else false);
        if !is_row {
            self.slots.insert(key, slot);
        }
    }

    /// Inserts a key that is neither yet: as a row, if it can be packed, else as a slot.
    fn put(&mut self, key: Fingerprint, slot: Slot, packed: Option<[u64; 3]>) {
        match packed {
            Some(packed) => each_width!(&mut self.rows, rows => {
                rows.insert(row_of(key, packed), |_| true);
            }, else ()),
            None => {
                self.slots.insert(key, slot);
            }
        }
    }

    /// Turns a slot back into a row if its state fits.
    fn settle(&mut self, key: Fingerprint) {
        let Some((index, _, slot)) = self.slots.get_full(&key) else { return };
        let packed = self.parameters.pack(slot);
        if packed.is_some()
            && let Some((key, slot)) = self.slots.swap_remove_index(index)
        {
            self.put(key, slot, packed);
        }
    }

    /// Copies all keys: the rows as they are, and the states of the slots.
    pub(crate) fn copy(&self) -> ShardCopy {
        let words = self.parameters.limit.packed_words();
        let mut rows = Vec::new();
        self.rows.copy_to(&mut rows);
        let slot = |(key, slot): (&Fingerprint, &Slot)| {
            (*key, self.parameters.limit.write_state(&slot.state))
        };
        ShardCopy { words, rows, slots: self.slots.iter().map(slot).collect() }
    }

    /// Grows to hold `keys` rows.
    pub(super) fn reserve(&mut self, keys: usize) {
        each_width!(&mut self.rows, rows => rows.reserve(keys), else ());
    }

    /// Inserts a key from a snapshot, also beyond the maximum number of keys, so that no debt is lost.
    pub(crate) fn restore_key(&mut self, key: Fingerprint, state: State, capacity: &Capacity) {
        capacity.add_beyond_max();
        let slot = Slot::new(state);
        let packed = self.parameters.pack(&slot);
        self.put(key, slot, packed);
    }
}

fn key_of(row: &[u64]) -> Fingerprint {
    Fingerprint { high: row[0], low: row[1] }
}

fn row_of<const N: usize>(key: Fingerprint, packed: [u64; 3]) -> Row<N> {
    let mut row = [0; N];
    row[0] = key.high;
    row[1] = key.low;
    row[2..].copy_from_slice(&packed[..N - 2]);
    row
}

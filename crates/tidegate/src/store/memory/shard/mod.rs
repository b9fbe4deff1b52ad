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
use super::observers::{Observers, Sketches};
use super::overflow::Capacity;
use super::rows::{Row, Rows};
use crate::slot::{DecisionContext, Slot};
use crate::store::audit::Auditor;
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

/// Where a shard keeps a key. It is valid until a key enters or leaves the shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyLocation {
    Row(usize),
    Slot(usize),
    Absent,
}

/// A decision that has not been charged, and the packed state of the key once it is.
pub(crate) struct PackedDecision {
    pub(crate) decision: Decision,
    pub(crate) charged: [u64; 3],
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
        self.locate(key) != KeyLocation::Absent
    }

    #[inline]
    pub(crate) fn locate(&self, key: Fingerprint) -> KeyLocation {
        if let Some(at) = each_width!(&self.rows, rows => rows.find(key).ok(), else None) {
            return KeyLocation::Row(at);
        }
        if self.slots.is_empty() {
            return KeyLocation::Absent;
        }
        self.slots.get_index_of(&key).map_or(KeyLocation::Absent, KeyLocation::Slot)
    }

    /// Returns where the rows are, see [`Rows::location`].
    pub(super) fn location(&self) -> (usize, usize, usize) {
        each_width!(&self.rows, rows => rows.location(), else (0, 0, 0))
    }

    /// Takes from the bucket of a row without unpacking it. Returns the row's word afterwards, and whether there was enough
    /// in the bucket.
    ///
    /// Returns `None` if there is more to do: the key has no row or is observed, or another thread has brought a later time
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
        // This is true of `MOVED` too: the key is in a hot cell.
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

    /// Counts a decision about this key. Returns whether it has been decided so often in a row that it should move to a hot
    /// cell.
    #[inline]
    pub(super) fn count_in_a_row(&mut self, key: Fingerprint) -> bool {
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

    /// Decides a request from a key's packed state, and charges nothing. Returns `None` if the key needs a slot.
    #[inline]
    pub(crate) fn decide_packed(
        &self,
        location: KeyLocation,
        now: Timestamp,
        cost: u64,
    ) -> Option<PackedDecision> {
        let mut charged = match location {
            KeyLocation::Row(at) => each_width!(&self.rows, rows => {
                packed_of(rows.row(at))
            }, else return None),
            KeyLocation::Slot(_) => return None,
            KeyLocation::Absent => self.parameters.fresh_packed?,
        };
        let LimitParameters { limit, epoch, .. } = &*self.parameters;
        let decision = limit.decide_packed(&mut charged, *epoch, now, cost)?;
        Some(PackedDecision { decision, charged })
    }

    /// Stores what [`decide_packed`](Self::decide_packed) returned for a key at this location. There is capacity for
    /// the key.
    #[inline]
    pub(crate) fn charge_packed(
        &mut self,
        (key, location): (Fingerprint, KeyLocation),
        charged: [u64; 3],
        now: Timestamp,
        capacity: &Capacity,
    ) {
        match location {
            KeyLocation::Row(at) => self.write_row(at, charged),
            _ => self.insert_row(key, charged, now, capacity),
        }
    }

    fn write_row(&mut self, at: usize, packed: [u64; 3]) {
        each_width!(&mut self.rows, rows => {
            let words = &mut rows.row_mut(at)[2..];
            words.copy_from_slice(&packed[..words.len()]);
        }, else ());
    }

    /// Decides and charges a request for a key at this location. Returns `None` if the store has no capacity for a new
    /// key, or if the key needs a slot.
    #[inline]
    pub(super) fn check_packed(
        &mut self,
        (key, location): (Fingerprint, KeyLocation),
        now: Timestamp,
        cost: u64,
        capacity: &Capacity,
    ) -> Option<Decision> {
        let KeyLocation::Row(at) = location else {
            let is_new = location == KeyLocation::Absent;
            return if is_new { self.check_new(key, now, cost, capacity) } else { None };
        };
        let LimitParameters { limit, epoch, .. } = &*self.parameters;
        each_width!(&mut self.rows, rows => {
            let row = rows.row_mut(at);
            let mut packed = packed_of(row);
            let decision = limit.decide_packed(&mut packed, *epoch, now, cost)?;
            *row = row_of(key, packed);
            Some(decision)
        }, else None)
    }

    fn check_new(
        &mut self,
        key: Fingerprint,
        now: Timestamp,
        cost: u64,
        capacity: &Capacity,
    ) -> Option<Decision> {
        let (decision, charged) = match self.decide_packed(KeyLocation::Absent, now, cost) {
            Some(PackedDecision { decision, charged }) => (decision, Some(charged)),
            None if matches!(self.rows, PackedRows::None) => return None,
            None => (self.parameters.limit.peek(&self.parameters.fresh, now, cost), None),
        };
        if cost > 0 && decision.is_deny() {
            // A denial charges nothing, so the key may stay absent.
            return Some(decision);
        }
        if !self.reserve_key(now, capacity) {
            // If the store is full, `peek` reads the overflow state too.
            return None;
        }
        let Some(charged) = charged.filter(|_| cost > 0) else {
            capacity.leave(1);
            return (cost == 0).then_some(decision);
        };
        self.insert_row(key, charged, now, capacity);
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
        self.observe(key, (now, cost), decision, name);
    }

    /// Passes a decision to the observers.
    #[inline]
    pub(crate) fn observe(
        &mut self,
        key: Fingerprint,
        request: (Timestamp, u64),
        decision: &Decision,
        name: impl Fn() -> KeyName,
    ) {
        if let Some(observers) = &mut self.observers {
            observers.observe(&self.parameters.limit, key, request, decision, name);
        }
    }

    /// Passes a decision to the sketches only: the auditor cannot follow reservations, which may be cancelled.
    pub(super) fn observe_in_sketches(
        &mut self,
        (key, name): (Fingerprint, &KeyName),
        now: Timestamp,
        verdict: Verdict,
    ) {
        if let Some(sketches) = self.sketches() {
            sketches.observe(key, now, matches!(verdict, Verdict::Deny(_)), || name.clone());
        }
    }

    pub(super) fn auditor(&mut self) -> Option<&mut Auditor> {
        self.observers.as_mut()?.auditor.as_mut()
    }

    pub(super) fn sketches(&mut self) -> Option<&mut Sketches> {
        self.observers.as_mut()?.sketches.as_mut()
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
        (key, location): (Fingerprint, KeyLocation),
        now: Timestamp,
        work: impl FnOnce(&mut Slot, &Limit, Timestamp) -> R,
    ) -> (R, bool) {
        if let KeyLocation::Slot(index) = location {
            let result = work(&mut self.slots[index], &self.parameters.limit, now);
            self.settle(index);
            return (result, false);
        }
        let mut slot = Slot::new(self.state(location));
        let limit = &self.parameters.limit;
        let result = work(&mut slot, limit, now);
        let is_new = location == KeyLocation::Absent;
        if is_new && slot.is_idle(&mut DecisionContext::new(limit, now, &mut WakeList::default())) {
            return (result, false);
        }
        match (self.parameters.pack(&slot), location) {
            (Some(packed), KeyLocation::Row(at)) => self.write_row(at, packed),
            (None, KeyLocation::Row(at)) => {
                each_width!(&mut self.rows, rows => { rows.remove(at); }, else ());
                self.slots.insert(key, slot);
            }
            (packed, _) => self.put(key, slot, packed),
        }
        (result, is_new)
    }

    /// Runs `work`, which only reads, on a slot or on a copy of a row. In a slot, what has expired may change.
    pub(crate) fn look<R>(
        &mut self,
        location: KeyLocation,
        now: Timestamp,
        work: impl FnOnce(&mut Slot, &Limit, Timestamp) -> R,
    ) -> R {
        if let KeyLocation::Slot(index) = location {
            return work(&mut self.slots[index], &self.parameters.limit, now);
        }
        work(&mut Slot::new(self.state(location)), &self.parameters.limit, now)
    }

    /// Returns the state of a key that has no slot.
    fn state(&self, location: KeyLocation) -> State {
        match location {
            KeyLocation::Row(at) => each_width!(&self.rows, rows => {
                self.parameters.unpack(&rows.row(at)[2..])
            }, else self.parameters.fresh.clone()),
            _ => self.parameters.fresh.clone(),
        }
    }

    /// Stores a new key: as a row if its state can be packed, else as a slot.
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
    fn settle(&mut self, index: usize) {
        if matches!(self.rows, PackedRows::None) {
            return;
        }
        let packed = self.parameters.pack(&self.slots[index]);
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

fn packed_of<const N: usize>(row: &Row<N>) -> [u64; 3] {
    let mut packed = [0; 3];
    packed[..N - 2].copy_from_slice(&row[2..]);
    packed
}

fn row_of<const N: usize>(key: Fingerprint, packed: [u64; 3]) -> Row<N> {
    let mut row = [0; N];
    row[0] = key.high;
    row[1] = key.low;
    row[2..].copy_from_slice(&packed[..N - 2]);
    row
}

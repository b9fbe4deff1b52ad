//! A part of the keys under one lock: packed rows for most, slots for keys that need one.
//!
//! Always   A key is a row or a slot, never both. It is a slot if a request waits for it, if it has
//!          permits out, or if its state does not fit into a row; a slot that no longer needs to be one
//!          becomes a row again. Sweeps evict keys at rest, and never a key in debt.

mod change;
mod sweep;

pub(super) use change::RuleChange;
pub(super) use sweep::{CLOCK_SKEW_MAX, SweepProgress};

use super::LimitParameters;
use super::hot::{HotCells, MOVED};
use super::observers::Observers;
use super::overflow::Capacity;
use super::rows::ArenaSlot;
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

/// Fields that every decision needs come first, so that a contended shard is few cache lines.
#[repr(C)]
pub(crate) struct Shard {
    pub(super) parameters: Arc<LimitParameters>,
    /// The latest time of a decision.
    pub(super) seen: Timestamp,
    /// The key that was asked about last, by its low word, and how often since.
    last: u64,
    times: u32,
    /// The number of decisions until the next look for keys at rest.
    until_sweep: u32,
    pub(super) observers: Option<Box<Observers>>,
    pub(super) counters: Counters,
    rows: PackedRows,
    /// Where the next look begins: in the rows, and in the slots.
    cursor: usize,
    slot_cursor: usize,
    slots: Slots,
    /// Fewer rows than this are kept for a while though they are at rest.
    rows_kept: usize,
    /// Keys that a hot cell has.
    lent: Vec<Fingerprint>,
    arena_slot: ArenaSlot,
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

/// A copy of all keys of a shard.
pub(crate) struct ShardCopy {
    /// How many words of state a row has, after two of fingerprint.
    pub(crate) words: usize,
    pub(crate) rows: Vec<u64>,
    pub(crate) slots: Vec<(Fingerprint, Vec<u64>)>,
}

/// Rows, as wide as the rule's states.
enum PackedRows {
    /// States of no fixed size: every key is a slot.
    None,
    One(Rows<3>),
    Two(Rows<4>),
    Three(Rows<5>),
}

/// Does the same with rows of every width.
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

/// How many words of arena a shard with this many rows needs.
pub(super) fn arena_words(packed_words: usize, len: usize) -> usize {
    match packed_words {
        0 => 0,
        1 => Rows::<3>::arena_words(len),
        2 => Rows::<4>::arena_words(len),
        _ => Rows::<5>::arena_words(len),
    }
}

impl PackedRows {
    fn new(words: usize, arena_slot: &ArenaSlot) -> Self {
        let seed = arena_slot.index;
        match words {
            0 => Self::None,
            1 => Self::One(Rows::new(seed, arena_slot.clone())),
            2 => Self::Two(Rows::new(seed, arena_slot.clone())),
            _ => Self::Three(Rows::new(seed, arena_slot.clone())),
        }
    }

    fn copy_to(&self, copy: &mut Vec<u64>) {
        copy.clear();
        each_width!(self, rows => {
            copy.reserve(rows.words());
            rows.iter().for_each(|row| copy.extend_from_slice(row));
        }, else ());
    }
}

/// A key that is requested this often in a row is lent to a cell. Under shuttle no key is requested so often.
const TIMES_IN_A_ROW: u32 = if cfg!(tidegate_shuttle) { 1 } else { 32 };

impl Shard {
    pub(super) fn new(
        parameters: Arc<LimitParameters>,
        arena_slot: ArenaSlot,
        rows_kept: usize,
        observers: Option<Box<Observers>>,
    ) -> Self {
        Self {
            rows: PackedRows::new(parameters.limit.packed_words(), &arena_slot),
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
            arena_slot,
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

    /// Where the rows are, see [`Rows::location`].
    pub(super) fn location(&self) -> (usize, usize, usize) {
        each_width!(&self.rows, rows => rows.location(), else (0, 0, 0))
    }

    /// Takes from a bucket in a row without unpacking it, or leaves it to others: also when the time that
    /// was read before the lock is no longer the latest, so that only the clock itself can go back. Tells
    /// what the bucket is then, and whether there was enough in it.
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
        let full_at = &mut rows.get_mut(key)?[2];
        // That includes what was lent to a cell.
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

    /// The same with the bucket of a key that is not here, because it is new or was at rest: it is put in, if it is
    /// admitted and there is capacity.
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
        let [fresh, ..] = self.parameters.fresh_packed?;
        if rows.find(key).is_ok() || bucket.is_ahead_of_clock(fresh, ticks) {
            return None;
        }
        let after = bucket.take(fresh, ticks, cost).filter(|_| capacity.enter())?;
        self.seen = now;
        self.counters.allowed += 1;
        self.insert_row(key, [after, 0, 0], now, capacity);
        Some((after, true))
    }

    /// Returns whether this key has been requested so often in a row that it is worth a cell.
    #[inline]
    pub(super) fn is_asked_again(&mut self, key: Fingerprint) -> bool {
        if self.last == key.low {
            self.times = self.times.wrapping_add(1);
            return self.times.is_multiple_of(TIMES_IN_A_ROW);
        }
        (self.last, self.times) = (key.low, 0);
        false
    }

    /// Lends a key that has just been decided about to a cell.
    pub(super) fn lend(&mut self, hot: &HotCells, key: Fingerprint, ticks: u64) {
        let PackedRows::One(rows) = &mut self.rows else { return };
        let Ok(at) = rows.find(key) else { return };
        let full_at = &mut rows.row_mut(at)[2];
        if hot.lend(key, *full_at, ticks) {
            *full_at = MOVED;
            self.lent.push(key);
        }
    }

    /// Takes back what was lent, for operations on all keys.
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
            // Nothing was charged: the key is as fresh as before.
            return Some(decision);
        }
        if !self.reserve_key(now, capacity) {
            // A request of cost 0 reads the overflow state too.
            return None;
        }
        let Some(charged) = charged.filter(|_| cost > 0) else {
            capacity.leave(1);
            return (cost == 0).then_some(decision);
        };
        self.insert_row(key, charged, now, capacity);
        Some(decision)
    }

    /// Counts one more key, if there is room for it or somebody at rest makes capacity.
    pub(crate) fn reserve_key(&mut self, now: Timestamp, capacity: &Capacity) -> bool {
        if capacity.enter() {
            return true;
        }
        self.sweep(now, self.parameters.looked_at_when_full(self.len()), capacity);
        capacity.enter()
    }

    /// Puts a new key into the rows, for which there is capacity.
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

    /// Counts a decision, and shows it to the observers.
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

    /// Shows a decision to the observers.
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

    /// Shows a decision to the sketches only: a reservation may be given back, which the auditor does not see.
    pub(super) fn observe_in_sketches(
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

    /// Looks at some keys once in [`DECISIONS_PER_SWEEP`] decisions. Returns whether this was such a decision.
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
            self.sweep_now_and_then(now, hot, capacity);
        }
        is_time
    }

    /// Works on the slot of a key at this location, or on a slot made of its packed state. A new key is stored if it is
    /// not at rest afterwards; there is capacity for it. Returns whether it was stored.
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
        if is_new && slot.is_idle(limit, now, &mut WakeList::default()) {
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

    /// Works on the slot of a key at this location, or on a copy of its packed state, which is not stored.
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

    /// Makes a row of a slot that no longer needs to be one.
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

    /// All keys, as they are at this moment: the rows as they lie, and the states of the slots.
    pub(crate) fn copy(&self) -> ShardCopy {
        let words = self.parameters.limit.packed_words();
        let mut rows = Vec::new();
        self.rows.copy_to(&mut rows);
        let slot = |(key, slot): (&Fingerprint, &Slot)| {
            (*key, self.parameters.limit.write_state(&slot.state))
        };
        ShardCopy { words, rows, slots: self.slots.iter().map(slot).collect() }
    }

    /// Makes room for this many rows.
    pub(super) fn reserve(&mut self, keys: usize) {
        each_width!(&mut self.rows, rows => rows.reserve(keys), else ());
    }

    /// Takes in a key that was copied, whether there is room or not: what is owed stays owed.
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

//! A part of the keys under one lock: packed rows for most, whole slots for those that need one.
//!
//! Always   A key is a row or a slot, never both. It is a slot if somebody waits for it, if it has
//!          permits out, or if its state does not fit into a row; a slot that no longer needs to be one
//!          becomes a row again. A key at rest is forgotten when it is come across, a key in debt never.

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

/// What every decision needs comes first, so that a contended shard is few lines of memory.
#[repr(C)]
pub(crate) struct Shard {
    pub(super) parameters: Arc<LimitParameters>,
    /// The latest time that anybody has brought here.
    pub(super) seen: Timestamp,
    /// The key that was asked about last, by its low word, and how often since.
    last: u64,
    times: u32,
    /// So many decisions until the next look for keys at rest.
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

/// What a shard held at one moment.
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

/// A key that is asked about so often in a row is lent to a cell. Under shuttle nobody asks that often.
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
        each_width!(&self.rows, rows => rows.find(key).is_ok(), else false)
            || self.slots.contains_key(&key)
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

    /// Whether this key has been asked about so often in a row that it is worth a cell.
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

    /// Takes back what was lent: for whoever has to see all keys.
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

    /// Decides about a key that nobody waits for; `None` if there is room for no more keys, or if it
    /// takes a slot.
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
            // Nothing was charged: the key is as fresh as before.
            return Some(decision);
        }
        if !self.reserve_key(now, capacity) {
            // Also who only looks finds what all share for whom there is no capacity.
            return None;
        }
        let Some(packed) = packed.filter(|_| cost > 0) else {
            capacity.leave(1);
            return (cost == 0).then_some(decision);
        };
        self.insert_row(key, packed, now, capacity);
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

    /// Counts a decision, and lets those hear of it who asked to.
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

    /// Lets those hear of a decision who asked to.
    #[inline]
    pub(super) fn tell(
        &mut self,
        key: Fingerprint,
        asked: (Timestamp, u64),
        decision: &Decision,
        name: impl Fn() -> KeyName,
    ) {
        if let Some(observers) = &mut self.observers {
            observers.hear(&self.parameters.limit, key, asked, decision, name);
        }
    }

    /// Lets only the sketches hear: what was booked may be given back, of which the auditor knows nothing.
    pub(super) fn tell_sketches(
        &mut self,
        (key, name): (Fingerprint, &KeyName),
        now: Timestamp,
        verdict: Verdict,
    ) {
        if let Some(sketches) =
            self.observers.as_mut().and_then(|observers| observers.sketches.as_mut())
        {
            sketches.hear(key, now, matches!(verdict, Verdict::Deny(_)), || name.clone());
        }
    }

    /// The same of what was not decided here, and cost nothing: it is not counted.
    pub(crate) fn hear(
        &mut self,
        key: Fingerprint,
        now: Timestamp,
        decision: &Decision,
        name: impl Fn() -> KeyName,
    ) {
        self.tell(key, (now, 0), decision, name);
    }

    /// Every now and then, whoever decides looks at some keys too. Tells whether this was such a time.
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

    /// Works on one key, whatever it takes. A key that is not known is remembered if it is not at rest
    /// afterwards; there is room for it, or it is worked on and forgotten. Tells whether it was put in.
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

    /// Works on a copy of one key, for looking only. Only what the passing of time has done stays.
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

    /// The state of a key that is a row.
    fn state(&self, key: Fingerprint) -> Option<State> {
        each_width!(&self.rows, rows => {
            let at = rows.find(key).ok()?;
            Some(self.parameters.unpack(&rows.row(at)[2..]))
        }, else None)
    }

    /// Writes back what has been worked on, or makes a slot of it.
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

    /// Keeps a key that is neither yet: as a row, if it can be packed, else as a slot.
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

    /// Makes a row again of a slot that no longer needs to be one.
    fn settle(&mut self, key: Fingerprint) {
        let Some((index, _, slot)) = self.slots.get_full(&key) else { return };
        let packed = self.parameters.pack(slot);
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

    /// Makes room for so many rows.
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

fn row_of<const N: usize>(key: Fingerprint, packed: [u64; 3]) -> Row<N> {
    let mut row = [0; N];
    row[0] = key.high;
    row[1] = key.low;
    row[2..].copy_from_slice(&packed[..N - 2]);
    row
}

//! Eviction of idle keys, a few at a time.
//!
//! Always   A request that inserts a key sweeps several others, so that idle keys are evicted before the rows have to
//!          grow. A key in debt is never evicted.
//! Bound    A sweep holds the shard's lock for at most [`SWEEP_PART`] keys, except if the store is full.

use super::{Capacity, HotCells, PackedRows, Row, Shard, each_width};
use crate::slot::DecisionContext;
use crate::sync::wake::WakeList;
use tidegate_core::{Span, Timestamp};

/// A key is evicted only after it has been idle for the tolerated clock skew. Otherwise it would be admitted as a new key
/// whenever the clock steps back a little.
pub(in crate::store::memory) const CLOCK_SKEW_MAX: Span = Span::from_millis(1);
/// How long idle rows are kept while there are few: to find the row of a client that comes back is faster than to insert
/// it again.
const KEPT: Span = Span::from_secs(1);
/// A shard with fewer keys than this is not swept while there is capacity.
const SWEEP_FROM: usize = 8;
/// The number of keys that a request sweeps when it inserts one, so that idle keys are gone before the rows have to grow.
const SWEEP_PER_NEW_KEY: usize = 8;
/// A shard is swept once in this number of decisions, also without new keys.
pub(super) const DECISIONS_PER_SWEEP: u32 = 256;
const SWEEP_PERIODIC: usize = 64;
/// The number of keys that a sweep of the whole store passes before it releases the lock.
const SWEEP_PART: usize = 512;

/// How far a sweep of the whole store has come in one shard.
#[derive(Clone, Default)]
pub(in crate::store::memory) struct SweepProgress {
    row: usize,
    slot: usize,
    are_rows_done: bool,
    pub(in crate::store::memory) is_over: bool,
}

impl Shard {
    pub(in crate::store::memory) fn sweep_for_new_key(
        &mut self,
        now: Timestamp,
        capacity: &Capacity,
    ) {
        if self.len() >= SWEEP_FROM {
            self.sweep_by(self.idle_before(now), SWEEP_PER_NEW_KEY, capacity);
        }
    }

    #[cold]
    pub(super) fn sweep_periodically(
        &mut self,
        now: Timestamp,
        hot: &HotCells,
        capacity: &Capacity,
    ) {
        self.take_back(hot);
        self.until_sweep = DECISIONS_PER_SWEEP;
        if self.len() >= SWEEP_FROM {
            self.sweep_by(self.idle_before(now), SWEEP_PERIODIC, capacity);
        }
    }

    /// Returns the time since which a key has to be idle to be evicted while there is capacity.
    pub(super) fn idle_before(&self, now: Timestamp) -> Timestamp {
        let rows = each_width!(&self.rows, rows => rows.len(), else usize::MAX);
        now - if rows < self.rows_kept { KEPT } else { CLOCK_SKEW_MAX }
    }

    pub(super) fn forget(&mut self, count: usize, capacity: &Capacity) {
        self.counters.evicted += count as u64;
        capacity.leave(count);
    }

    /// Evicts the idle keys among the next `budget` keys, starting where the last sweep ended and continuing with the
    /// first key after the last one. Returns how many were evicted.
    pub(in crate::store::memory) fn sweep(
        &mut self,
        now: Timestamp,
        budget: usize,
        capacity: &Capacity,
    ) -> usize {
        self.sweep_by(now - CLOCK_SKEW_MAX, budget, capacity)
    }

    fn sweep_by(&mut self, now: Timestamp, budget: usize, capacity: &Capacity) -> usize {
        let from = self.cursor;
        let left = budget.saturating_sub(self.array_len().saturating_sub(from)).min(from);
        let (mut next, mut dropped) = self.sweep_rows(from, now, budget);
        if next == 0 && left > 0 {
            let (after, more) = self.sweep_rows(0, now, left);
            (next, dropped) = (after, dropped + more);
        }
        self.cursor = if next < self.array_len() { next } else { 0 };
        let is_inside = self.slot_cursor < self.slots.len() && budget < self.slots.len();
        let from = if is_inside { self.slot_cursor } else { 0 };
        let (next, more) = self.sweep_slots(from, now, budget);
        self.slot_cursor = next;
        self.forget(dropped + more, capacity);
        dropped + more
    }

    /// Evicts the idle keys in the next part of the shard. Keys may be decided between the parts: a key that moves across
    /// their border is passed by a later sweep.
    pub(in crate::store::memory) fn sweep_part(
        &mut self,
        progress: &mut SweepProgress,
        now: Timestamp,
        capacity: &Capacity,
    ) -> usize {
        let (now, mut dropped) = (now - CLOCK_SKEW_MAX, 0);
        if !progress.are_rows_done {
            let (next, count) = self.sweep_rows(progress.row, now, SWEEP_PART);
            (progress.row, progress.are_rows_done) = (next, next == 0);
            dropped += count;
        }
        let (next, count) = self.sweep_slots(progress.slot, now, SWEEP_PART);
        progress.slot = next;
        progress.is_over = progress.are_rows_done && next >= self.slots.len();
        self.forget(dropped + count, capacity);
        dropped + count
    }

    /// Returns the length of the rows' array, empty rows included.
    pub(in crate::store::memory) fn array_len(&self) -> usize {
        each_width!(&self.rows, rows => rows.array_len(), else 0)
    }

    /// Returns the index at which to continue, 0 after the last one, and how many were dropped.
    fn sweep_rows(&mut self, from: usize, now: Timestamp, budget: usize) -> (usize, usize) {
        let is_idle = self.parameters.idle_test(now);
        each_width!(&mut self.rows, rows => {
            let (next, dropped) = rows.sweep(from, budget, |row: &mut Row<_>| !is_idle(&row[2..]));
            if next == 0 {
                rows.shrink();
            }
            (next, dropped)
        }, else (0, 0))
    }

    /// Returns the index at which to continue, and how many were dropped. The last slot moves to the index of one that is
    /// dropped.
    fn sweep_slots(&mut self, from: usize, now: Timestamp, budget: usize) -> (usize, usize) {
        let (mut wakes, mut at, mut dropped) = (WakeList::default(), from, 0);
        for _ in 0..budget {
            let Some((_, slot)) = self.slots.get_index_mut(at) else { break };
            if slot.is_idle(&mut DecisionContext::new(&self.parameters.limit, now, &mut wakes)) {
                self.slots.swap_remove_index(at);
                dropped += 1;
            } else {
                at += 1;
            }
        }
        if self.slots.len() < self.slots.capacity() / 4 {
            self.slots.shrink_to(self.slots.len() * 2);
        }
        (at, dropped)
    }
}

//! Forgetting keys at rest, a few at a time.
//!
//! Always   A new key makes its shard look at a few more keys, so that keys at rest go before the rows have to grow.
//!          A key in debt is never forgotten.
//! Bound    No sweep holds the shard for more than [`SWEEP_PART`] keys, except that of a full store.

use super::{Capacity, HotCells, PackedRows, Row, Shard, each_width};
use crate::sync::wake::WakeList;
use tidegate_core::{Span, Timestamp};

/// A key is forgotten only once it has been at rest for as long as the clock skew that is absorbed: else it would
/// be as good as new whenever the clock goes back a little.
pub(in crate::store::memory) const CLOCK_SKEW_MAX: Span = Span::from_millis(1);
/// A client that has recovered and comes again soon is found sooner than it is put in anew. So a row is kept for so long,
/// while there are few.
const KEPT: Span = Span::from_secs(1);
/// Fewer keys than this are not worth looking through, while there is capacity.
const SWEEP_FROM: usize = 8;
/// How many keys are looked at when a new one comes, so that those at rest are gone before the rows
/// have to grow for it.
const SWEEP_PER_NEW_KEY: usize = 8;
/// Once in this many decisions some keys are looked at.
pub(super) const DECISIONS_PER_SWEEP: u32 = 256;
const SWEEP_NOW_AND_THEN: usize = 64;
/// How many keys are looked at under one lock by a sweep of all keys, while requests wait.
const SWEEP_PART: usize = 512;

/// The progress of a sweep of all keys of a shard.
#[derive(Clone, Default)]
pub(in crate::store::memory) struct SweepProgress {
    row: usize,
    slot: usize,
    are_rows_seen: bool,
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
    pub(super) fn sweep_now_and_then(
        &mut self,
        now: Timestamp,
        hot: &HotCells,
        capacity: &Capacity,
    ) {
        self.take_back(hot);
        self.until_sweep = DECISIONS_PER_SWEEP;
        if self.len() >= SWEEP_FROM {
            self.sweep_by(self.idle_before(now), SWEEP_NOW_AND_THEN, capacity);
            each_width!(&mut self.rows, rows => rows.follow(), else ());
        }
    }

    /// Returns the time since which a key must be at rest to be forgotten, while there is capacity.
    pub(super) fn idle_before(&self, now: Timestamp) -> Timestamp {
        let rows = each_width!(&self.rows, rows => rows.len(), else usize::MAX);
        now - if rows < self.rows_kept { KEPT } else { CLOCK_SKEW_MAX }
    }

    pub(super) fn forget(&mut self, count: usize, capacity: &Capacity) {
        self.counters.evicted += count as u64;
        capacity.leave(count);
    }

    /// Looks at some keys, from where the last look ended, and forgets those at rest. Returns how many. After
    /// the last key come the first ones, so that a large enough budget covers all.
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
        let left = budget.saturating_sub(self.places().saturating_sub(from)).min(from);
        let (mut next, mut dropped) = self.sweep_rows(from, now, budget);
        if next == 0 && left > 0 {
            let (after, more) = self.sweep_rows(0, now, left);
            (next, dropped) = (after, dropped + more);
        }
        self.cursor = if next < self.places() { next } else { 0 };
        let is_inside = self.slot_cursor < self.slots.len() && budget < self.slots.len();
        let from = if is_inside { self.slot_cursor } else { 0 };
        let (next, more) = self.sweep_slots(from, now, budget);
        self.slot_cursor = next;
        self.forget(dropped + more, capacity);
        dropped + more
    }

    /// The same with all keys, a part at a time. Requests may be decided in between: a key that moves over the end of a
    /// part meanwhile is seen by another sweep.
    pub(in crate::store::memory) fn sweep_part(
        &mut self,
        look: &mut SweepProgress,
        now: Timestamp,
        capacity: &Capacity,
    ) -> usize {
        let (now, mut dropped) = (now - CLOCK_SKEW_MAX, 0);
        if !look.are_rows_seen {
            let (next, count) = self.sweep_rows(look.row, now, SWEEP_PART);
            (look.row, look.are_rows_seen) = (next, next == 0);
            dropped += count;
        }
        let (next, count) = self.sweep_slots(look.slot, now, SWEEP_PART);
        look.slot = next;
        look.is_over = look.are_rows_seen && next >= self.slots.len();
        self.forget(dropped + count, capacity);
        dropped + count
    }

    pub(in crate::store::memory) fn places(&self) -> usize {
        each_width!(&self.rows, rows => rows.places(), else 0)
    }

    /// Where to go on, 0 after the last one, and how many were dropped.
    fn sweep_rows(&mut self, from: usize, now: Timestamp, budget: usize) -> (usize, usize) {
        let is_idle = self.parameters.idle_test(now);
        each_width!(&mut self.rows, rows => {
            let (next, dropped) = rows.sweep(from, budget, |row: &Row<_>| !is_idle(&row[2..]));
            if next == 0 {
                rows.shrink();
            }
            (next, dropped)
        }, else (0, 0))
    }

    /// Where to go on, and how many were dropped. The last slot takes the place of one that is dropped, so all are
    /// seen from the first one on.
    fn sweep_slots(&mut self, from: usize, now: Timestamp, budget: usize) -> (usize, usize) {
        let (mut wakes, mut at, mut dropped) = (WakeList::default(), from, 0);
        for _ in 0..budget {
            let Some((_, slot)) = self.slots.get_index_mut(at) else { break };
            if slot.is_idle(&self.parameters.limit, now, &mut wakes) {
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

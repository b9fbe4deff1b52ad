//! Hot cells: buckets of keys that many threads use at the same time, decided in one atomic word without the lock.
//!
//! A lock moves from core to core with everything that it guards. A key that is decided many times in a row, or whose lock
//! is contended, is therefore lent to one of a few cells, which are one cache line each and decide as a gate does. An
//! operation that needs the shard for more than a quick decision moves the key back first.
//!
//! State    The key, and `full_at` as in its row; [`MOVED`] while the cell is free.
//! Always   A cell changes its key only under a claim, and only when all its earlier values lie in the past: the values
//!          of a later key are greater than those of an earlier one. So a thread that reads a value, then the key, and
//!          then swaps that value, swaps it for that key. (A key in debt keeps other keys from its cell. They use the
//!          lock.)
//! Gain     24 % of the time of a decision about one hot key on one thread, and what lets two threads meet their
//!          target, shown by `cargo xtask bench --bench keyed -- hot`.

use super::{Fingerprint, prefetch};
use crate::sync::thread_number::{THREAD_NUMBERS, thread_number};
use crate::sync::{AtomicBool, AtomicU64, Backoff, Ordering};
use std::sync::OnceLock;
use tidegate_core::NarrowBucket;

/// In a cell: it is free. In a row: its value is in a cell.
pub(super) const MOVED: u64 = u64::MAX;
/// The number of cells. A fingerprint belongs to one of them. They are allocated when the first one is needed.
const CELLS: usize = 256;

#[derive(Default)]
pub(super) struct HotCells {
    table: OnceLock<CellTable>,
}

struct CellTable {
    /// A bit for each cell that is lent, so that requests of other keys need not read the cell.
    taken: [AtomicU64; CELLS / 64],
    cells: Box<[Cell]>,
    stripes: Box<[Stripe]>,
    /// Counts for threads that have no stripe.
    others: Stripe,
}

#[repr(align(64))]
#[derive(Default)]
pub(super) struct Cell {
    full_at: AtomicU64,
    high: AtomicU64,
    low: AtomicU64,
    /// The greatest value it has had, while it is free.
    greatest: AtomicU64,
    is_claimed: AtomicBool,
}

/// Counts the decisions of one thread. Processors load cache lines in pairs.
#[repr(align(128))]
#[derive(Default)]
struct Stripe {
    allowed: AtomicU64,
    denied: AtomicU64,
}

/// Returns the index of a key's cell, from the low word: the high word chooses the shard and the row.
#[inline]
fn index(key: Fingerprint) -> usize {
    (key.low >> 56) as usize % CELLS
}

impl CellTable {
    fn new() -> Self {
        let cell = |_| Cell { full_at: AtomicU64::new(MOVED), ..Cell::default() };
        Self {
            taken: Default::default(),
            cells: (0..CELLS).map(cell).collect(),
            stripes: (0..THREAD_NUMBERS).map(|_| Stripe::default()).collect(),
            others: Stripe::default(),
        }
    }

    #[inline]
    fn cell(&self, key: Fingerprint) -> &Cell {
        &self.cells[index(key)]
    }

    /// Returns whether the key's cell may be lent.
    #[inline]
    fn is_taken(&self, key: Fingerprint) -> bool {
        let index = index(key);
        self.taken[index / 64].load(Ordering::Relaxed) >> (index % 64) & 1 == 1
    }

    fn mark(&self, key: Fingerprint, is_taken: bool) {
        let (word, bit) = (&self.taken[index(key) / 64], 1 << (index(key) % 64));
        if is_taken {
            word.fetch_or(bit, Ordering::Relaxed);
        } else {
            word.fetch_and(!bit, Ordering::Relaxed);
        }
    }

    /// Counts a decision.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "measured: a call costs one or two ns of forty")]
    fn count(&self, counter: impl Fn(&Stripe) -> &AtomicU64) {
        match self.stripes.get(thread_number()) {
            Some(own) => {
                // No other thread writes it, so it needs no atomic addition, which would cost as much as the decision.
                let counter = counter(own);
                counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            }
            None => {
                counter(&self.others).fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

/// A cell that may have the key.
#[derive(Clone, Copy)]
pub(super) struct CellRef<'a> {
    table: &'a CellTable,
    cell: &'a Cell,
}

impl HotCells {
    /// Returns the cell that may have a key, and prefetches it: it may be in another core's cache, and arrives while the
    /// caller reads the clock.
    #[inline]
    pub(super) fn find(&self, key: Fingerprint) -> Option<CellRef<'_>> {
        let table = self.table.get()?;
        if !table.is_taken(key) {
            return None;
        }
        let cell = table.cell(key);
        prefetch::to_write(cell);
        Some(CellRef { table, cell })
    }
}

impl CellRef<'_> {
    /// Takes from the key's bucket. Returns its new value, and whether there was enough in the bucket; or `None` if the
    /// cell does not have the key, or if the decision needs the lock.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "measured: a call costs one or two ns of forty")]
    pub(super) fn take(
        self,
        bucket: &NarrowBucket,
        key: Fingerprint,
        now: u64,
        cost: u64,
    ) -> Option<(u64, bool)> {
        match self.attempt(bucket, key, now, cost) {
            Attempt::Lost => self.take_contended(bucket, key, now, cost),
            Attempt::Done(full_at, was_enough) => Some((full_at, was_enough)),
            Attempt::Absent => None,
        }
    }

    #[cold]
    fn take_contended(
        self,
        bucket: &NarrowBucket,
        key: Fingerprint,
        now: u64,
        cost: u64,
    ) -> Option<(u64, bool)> {
        let mut backoff = Backoff::new();
        loop {
            backoff.pause();
            match self.attempt(bucket, key, now, cost) {
                Attempt::Lost => {}
                Attempt::Done(full_at, was_enough) => return Some((full_at, was_enough)),
                Attempt::Absent => return None,
            }
        }
    }

    #[inline(always)]
    #[expect(clippy::inline_always, reason = "measured: a call costs one or two ns of forty")]
    fn attempt(self, bucket: &NarrowBucket, key: Fingerprint, now: u64, cost: u64) -> Attempt {
        let Self { table, cell } = self;
        let full_at = cell.full_at.load(Ordering::Acquire);
        // Read after the value, see above.
        let has_key = cell.high.load(Ordering::Acquire) == key.high
            && cell.low.load(Ordering::Acquire) == key.low;
        if full_at == MOVED || !has_key || bucket.is_ahead_of_clock(full_at, now) {
            return Attempt::Absent;
        }
        let Some(after) = bucket.take(full_at, now, cost) else {
            if cell.full_at.load(Ordering::Acquire) != full_at {
                // It may have been the value of an earlier key.
                return Attempt::Lost;
            }
            table.count(|stripe| &stripe.denied);
            return Attempt::Done(full_at, false);
        };
        let (swap, look) = (Ordering::AcqRel, Ordering::Relaxed);
        if cell.full_at.compare_exchange_weak(full_at, after, swap, look).is_err() {
            return Attempt::Lost;
        }
        table.count(|stripe| &stripe.allowed);
        Attempt::Done(after, true)
    }
}

/// The result of an attempt to take from a cell.
enum Attempt {
    /// The cell does not have the key, or the decision needs the lock.
    Absent,
    /// Another thread has changed the cell.
    Lost,
    /// The bucket's new value, and whether there was enough in it.
    Done(u64, bool),
}

impl HotCells {
    /// Lends a cell to a key, if its cell is free and all values that it had lie in the past. The caller holds the lock of
    /// the key's shard, and marks its row as [`MOVED`].
    pub(super) fn lend(&self, key: Fingerprint, full_at: u64, now: u64) -> bool {
        let table = self.table.get_or_init(CellTable::new);
        let cell = table.cell(key);
        let claim =
            cell.is_claimed.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed);
        if claim.is_err() {
            return false;
        }
        let is_same_key = cell.high.load(Ordering::Relaxed) == key.high
            && cell.low.load(Ordering::Relaxed) == key.low;
        if !is_same_key && cell.greatest.load(Ordering::Relaxed) >= now {
            cell.is_claimed.store(false, Ordering::Release);
            return false;
        }
        cell.high.store(key.high, Ordering::Release);
        cell.low.store(key.low, Ordering::Release);
        // A full bucket gets the current time: a value that no key had before.
        cell.full_at.store(full_at.max(now), Ordering::Release);
        table.mark(key, true);
        true
    }

    /// Frees the key's cell and returns its value. The caller holds the lock of the key's shard.
    pub(super) fn take_back(&self, key: Fingerprint) -> u64 {
        let table = self.table.get_or_init(CellTable::new);
        let cell = table.cell(key);
        let full_at = cell.full_at.swap(MOVED, Ordering::AcqRel);
        table.mark(key, false);
        let greatest = cell.greatest.load(Ordering::Relaxed).max(full_at);
        cell.greatest.store(greatest, Ordering::Relaxed);
        cell.is_claimed.store(false, Ordering::Release);
        full_at
    }

    pub(super) fn counts(&self) -> (u64, u64) {
        let Some(table) = self.table.get() else { return (0, 0) };
        let sum = |count: fn(&Stripe) -> &AtomicU64| {
            let stripes = table.stripes.iter().chain([&table.others]);
            stripes.map(|stripe| count(stripe).load(Ordering::Relaxed)).sum()
        };
        (sum(|stripe| &stripe.allowed), sum(|stripe| &stripe.denied))
    }
}

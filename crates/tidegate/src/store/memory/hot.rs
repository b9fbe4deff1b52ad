//! Buckets that many threads ask about at the same time: decided in one atomic word, without the lock.
//!
//! A lock moves from core to core with everything it guards. A key that is asked about in a row, or
//! that threads wait for, is therefore lent to one of a few cells, which are one line of memory each and
//! decide as a gate does. Whoever has something else to do in its shard takes it back first.
//!
//! State    The key, and `full_at` as in its row; [`MOVED`] while nobody has the cell.
//! Always   A cell changes its key only under a claim, and only when every value it ever had lies in the
//!          past: the values of a later key are greater than all of an earlier one. So whoever has
//!          read a value and after it the key, and then swaps that value, has swapped it for that key.
//!          (A key that owes for long keeps others from its cell for as long. They use the lock.)

use super::{Fingerprint, prefetch};
use crate::sync::thread_number::{THREAD_NUMBERS, thread_number};
use crate::sync::{AtomicBool, AtomicU64, Backoff, Ordering};
use std::sync::OnceLock;
use tidegate_core::NarrowBucket;

/// In a cell: nobody has it. In a row: a cell has it.
pub(super) const MOVED: u64 = u64::MAX;
/// So many cells, each for the keys that fall on it; made when the first one is needed.
const CELLS: usize = 256;

#[derive(Default)]
pub(super) struct HotCells {
    made: OnceLock<Cells>,
}

struct Cells {
    /// A bit for each cell that somebody has, so that others need not look at it.
    taken: [AtomicU64; CELLS / 64],
    cells: Box<[Cell]>,
    stripes: Box<[Stripe]>,
    /// For threads that have no counters of their own.
    others: Stripe,
}

#[repr(align(64))]
#[derive(Default)]
pub(super) struct Cell {
    full_at: AtomicU64,
    high: AtomicU64,
    low: AtomicU64,
    /// The greatest value it has had, while nobody has it.
    greatest: AtomicU64,
    is_claimed: AtomicBool,
}

/// What was decided here. Processors fetch lines in pairs.
#[repr(align(128))]
#[derive(Default)]
struct Stripe {
    allowed: AtomicU64,
    denied: AtomicU64,
}

/// The high word chooses the shard, and the place in it; this is the other one.
#[inline]
fn index(key: Fingerprint) -> usize {
    (key.low >> 56) as usize % CELLS
}

impl Cells {
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

    /// Whether somebody may have the key's cell.
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
                // Nobody else writes it, so it takes no atomic addition, which would cost as much as
                // the decision.
                let counter = counter(own);
                counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            }
            None => {
                counter(&self.others).fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

/// A cell that may have the key that was looked for.
#[derive(Clone, Copy)]
pub(super) struct CellRef<'a> {
    made: &'a Cells,
    cell: &'a Cell,
}

impl HotCells {
    /// Finds the cell that may have a key, and asks for its memory: it may be with another core, and
    /// comes while the caller looks at the clock.
    #[inline]
    pub(super) fn find(&self, key: Fingerprint) -> Option<CellRef<'_>> {
        let made = self.made.get()?;
        if !made.is_taken(key) {
            return None;
        }
        let cell = made.cell(key);
        prefetch::to_write(cell);
        Some(CellRef { made, cell })
    }
}

impl CellRef<'_> {
    /// Takes from a key's bucket if the cell has it; `None` if it has not, or if this takes the lock.
    /// Tells what the bucket is then, and whether there was enough in it.
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
            Attempt::Overtaken => self.take_in_crowd(bucket, key, now, cost),
            Attempt::Done(full_at, was_enough) => Some((full_at, was_enough)),
            Attempt::NotHere => None,
        }
    }

    #[cold]
    fn take_in_crowd(
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
                Attempt::Overtaken => {}
                Attempt::Done(full_at, was_enough) => return Some((full_at, was_enough)),
                Attempt::NotHere => return None,
            }
        }
    }

    #[inline(always)]
    #[expect(clippy::inline_always, reason = "measured: a call costs one or two ns of forty")]
    fn attempt(self, bucket: &NarrowBucket, key: Fingerprint, now: u64, cost: u64) -> Attempt {
        let Self { made, cell } = self;
        let full_at = cell.full_at.load(Ordering::Acquire);
        // After the value, see above.
        let is_it = cell.high.load(Ordering::Acquire) == key.high
            && cell.low.load(Ordering::Acquire) == key.low;
        if full_at == MOVED || !is_it || bucket.is_ahead_of_clock(full_at, now) {
            return Attempt::NotHere;
        }
        let Some(after) = bucket.take(full_at, now, cost) else {
            if cell.full_at.load(Ordering::Acquire) != full_at {
                // It may have been the value of the key before.
                return Attempt::Overtaken;
            }
            made.count(|stripe| &stripe.denied);
            return Attempt::Done(full_at, false);
        };
        let (swap, look) = (Ordering::AcqRel, Ordering::Relaxed);
        if cell.full_at.compare_exchange_weak(full_at, after, swap, look).is_err() {
            return Attempt::Overtaken;
        }
        made.count(|stripe| &stripe.allowed);
        Attempt::Done(after, true)
    }
}

/// How an attempt to take from a cell has ended.
enum Attempt {
    /// The cell has not got the key, or this takes the lock.
    NotHere,
    /// Somebody else was faster.
    Overtaken,
    /// What the bucket is now, and whether there was enough in it.
    Done(u64, bool),
}

impl HotCells {
    /// Lends a cell to a key, if its cell is free and all it had is over. Under the lock of the key's
    /// shard, whose row is then [`MOVED`].
    pub(super) fn lend(&self, key: Fingerprint, full_at: u64, now: u64) -> bool {
        let made = self.made.get_or_init(Cells::new);
        let cell = made.cell(key);
        let claim =
            cell.is_claimed.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed);
        if claim.is_err() {
            return false;
        }
        let was_its = cell.high.load(Ordering::Relaxed) == key.high
            && cell.low.load(Ordering::Relaxed) == key.low;
        if !was_its && cell.greatest.load(Ordering::Relaxed) >= now {
            cell.is_claimed.store(false, Ordering::Release);
            return false;
        }
        cell.high.store(key.high, Ordering::Release);
        cell.low.store(key.low, Ordering::Release);
        // A bucket that is full is full from now on: a value that nobody had before.
        cell.full_at.store(full_at.max(now), Ordering::Release);
        made.mark(key, true);
        true
    }

    /// Takes back what was lent to this key. Under the lock of the key's shard.
    pub(super) fn take_back(&self, key: Fingerprint) -> u64 {
        let made = self.made.get_or_init(Cells::new);
        let cell = made.cell(key);
        let full_at = cell.full_at.swap(MOVED, Ordering::AcqRel);
        made.mark(key, false);
        let greatest = cell.greatest.load(Ordering::Relaxed).max(full_at);
        cell.greatest.store(greatest, Ordering::Relaxed);
        cell.is_claimed.store(false, Ordering::Release);
        full_at
    }

    pub(super) fn counts(&self) -> (u64, u64) {
        let Some(made) = self.made.get() else { return (0, 0) };
        let sum = |count: fn(&Stripe) -> &AtomicU64| {
            let stripes = made.stripes.iter().chain([&made.others]);
            stripes.map(|stripe| count(stripe).load(Ordering::Relaxed)).sum()
        };
        (sum(|stripe| &stripe.allowed), sum(|stripe| &stripe.denied))
    }
}

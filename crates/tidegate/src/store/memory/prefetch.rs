//! Hints to the processor to load a key's row before it is needed.
//!
//! This is the only module with `unsafe` code (see ARCHITECTURE.md). A prefetch reads and writes nothing that a program
//! can observe, whatever the address, so no use of it can be unsound.
//!
//! Gain     52 % of the time of a batch over a million keys, and what lets batches meet their target, shown by
//!          `cargo xtask bench --bench keyed -- 1M uniform string`.

use super::{Fingerprint, MemoryStore};
use crate::clock::Clock;
use std::sync::atomic::{AtomicUsize, Ordering};

impl<C: Clock> MemoryStore<C> {
    /// Prefetches a key's row and its shard. Not inlined, so that the code for a hot key stays short.
    #[inline(never)]
    pub(super) fn prefetch(&self, key: Fingerprint) {
        // The row first, because it is further away.
        self.prefetch_row(key);
        self.prefetch_shard(key);
    }

    #[inline]
    pub(super) fn prefetch_row(&self, key: Fingerprint) {
        self.row_locations[self.shard_of(key)].prefetch(key);
    }

    #[inline]
    pub(super) fn prefetch_shard(&self, key: Fingerprint) {
        beginning::<SHARD_LINES, _>(&self.shards[self.shard_of(key)]);
    }
}

/// The number of cache lines of a shard that a decision in its row reads.
const SHARD_LINES: usize = 4;

/// Where a shard's rows are, readable without the lock. It may be out of date: then the wrong cache line is loaded, and
/// nothing else happens.
#[derive(Default)]
pub(super) struct RowLocation {
    address: AtomicUsize,
    /// The number of ideal indexes.
    range: AtomicUsize,
    row_bytes: AtomicUsize,
}

impl RowLocation {
    /// Stores the address of the rows' array, the number of ideal indexes, and the bytes of a row.
    #[inline]
    pub(super) fn store(&self, (address, range, row_bytes): (usize, usize, usize)) {
        let is_same = |known: &AtomicUsize, now| known.load(Ordering::Relaxed) == now;
        let is_known = is_same(&self.address, address) && is_same(&self.range, range);
        if !is_known || !is_same(&self.row_bytes, row_bytes) {
            self.address.store(address, Ordering::Relaxed);
            self.range.store(range, Ordering::Relaxed);
            self.row_bytes.store(row_bytes, Ordering::Relaxed);
        }
    }

    #[inline]
    fn prefetch(&self, key: Fingerprint) {
        let ideal = key.index_in(self.range.load(Ordering::Relaxed));
        let offset = ideal.wrapping_mul(self.row_bytes.load(Ordering::Relaxed));
        let address = self.address.load(Ordering::Relaxed).wrapping_add(offset);
        // A row is at its ideal index or a few rows after it. Two of these lines may be the same.
        line(address);
        line(address.wrapping_add(64));
        line(address.wrapping_add(120));
    }
}

/// Loads a cache line that the caller is going to write, so that it is transferred once and not twice: to be read, and to
/// be written.
#[inline]
pub(super) fn to_write<T>(line: &T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        let address = std::ptr::from_ref(line);
        // SAFETY: a prefetch is a hint. It cannot fault and has no effect on memory. `_mm_prefetch` would compile to a
        // prefetch for reading.
        #[expect(unsafe_code, reason = "there is no safe prefetch, see above")]
        unsafe {
            std::arch::asm!(
                "prefetchw [{address}]",
                address = in(reg) address,
                options(nostack, preserves_flags, readonly),
            );
        }
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = line;
}

/// Loads the first `LINES` cache lines of a value.
#[inline]
fn beginning<const LINES: usize, T>(of: &T) {
    let address = std::ptr::from_ref(of).addr();
    for n in 0..LINES {
        line(address.wrapping_add(n * 64));
    }
}

/// Loads the cache line of an address.
#[inline]
fn line(address: usize) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let address = std::ptr::without_provenance::<i8>(address);
        // SAFETY: a prefetch is a hint. It cannot fault and has no effect on memory.
        #[expect(unsafe_code, reason = "there is no safe prefetch, see above")]
        unsafe {
            _mm_prefetch::<_MM_HINT_T0>(address);
        }
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = address;
}

//! Asking the processor to fetch a key's row before it is needed.
//!
//! This is one of three places in the crate with `unsafe` (see ARCHITECTURE.md). It pays: a batch over ten million keys waits for
//! many lines at once instead of one after the other (docs/benchmarks.md). The instruction reads and
//! writes nothing that a program can see, whatever the address, so no use of it can be unsound.

use super::shard::Shard;
use crate::store::fingerprint::Fingerprint;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Where a shard's rows are, for those who have no lock. It may be out of date: then the wrong line is
/// fetched, and nothing else happens.
#[derive(Default)]
pub(super) struct RowLocation {
    address: AtomicUsize,
    /// How many homes there are, and how many bytes lie from one to the next.
    homes: AtomicUsize,
    width: AtomicUsize,
}

impl RowLocation {
    #[inline]
    pub(super) fn point_at(&self, shard: &Shard) {
        let (address, homes, width) = shard.location();
        let is_same = |known: &AtomicUsize, now| known.load(Ordering::Relaxed) == now;
        let is_known = is_same(&self.address, address) && is_same(&self.homes, homes);
        if !is_known || !is_same(&self.width, width) {
            self.address.store(address, Ordering::Relaxed);
            self.homes.store(homes, Ordering::Relaxed);
            self.width.store(width, Ordering::Relaxed);
        }
    }

    #[inline]
    pub(super) fn prefetch(&self, key: Fingerprint) {
        let home = key.home(self.homes.load(Ordering::Relaxed));
        let offset = home.wrapping_mul(self.width.load(Ordering::Relaxed));
        let address = self.address.load(Ordering::Relaxed).wrapping_add(offset);
        // A row begins at its home or a few places after it: in these lines, of which two may be the same, are all the
        // rows that `Rows::get_mut` looks at first.
        line(address);
        line(address.wrapping_add(64));
        line(address.wrapping_add(120));
    }
}

/// Fetches a line that is going to be written, so that it comes once and not twice: to be read, and
/// to be written.
#[inline]
pub(super) fn to_write<T>(line: &T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        let address = std::ptr::from_ref(line);
        // SAFETY: a prefetch is a hint. It cannot fault and has no effect on memory. The instruction is
        // older than x86-64; the compiler's own word for it becomes one for reading.
        #[expect(unsafe_code, reason = "there is no safe way to say it, see above")]
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

/// Fetches the lines in which something begins: so many.
#[inline]
pub(super) fn beginning<const LINES: usize, T>(of: &T) {
    let address = std::ptr::from_ref(of).addr();
    for n in 0..LINES {
        line(address.wrapping_add(n * 64));
    }
}

/// Fetches the line of this address.
#[inline]
fn line(address: usize) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let address = std::ptr::without_provenance::<i8>(address);
        // SAFETY: a prefetch is a hint. It cannot fault and has no effect on memory.
        #[expect(unsafe_code, reason = "there is no safe way to say it, see above")]
        unsafe {
            _mm_prefetch::<_MM_HINT_T0>(address);
        }
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = address;
}

//! Asking the processor to fetch a line of memory before it is needed.
//!
//! This is the one place in the crate with `unsafe`. It pays: a batch over ten million keys waits for
//! many lines at once instead of one after the other (docs/benchmarks.md). The instruction reads and
//! writes nothing that a program can see, whatever the address, so no use of it can be unsound.

/// Fetches the line that `value` begins in, and the next one.
#[inline]
pub(crate) fn line<T>(value: &T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let address = std::ptr::from_ref(value).cast::<i8>();
        // SAFETY: a prefetch is a hint. It cannot fault and has no effect on memory.
        #[expect(unsafe_code, reason = "there is no safe way to say it, see above")]
        unsafe {
            _mm_prefetch::<_MM_HINT_T0>(address);
            _mm_prefetch::<_MM_HINT_T0>(address.wrapping_add(64));
        }
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = value;
}

//! A lock that is left by a plain store: for what is held for well under a millisecond.
//!
//! The standard library's lock, when it is left, asks in the same step whether somebody sleeps who has to be woken.
//! That takes an instruction that no later one can overtake, so the next decision cannot begin to fetch its key before
//! the last one's row has come (docs/decisions/0030-a-lock-left-by-a-store.md). Here nobody is woken: who waits looks
//! again, and sleeps for a while in between.
//!
//! Always   Held by one at a time. It is left also in a panic: the only code of users that runs under it are clocks and the
//!          hashes of keys, and nothing of ours is half-changed then.
//! Bound    Who waits sleeps no longer than [`NAP_MAX`] after it has been left.
//!
//! This is one of three places in the crate with `unsafe` (see ARCHITECTURE.md). loom tries all interleavings of it.

use crate::sync::{AtomicBool, Backoff, Ordering, UnsafeCell};
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

pub(crate) struct Latch<T> {
    is_held: AtomicBool,
    value: UnsafeCell<T>,
}

/// Shows what a latch guards, for as long as it lives.
pub(crate) struct Latched<'a, T> {
    latch: &'a Latch<T>,
    /// It may go where an exclusive reference may.
    _value: PhantomData<&'a mut T>,
}

/// How often it is looked at before the thread sleeps.
const LOOKS: u32 = 24;
const NAP_MIN: Duration = Duration::from_micros(10);
const NAP_MAX: Duration = Duration::from_micros(500);
/// After so many naps they are as long as they get.
const NAPS_GROWING: u32 = 6;

// SAFETY: all access to the value is through a `Latched`, of which there is one at a time, as through a lock of the
// standard library.
#[expect(unsafe_code, reason = "it is a lock, see above")]
unsafe impl<T: Send> Sync for Latch<T> {}

impl<T> Latch<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { is_held: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    /// Waits until it can be had. Tells whether it had to.
    #[inline]
    pub(crate) fn hold(&self) -> (Latched<'_, T>, bool) {
        match self.try_hold() {
            Some(latched) => (latched, false),
            None => (self.wait(), true),
        }
    }

    #[inline]
    fn try_hold(&self) -> Option<Latched<'_, T>> {
        let taken =
            self.is_held.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed);
        // Not made unless it is held: dropping it is leaving.
        taken.is_ok().then(|| Latched { latch: self, _value: PhantomData })
    }

    #[cold]
    fn wait(&self) -> Latched<'_, T> {
        let mut backoff = Backoff::new();
        self.wait_by(|looks| match nap_after(looks) {
            None => backoff.pause(),
            #[expect(clippy::disallowed_methods, reason = "it waits for a thread, not for a time")]
            Some(nap) => std::thread::sleep(nap),
        })
    }

    /// Waits until it can be had; `pause` is told how often it was looked at.
    fn wait_by(&self, mut pause: impl FnMut(u32)) -> Latched<'_, T> {
        let mut looks = 0_u32;
        loop {
            pause(looks);
            looks = looks.saturating_add(1);
            // A look leaves the line where it is; a try takes it away from who holds the latch.
            // loom shows who only looks what was true before, for ever.
            if (cfg!(tidegate_loom) || !self.is_held.load(Ordering::Relaxed))
                && let Some(latched) = self.try_hold()
            {
                return latched;
            }
        }
    }
}

/// How long to sleep after so many looks, if at all: twice as long each time. Under loom and shuttle nobody sleeps.
fn nap_after(looks: u32) -> Option<Duration> {
    let naps = looks.checked_sub(LOOKS).filter(|_| !cfg!(any(tidegate_loom, tidegate_shuttle)))?;
    Some((NAP_MIN * 2_u32.pow(naps.min(NAPS_GROWING))).min(NAP_MAX))
}

impl<T> Deref for Latched<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this is the only `Latched` there is, and it is borrowed for as long as the value is.
        #[expect(unsafe_code, reason = "it is a lock, see above")]
        self.latch.value.with(|value| unsafe { &*value })
    }
}

impl<T> DerefMut for Latched<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above, and it is borrowed mutably.
        #[expect(unsafe_code, reason = "it is a lock, see above")]
        self.latch.value.with_mut(|value| unsafe { &mut *value })
    }
}

impl<T> Drop for Latched<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.latch.is_held.store(false, Ordering::Release);
    }
}

#[cfg(all(test, not(any(tidegate_loom, tidegate_shuttle))))]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::thread;

    #[test]
    fn a_latch_that_was_held_in_a_panic_can_be_had_again() {
        let latch = Latch::new(1);
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            let _latched = latch.hold();
            panic!("with the latch in hand");
        }));
        assert!(panicked.is_err());
        let (latched, had_to_wait) = latch.hold();
        assert_eq!((*latched, had_to_wait), (1, false));
    }

    #[test]
    fn threads_that_add_to_a_number_lose_nothing() {
        const THREADS: u64 = 8;
        const TIMES: u64 = if cfg!(miri) { 20 } else { 20_000 };
        let latch = Latch::new((0_u64, 0_u64));
        thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    for _ in 0..TIMES {
                        let (mut latched, _) = latch.hold();
                        assert_eq!(latched.0, latched.1, "nobody else is at it");
                        latched.0 += 1;
                        latched.1 += 1;
                    }
                });
            }
        });
        assert_eq!(*latch.hold().0, (THREADS * TIMES, THREADS * TIMES));
    }

    #[test]
    fn who_waits_gets_it_however_late_it_is_left() {
        for looks_until_left in [0, 1, LOOKS - 1, LOOKS, 10 * LOOKS] {
            let latch = Latch::new(7);
            let mut other = Some(latch.hold().0);
            let mut looked = 0;
            let mine = latch.wait_by(|looks| {
                looked = looks;
                if looks == looks_until_left {
                    other = None;
                }
            });
            assert_eq!((*mine, looked), (7, looks_until_left));
        }
    }

    #[test]
    fn naps_begin_after_some_looks_and_get_longer_up_to_a_maximum() {
        assert_eq!(nap_after(LOOKS - 1), None);
        assert_eq!(nap_after(LOOKS), Some(NAP_MIN));
        assert_eq!(nap_after(LOOKS + 1), Some(NAP_MIN * 2));
        assert!((LOOKS..LOOKS + 20).map(nap_after).is_sorted());
        assert_eq!(nap_after(LOOKS + NAPS_GROWING), Some(NAP_MAX));
        assert_eq!(nap_after(u32::MAX), Some(NAP_MAX));
    }
}

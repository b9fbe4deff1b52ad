//! A lock that is left by a plain store: for what is held for well under a millisecond.
//!
//! The standard library's lock, when it is left, asks in the same step whether somebody sleeps who has to be woken.
//! That takes an instruction that no later one can overtake, so the next decision cannot begin to fetch its key before
//! the last one's row has come (docs/decisions/0030-a-lock-left-by-a-store.md). Here it is left first and asked
//! afterwards, without an order between the two: who lay down in that very moment is not seen, and looks again by itself.
//!
//! Always   GateGuard by one at a time. It is left also in a panic: the only code of users that runs under it are clocks and the
//!          hashes of keys, and nothing of ours is half-changed then.
//! Bound    Who waits and is not woken looks again after [`NAP`].
//!
//! This is one of three places in the crate with `unsafe` (see ARCHITECTURE.md). loom tries all interleavings of it.

use crate::sync::{AtomicBool, Backoff, Ordering, UnsafeCell};
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

pub(crate) struct SpinMutex<T> {
    is_held: AtomicBool,
    /// Whoever leaves the latch has to wake somebody. Changed under the lock of `sleepers` only.
    is_slept_at: AtomicBool,
    sleepers: Mutex<u32>,
    wake: Condvar,
    value: UnsafeCell<T>,
}

/// Shows what a latch guards, for as long as it lives.
pub(crate) struct SpinGuard<'a, T> {
    latch: &'a SpinMutex<T>,
    /// It may go where an exclusive reference may.
    _value: PhantomData<&'a mut T>,
}

/// How often it is looked at before the thread sleeps.
const LOOKS: u32 = 10;
/// For who lay down unseen. It is rare, and whoever looks too often takes time from who holds the latch.
const NAP: Duration = Duration::from_millis(5);

// SAFETY: all access to the value is through a `SpinGuard`, of which there is one at a time, as through a lock of the
// standard library.
#[expect(unsafe_code, reason = "it is a lock, see above")]
unsafe impl<T: Send> Sync for SpinMutex<T> {}

impl<T> SpinMutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Self {
            is_held: AtomicBool::new(false),
            is_slept_at: AtomicBool::new(false),
            sleepers: Mutex::new(0),
            wake: Condvar::new(),
            value: UnsafeCell::new(value),
        }
    }

    /// Waits until it can be had. Tells whether it had to.
    #[inline]
    pub(crate) fn hold(&self) -> (SpinGuard<'_, T>, bool) {
        match self.try_hold() {
            Some(latched) => (latched, false),
            None => (self.wait(), true),
        }
    }

    #[inline]
    fn try_hold(&self) -> Option<SpinGuard<'_, T>> {
        let taken =
            self.is_held.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed);
        // Not made unless it is held: dropping it is leaving.
        taken.is_ok().then(|| SpinGuard { latch: self, _value: PhantomData })
    }

    #[cold]
    fn wait(&self) -> SpinGuard<'_, T> {
        let mut backoff = Backoff::new();
        self.wait_by(|looks| {
            // Under loom and shuttle nobody sleeps.
            if looks < LOOKS || cfg!(any(tidegate_loom, tidegate_shuttle)) {
                backoff.pause();
            } else {
                self.sleep(NAP);
            }
        })
    }

    /// Sleeps until it is woken by who leaves the latch, or for `nap`. Does not when it has just been left.
    fn sleep(&self, nap: Duration) {
        let mut sleepers = self.sleepers();
        *sleepers += 1;
        self.is_slept_at.store(true, Ordering::SeqCst);
        if self.is_held.load(Ordering::SeqCst) {
            let slept = self.wake.wait_timeout(sleepers, nap);
            sleepers = slept.unwrap_or_else(PoisonError::into_inner).0;
        }
        *sleepers -= 1;
        // While others are here it says whether they have been woken.
        if *sleepers == 0 {
            self.is_slept_at.store(false, Ordering::Relaxed);
        }
    }

    /// WakeList all who sleep: what is guarded is held for so short a time that one after the other gets it
    /// sooner than a chain of threads that wake one another.
    #[cold]
    fn wake(&self) {
        let sleepers = self.sleepers();
        self.is_slept_at.store(false, Ordering::Relaxed);
        drop(sleepers);
        self.wake.notify_all();
    }

    fn sleepers(&self) -> MutexGuard<'_, u32> {
        self.sleepers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until it can be had; `pause` is told how often it was looked at.
    fn wait_by(&self, mut pause: impl FnMut(u32)) -> SpinGuard<'_, T> {
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

impl<T> Deref for SpinGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this is the only `SpinGuard` there is, and it is borrowed for as long as the value is.
        #[expect(unsafe_code, reason = "it is a lock, see above")]
        self.latch.value.with(|value| unsafe { &*value })
    }
}

impl<T> DerefMut for SpinGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above, and it is borrowed mutably.
        #[expect(unsafe_code, reason = "it is a lock, see above")]
        self.latch.value.with_mut(|value| unsafe { &mut *value })
    }
}

impl<T> Drop for SpinGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.latch.is_held.store(false, Ordering::Release);
        if self.latch.is_slept_at.load(Ordering::Relaxed) {
            self.latch.wake();
        }
    }
}

#[cfg(all(test, not(any(tidegate_loom, tidegate_shuttle))))]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::thread;

    #[test]
    fn a_latch_that_was_held_in_a_panic_can_be_had_again() {
        let latch = SpinMutex::new(1);
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
        let latch = SpinMutex::new((0_u64, 0_u64));
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
            let latch = SpinMutex::new(7);
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

    /// Whoever sleeps here would do so for longer than anybody lets a test run.
    #[test]
    fn who_leaves_wakes_all_who_sleep() {
        const SLEEPERS: u32 = 3;
        let latch = SpinMutex::new(());
        let held = latch.hold().0;
        thread::scope(|scope| {
            for _ in 0..SLEEPERS {
                scope.spawn(|| latch.sleep(Duration::from_secs(3_600)));
            }
            // Who has counted itself keeps the count until it sleeps.
            while *latch.sleepers() < SLEEPERS {
                thread::yield_now();
            }
            assert!(latch.is_slept_at.load(Ordering::Relaxed));
            drop(held);
        });
        assert_eq!(*latch.sleepers(), 0);
        assert!(!latch.is_slept_at.load(Ordering::Relaxed), "nobody need be woken any more");
    }

    #[test]
    fn nobody_sleeps_at_a_latch_that_has_just_been_left() {
        let latch = SpinMutex::new(());
        latch.sleep(Duration::from_secs(3_600));
        assert_eq!(*latch.sleepers(), 0);
    }

    #[test]
    fn who_is_not_woken_looks_again_by_itself() {
        let latch = SpinMutex::new(());
        let _held = latch.hold().0;
        latch.sleep(NAP);
        assert!(!latch.is_slept_at.load(Ordering::Relaxed));
    }
}

//! The synchronisation that the limiter is built on: the standard library's; or loom's, which tries
//! every interleaving of a few steps; or shuttle's, which tries many of many.
//!
//! Always   Code that is checked by loom or shuttle takes these from here and nowhere else.

use std::sync::TryLockError;

#[cfg(not(any(tidegate_loom, tidegate_shuttle)))]
pub(crate) use std::sync::{
    Arc, Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

#[cfg(tidegate_loom)]
pub(crate) use loom::sync::{
    Arc, Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

#[cfg(tidegate_shuttle)]
pub(crate) use shuttle::sync::{
    Arc, Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

/// Locks, also after a panic elsewhere. The only code of users that runs under our locks are clocks and
/// the hashes of keys; no state of ours is half-changed when they run.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// The same, for a lock that is never held for long: waits a little before it goes to sleep.
///
/// Tells whether it had to.
#[inline]
pub(crate) fn lock_briefly<T>(mutex: &Mutex<T>) -> (MutexGuard<'_, T>, bool) {
    match try_lock(mutex) {
        Some(guard) => (guard, false),
        None => (wait_for(mutex), true),
    }
}

/// Locks if nobody else has it. A lock that was held in a panic has come free all the same: what
/// `try_lock` says then *is* the guard, and whoever ignores it and locks again waits for himself.
#[inline]
fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

#[cold]
fn wait_for<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    let mut backoff = Backoff::new();
    for _ in 0..ATTEMPTS {
        backoff.pause();
        if let Some(guard) = try_lock(mutex) {
            return guard;
        }
    }
    lock(mutex)
}

/// How often a lock is tried before the thread goes to sleep for it.
const ATTEMPTS: u32 = 24;

/// What to do between two attempts to change a contended word: a little, then a little more.
///
/// Retrying at once makes two cores steal the line from each other in the middle of each other's
/// attempts; a short pause lets one of them finish several.
pub(crate) struct Backoff {
    spins: u32,
}

impl Backoff {
    const SPINS_MAX: u32 = 64;

    #[inline]
    pub(crate) fn new() -> Self {
        Self { spins: 16 }
    }

    #[inline]
    pub(crate) fn pause(&mut self) {
        #[cfg(tidegate_loom)]
        loom::thread::yield_now();
        #[cfg(tidegate_shuttle)]
        shuttle::thread::yield_now();
        #[cfg(not(any(tidegate_loom, tidegate_shuttle)))]
        for _ in 0..self.spins {
            std::hint::spin_loop();
        }
        self.spins = (self.spins * 2).min(Self::SPINS_MAX);
    }
}

#[cfg(all(test, not(any(tidegate_loom, tidegate_shuttle))))]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    #[test]
    fn a_lock_that_was_held_in_a_panic_can_be_had_again() {
        let mutex = Mutex::new(1);
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            let _guard = lock(&mutex);
            panic!("with the lock in hand");
        }));
        assert!(panicked.is_err() && mutex.is_poisoned());
        let (guard, had_to_wait) = lock_briefly(&mutex);
        assert_eq!((*guard, had_to_wait), (1, false));
        drop(guard);
        assert_eq!(*wait_for(&mutex), 1);
    }
}

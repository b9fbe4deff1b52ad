//! Atomics and mutexes: of the standard library; of loom, which tries every interleaving of a few steps; or of shuttle,
//! which tries a sample of the interleavings of many steps.
//!
//! Always   Code that loom or shuttle checks imports them from here only. A poisoned mutex is locked like any other: the
//!          only user code that runs under a lock are clocks and hashes of keys, and no state is half-changed meanwhile.

pub(crate) mod thread_number;
pub(crate) mod wake;

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

/// Locks a mutex of the standard library that loom and shuttle do not explore, also if it is poisoned.
#[cfg_attr(
    not(any(tidegate_loom, tidegate_shuttle)),
    expect(unused_qualifications, reason = "under loom and shuttle, `Mutex` is another type")
)]
pub(crate) fn lock_std<T>(mutex: &std::sync::Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Locks a mutex, also if it is poisoned.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Locks a mutex like [`lock`], and returns whether the thread had to wait for it.
#[inline]
pub(crate) fn lock_observing_wait<T>(mutex: &Mutex<T>) -> (MutexGuard<'_, T>, bool) {
    match mutex.try_lock() {
        Ok(guard) => (guard, false),
        Err(TryLockError::Poisoned(poisoned)) => (poisoned.into_inner(), false),
        Err(TryLockError::WouldBlock) => (lock(mutex), true),
    }
}

/// The pause between two attempts to change a contended word. It doubles up to a maximum.
///
/// Without it, two cores take the cache line from each other in the middle of their attempts.
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

/// Returns the next of the process's numbers. Stores and gates are locked in the order of their numbers, so that
/// two threads that lock several of them never wait for each other. Zero is never returned.
pub(crate) fn next_id() -> u64 {
    // The standard library's: loom and shuttle need not explore this counter.
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

#[cfg(all(test, not(any(tidegate_loom, tidegate_shuttle))))]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    /// Returns a mutex whose holder has panicked after it changed the value.
    fn poisoned() -> Mutex<u32> {
        let mutex = Mutex::new(1);
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            let mut value = lock(&mutex);
            *value = 2;
            panic!("the holder of the lock panics");
        }));
        assert!(panicked.is_err() && mutex.is_poisoned());
        mutex
    }

    #[test]
    fn a_mutex_whose_holder_panicked_can_be_locked_again_and_again() {
        let mutex = poisoned();
        for expected in 2..5 {
            let mut value = lock(&mutex);
            assert_eq!(*value, expected);
            *value += 1;
        }
        let mutex = poisoned();
        for expected in 2..5 {
            let (mut value, had_to_wait) = lock_observing_wait(&mutex);
            assert_eq!((*value, had_to_wait), (expected, false));
            *value += 1;
        }
        let mutex = poisoned();
        for expected in 2..5 {
            let mut value = lock_std(&mutex);
            assert_eq!(*value, expected);
            *value += 1;
        }
    }

    #[test]
    fn a_thread_that_waits_for_a_mutex_locks_it_after_its_holder_panicked() {
        let mutex = Mutex::new(1);
        std::thread::scope(|scope| {
            let held = lock(&mutex);
            let waiter = scope.spawn(|| *lock_observing_wait(&mutex).0);
            let panicked = catch_unwind(AssertUnwindSafe(|| {
                let mut value = held;
                *value = 2;
                panic!("the holder of the lock panics");
            }));
            assert!(panicked.is_err());
            assert_eq!(waiter.join().ok(), Some(2));
        });
    }
}

//! The synchronisation that the limiter is built on: the standard library's; or loom's, which tries
//! every interleaving of a few steps; or shuttle's, which tries many of many.
//!
//! Always   Code that is checked by loom or shuttle takes these from here and nowhere else.

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

/// Locks, also after a panic elsewhere: no state of ours is ever left half-changed, because user
/// code does not run under our locks.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// The same, for a lock that is never held for long: waits a little before it goes to sleep.
///
/// Tells whether it had to.
#[inline]
pub(crate) fn lock_briefly<T>(mutex: &Mutex<T>) -> (MutexGuard<'_, T>, bool) {
    match mutex.try_lock() {
        Ok(guard) => (guard, false),
        Err(_) => (wait_for(mutex), true),
    }
}

#[cold]
fn wait_for<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    let mut backoff = Backoff::new();
    for _ in 0..ATTEMPTS {
        backoff.pause();
        if let Ok(guard) = mutex.try_lock() {
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
        Self { spins: 1 }
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

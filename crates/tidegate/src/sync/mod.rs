//! The synchronisation that the limiter is built on: the standard library's; or loom's, which tries
//! every interleaving of a few steps; or shuttle's, which tries many of many.
//!
//! Always   Code that is checked by loom or shuttle takes these from here and nowhere else.

pub(crate) mod spin_mutex;
pub(crate) mod thread_number;
pub(crate) mod wake;

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

/// Locks a mutex of the standard library that loom and shuttle do not explore; see [`lock`].
#[allow(unused_qualifications, reason = "under loom and shuttle, `Mutex` is another type")]
pub(crate) fn lock_std<T>(mutex: &std::sync::Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Locks, also after a panic elsewhere. The only code of users that runs under our locks are clocks and
/// the hashes of keys; no state of ours is half-changed when they run.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

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

/// What a lock guards. loom's watches who is at it, and is asked in this way.
#[cfg(not(tidegate_loom))]
#[derive(Debug)]
pub(crate) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

#[cfg(tidegate_loom)]
pub(crate) use loom::cell::UnsafeCell;

#[cfg(not(tidegate_loom))]
impl<T> UnsafeCell<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(std::cell::UnsafeCell::new(value))
    }

    #[inline]
    pub(crate) fn with<R>(&self, look: impl FnOnce(*const T) -> R) -> R {
        look(self.0.get())
    }

    #[inline]
    pub(crate) fn with_mut<R>(&self, change: impl FnOnce(*mut T) -> R) -> R {
        change(self.0.get())
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

//! The mutex of this crate, and the only place that handles lock poisoning.
//!
//! A panic in one task must not stop every other task that needs the lock, so poisoning is ignored: no code of this crate
//! panics while a value behind a lock is half changed.

use std::sync::{MutexGuard, PoisonError};

/// A standard mutex that cannot be poisoned.
#[derive(Debug, Default)]
pub(crate) struct Mutex<T>(std::sync::Mutex<T>);

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(std::sync::Mutex::new(value))
    }

    #[inline]
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

//! Wakers to be called once no lock is held.

use std::task::Waker;

/// Wakers collected under a lock, called when the list is dropped. Declare it before the guard, so that it is
/// dropped after the lock has been released.
#[derive(Default)]
pub(crate) struct WakeList {
    wakers: Vec<Waker>,
}

impl WakeList {
    pub(crate) fn extend(&mut self, wakers: impl IntoIterator<Item = Waker>) {
        self.wakers.extend(wakers);
    }
}

impl Drop for WakeList {
    #[inline]
    fn drop(&mut self) {
        if !self.wakers.is_empty() {
            wake_each(self.wakers.drain(..));
        }
    }
}

/// Calls every waker. A waker is foreign code: a panic in one neither keeps the others asleep nor ends the
/// thread that calls them.
pub(crate) fn wake_each(wakers: impl IntoIterator<Item = Waker>) {
    for waker in wakers {
        // The panic hook has reported the panic; no caller here could handle it.
        let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| waker.wake()));
    }
}

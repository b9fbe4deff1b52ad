//! Leaves a server alone that does not answer: nobody waits for what will not come.
//!
//! Always   Open after [`FAILURES_MAX`] failures in a row, and then closed only by who has tried on its own
//!          account (the node's keeper), never by a caller's request.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// So many failures in a row are no chance.
const FAILURES_MAX: u32 = 3;

#[derive(Debug, Default)]
pub(crate) struct Breaker {
    failures: AtomicU32,
    is_open: AtomicBool,
}

impl Breaker {
    /// Whether nobody is to ask.
    pub(crate) fn is_open(&self) -> bool {
        self.is_open.load(Ordering::Relaxed)
    }

    /// Somebody was answered.
    pub(crate) fn succeed(&self) {
        // A store for every answer would be shared by all threads.
        if self.failures.load(Ordering::Relaxed) > 0 {
            self.failures.store(0, Ordering::Relaxed);
        }
    }

    /// Somebody was not. `true` if that was one too many.
    pub(crate) fn fail(&self) -> bool {
        let failures = self.failures.fetch_add(1, Ordering::Relaxed) + 1;
        failures >= FAILURES_MAX && !self.is_open.swap(true, Ordering::Relaxed)
    }

    /// At once: it is known that nobody will be answered.
    pub(crate) fn open(&self) {
        self.is_open.store(true, Ordering::Relaxed);
    }

    /// It answers again.
    pub(crate) fn close(&self) {
        self.failures.store(0, Ordering::Relaxed);
        self.is_open.store(false, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_opens_after_three_in_a_row_and_closes_when_told() {
        let breaker = Breaker::default();
        assert!(!breaker.fail() && !breaker.fail());
        breaker.succeed();
        assert!(!breaker.fail() && !breaker.fail() && !breaker.is_open());
        assert!(breaker.fail(), "the third in a row");
        assert!(breaker.is_open());
        breaker.succeed();
        assert!(breaker.is_open(), "an answer that was under way does not close it");
        breaker.close();
        assert!(!breaker.is_open() && !breaker.fail());
    }
}

//! Circuit breaker: stops sending requests to a server that does not answer.
//!
//! Invariant  Opens after [`FAILURES_MAX`] failures in a row. Only the node's reconnect task closes it, never the request
//!            of a caller.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

const FAILURES_MAX: u32 = 3;

#[derive(Debug, Default)]
pub(crate) struct Breaker {
    failures: AtomicU32,
    is_open: AtomicBool,
}

impl Breaker {
    /// Returns whether requests must not be sent.
    pub(crate) fn is_open(&self) -> bool {
        self.is_open.load(Ordering::Relaxed)
    }

    /// Counts a request that was answered.
    pub(crate) fn succeed(&self) {
        // All threads share this word: writing it for every answer would slow them down.
        if self.failures.load(Ordering::Relaxed) > 0 {
            self.failures.store(0, Ordering::Relaxed);
        }
    }

    /// Counts a request that was not answered. Returns whether it opened the breaker.
    pub(crate) fn fail(&self) -> bool {
        let failures = self.failures.fetch_add(1, Ordering::Relaxed) + 1;
        failures >= FAILURES_MAX && !self.is_open.swap(true, Ordering::Relaxed)
    }

    /// Opens at once.
    pub(crate) fn open(&self) {
        self.is_open.store(true, Ordering::Relaxed);
    }

    /// Closes: the server answers again.
    pub(crate) fn close(&self) {
        self.failures.store(0, Ordering::Relaxed);
        self.is_open.store(false, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_breaker_opens_after_three_failures_in_a_row_and_stays_open_until_it_is_closed() {
        let breaker = Breaker::default();
        assert!(!breaker.fail() && !breaker.fail());
        breaker.succeed();
        assert!(!breaker.fail() && !breaker.fail() && !breaker.is_open());
        assert!(breaker.fail(), "the third in a row");
        assert!(breaker.is_open());
        breaker.succeed();
        assert!(breaker.is_open(), "the answer to an earlier request does not close it");
        breaker.close();
        assert!(!breaker.is_open() && !breaker.fail());
    }
}

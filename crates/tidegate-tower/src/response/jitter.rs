//! Jitter of `Retry-After`: spreads the retries of clients that are denied at the same time (T48).
//!
//! Always   A retry time gets later, never earlier: a client that obeys it is admitted if no other request came first.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use tidegate::{Decision, Retry, Span, Verdict};

#[derive(Debug)]
pub(crate) struct Jitter {
    most: Span,
    state: AtomicU64,
}

impl Jitter {
    pub(crate) fn new(most: Span) -> Self {
        // The seed need not be secret, only different in each process.
        Self { most, state: AtomicU64::new(RandomState::new().hash_one(0_u8)) }
    }

    /// Returns the decision with a later retry time if it is a denial.
    pub(crate) fn spread(&self, decision: Decision) -> Decision {
        with_later_retry(decision, self.draw())
    }

    /// Returns a random span of at most `most`. All limits that deny a request use the same one.
    pub(crate) fn draw(&self) -> Span {
        const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
        if self.most.is_zero() {
            return Span::ZERO;
        }
        // SplitMix64.
        let mut z = self.state.fetch_add(STEP, Ordering::Relaxed).wrapping_add(STEP);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let share = u128::from(z ^ (z >> 31));
        let us = (share * u128::from(self.most.as_micros())) >> 64;
        Span::from_micros(u64::try_from(us).unwrap_or(u64::MAX))
    }
}

/// Returns a denial with a retry time and a reset time that are later by this span. Some clients retry at the reset time, and at
/// the end of a window both times are the same.
pub(crate) fn with_later_retry(mut decision: Decision, later: Span) -> Decision {
    if let Verdict::Deny(Retry::After(span)) = decision.verdict {
        decision.verdict = Verdict::Deny(Retry::After(span + later));
        decision.reset_after = decision.reset_after + later;
    }
    decision
}

impl Clone for Jitter {
    fn clone(&self) -> Self {
        Self::new(self.most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_http::retry_after_secs;

    /// T48: ten thousand requests are denied at once, and all clients obey `Retry-After`.
    #[test]
    fn clients_that_obey_do_not_retry_together() {
        let denied = Decision::UNLIMITED.deny(Retry::After(Span::from_millis(9_500))).decision;
        let in_first_tenth = |most: Span| {
            let jitter = Jitter::new(most);
            let seconds = || retry_after_secs(&jitter.spread(denied)).unwrap();
            let arrivals: Vec<u64> = (0..10_000).map(|_| seconds()).collect();
            assert!(arrivals.iter().all(|seconds| *seconds >= 10), "never earlier");
            let first = *arrivals.iter().min().unwrap();
            // The header has whole seconds: clients with the same value retry at the same time.
            arrivals.iter().filter(|seconds| **seconds == first).count()
        };
        assert_eq!(in_first_tenth(Span::ZERO), 10_000, "all clients retry together");
        let spread = in_first_tenth(Span::from_secs(10));
        assert!(spread <= 2_000, "{spread} of 10000 retry in the first 100 ms");
    }
}

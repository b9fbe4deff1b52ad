//! Sliding window log: a log of all admissions, of which those in the last window are counted.

use super::{Admission, ExpectedDecision, Oracle, Rate, give_back, smallest_wait, total};
use tidegate_core::{Retry, Span, Timestamp, Verdict};

/// One key.
#[derive(Clone, Debug)]
pub struct SlidingLog {
    rate: Rate,
    log: Vec<Admission>,
}

impl SlidingLog {
    /// Starts with an unused key.
    pub fn new(rate: Rate) -> Self {
        Self { rate, log: Vec::new() }
    }

    /// Returns whether an admission is in the half-open window (now − W, now].
    fn counts(&self, at: Timestamp, now: Timestamp) -> bool {
        now.since(at) < self.rate.period
    }

    fn used(&self, now: Timestamp) -> u64 {
        total(&self.log, |at| self.counts(at, now))
    }

    fn wait_until(&self, now: Timestamp, holds: impl Fn(u64) -> bool) -> Span {
        smallest_wait(self.rate.period, |wait| holds(self.used(now + wait)))
    }
}

impl Oracle for SlidingLog {
    fn decide(&mut self, now: Timestamp, cost: u64) -> ExpectedDecision {
        let count = self.rate.count;
        let fits = |used: u64| u128::from(used) + u128::from(cost) <= u128::from(count);
        let verdict = if cost > count {
            Verdict::Deny(Retry::Never)
        } else if fits(self.used(now)) {
            Verdict::Allow
        } else {
            Verdict::Deny(Retry::After(self.wait_until(now, fits)))
        };
        if verdict == Verdict::Allow && cost > 0 {
            self.log.push(Admission { at: now, cost });
        }
        ExpectedDecision {
            verdict,
            limit: count,
            remaining: count - self.used(now),
            reset_after: self.wait_until(now, |used| used == 0),
        }
    }

    fn refund(&mut self, now: Timestamp, cost: u64) {
        let period = self.rate.period;
        give_back(&mut self.log, cost, |at| now.since(at) < period);
    }
}

//! Sliding window with two counters, both of which are computed from a log of all admissions.

use super::{Admission, ExpectedDecision, Oracle, Rate, give_back, smallest_wait, total};
use tidegate_core::{Retry, Span, Timestamp, Verdict};

/// One key.
#[derive(Clone, Debug)]
pub struct Sliding {
    rate: Rate,
    log: Vec<Admission>,
}

impl Sliding {
    /// Starts with an unused key.
    pub fn new(rate: Rate) -> Self {
        Self { rate, log: Vec::new() }
    }

    fn index(&self, at: Timestamp) -> u64 {
        at.as_micros() / self.rate.period.as_micros()
    }

    fn in_window(&self, index: u64) -> u128 {
        u128::from(total(&self.log, |at| self.index(at) == index))
    }

    /// Returns `previous · (W − elapsed) / W + current`, multiplied by W to be an integer. No product is near 2^128,
    /// because counts are below 2^53 and W is at most 2^52 µs.
    fn used_times_period(&self, now: Timestamp) -> u128 {
        let index = self.index(now);
        let previous = index.checked_sub(1).map_or(0, |index| self.in_window(index));
        let period = u128::from(self.rate.period.as_micros());
        let elapsed = u128::from(now.as_micros()) % period;
        previous * (period - elapsed) + self.in_window(index) * period
    }

    fn fits(&self, now: Timestamp, cost: u64) -> bool {
        let period = u128::from(self.rate.period.as_micros());
        self.used_times_period(now) + u128::from(cost) * period
            <= u128::from(self.rate.count) * period
    }

    /// An admission counts in this window and in the next one.
    fn wait_until(&self, now: Timestamp, holds: impl Fn(Timestamp) -> bool) -> Span {
        smallest_wait(self.rate.period + self.rate.period, |wait| holds(now + wait))
    }
}

impl Oracle for Sliding {
    fn decide(&mut self, now: Timestamp, cost: u64) -> ExpectedDecision {
        let count = self.rate.count;
        let verdict = if cost > count {
            Verdict::Deny(Retry::Never)
        } else if self.fits(now, cost) {
            Verdict::Allow
        } else {
            Verdict::Deny(Retry::After(self.wait_until(now, |then| self.fits(then, cost))))
        };
        if verdict == Verdict::Allow && cost > 0 {
            self.log.push(Admission { at: now, cost });
        }
        let period = u128::from(self.rate.period.as_micros());
        let used_ceil = self.used_times_period(now).div_ceil(period);
        ExpectedDecision {
            verdict,
            limit: count,
            remaining: u64::try_from(u128::from(count) - used_ceil).expect("it is at most count"),
            reset_after: self.wait_until(now, |then| self.used_times_period(then) == 0),
        }
    }

    /// Refunds from this window first, then from the previous one.
    fn refund(&mut self, now: Timestamp, cost: u64) {
        let (index, period) = (self.index(now), self.rate.period.as_micros());
        give_back(&mut self.log, cost, |at| at.as_micros() / period + 1 >= index);
    }
}

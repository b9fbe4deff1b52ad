//! Sliding window by two counters: both counters are counted again from a log of all admissions.

use super::{Admission, Answer, Oracle, Rate, give_back, smallest_wait, total};
use tidegate_core::{Retry, Span, Timestamp, Verdict};

/// One key.
#[derive(Clone, Debug)]
pub struct Sliding {
    rate: Rate,
    log: Vec<Admission>,
}

impl Sliding {
    /// A key nobody has asked about.
    pub fn new(rate: Rate) -> Self {
        Self { rate, log: Vec::new() }
    }

    fn index(&self, at: Timestamp) -> u64 {
        at.as_micros() / self.rate.period.as_micros()
    }

    fn in_window(&self, index: u64) -> u128 {
        u128::from(total(&self.log, |at| self.index(at) == index))
    }

    /// `previous · (W − elapsed) / W + current`, all of it times W so that it is whole: no product
    /// here is near 2^128, because counts end at 2^53 and W at 2^52 µs.
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

    /// What is admitted now counts in this window and in the next one.
    fn wait_until(&self, now: Timestamp, holds: impl Fn(Timestamp) -> bool) -> Span {
        smallest_wait(self.rate.period + self.rate.period, |wait| holds(now + wait))
    }
}

impl Oracle for Sliding {
    fn decide(&mut self, now: Timestamp, cost: u64) -> Answer {
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
        Answer {
            verdict,
            limit: count,
            remaining: u64::try_from(u128::from(count) - used_ceil).expect("it is at most count"),
            reset_after: self.wait_until(now, |then| self.used_times_period(then) == 0),
        }
    }

    /// From this window first, then from the one before.
    fn refund(&mut self, now: Timestamp, cost: u64) {
        let (index, period) = (self.index(now), self.rate.period.as_micros());
        give_back(&mut self.log, cost, |at| at.as_micros() / period + 1 >= index);
    }
}

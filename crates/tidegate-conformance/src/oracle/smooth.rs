//! Guava's `SmoothBursty` as a balance that grows with time up to a maximum, and that a request may overdraw once.
//!
//! Guava has two numbers, stored permits and the time of the next free ticket. Only one of them changes with time, and
//! both change at the same rate, so they are one number here: stored permits are a positive balance, and a ticket in the
//! future is a negative one.

use super::rational::{
    Rational, at_least_zero, micros, solved_wait, span_ceil, units_floor, whole,
};
use super::{ExpectedDecision, Oracle, Pace, Rate};
use tidegate_core::{Span, Timestamp, Verdict};

/// The balance of one key.
#[derive(Clone, Debug)]
pub struct Smooth {
    pace: Pace,
    saved_max: Rational,
    balance: Rational,
    last: Timestamp,
}

impl Smooth {
    /// Starts with a balance of zero. The maximum is the burst; default: the permits of one second.
    pub fn new(rate: Rate, burst: Option<u64>, birth: Timestamp) -> Self {
        let pace = rate.pace();
        let second = || micros(Span::from_secs(1)) * &pace.per_us;
        let saved_max = burst.map_or_else(second, whole);
        Self { pace, saved_max, balance: whole(0), last: birth }
    }

    fn sync(&mut self, now: Timestamp) {
        assert!(now >= self.last, "time must not go back");
        self.balance = self.balance_after(&micros(now.since(self.last)));
        self.last = now;
    }

    fn balance_after(&self, us: &Rational) -> Rational {
        self.saved_max.clone().min(&self.balance + us * &self.pace.per_us)
    }

    fn owed_us(&self) -> Rational {
        at_least_zero(-&self.balance) * &self.pace.interval
    }
}

impl Oracle for Smooth {
    fn decide(&mut self, now: Timestamp, cost: u64) -> ExpectedDecision {
        self.sync(now);
        let verdict = match span_ceil(&self.owed_us()) {
            wait if cost > 0 && !wait.is_zero() => Verdict::Wait(wait),
            _ => Verdict::Allow,
        };
        self.balance -= whole(cost);
        let until_full = (&self.saved_max - &self.balance) * &self.pace.interval;
        ExpectedDecision {
            verdict,
            limit: units_floor(&self.saved_max) + 1,
            // The balance, and one more on credit unless it is negative.
            remaining: match at_least_zero(-&self.balance) {
                owed if owed == whole(0) => units_floor(&self.balance) + 1,
                _ => 0,
            },
            reset_after: solved_wait(&until_full, |us| self.balance_after(us) == self.saved_max),
        }
    }

    fn refund(&mut self, now: Timestamp, cost: u64) {
        self.sync(now);
        self.balance = self.saved_max.clone().min(&self.balance + whole(cost));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waits(rate: Rate, calls: &[(u64, u64)]) -> Vec<u64> {
        let mut account = Smooth::new(rate, None, Timestamp::EPOCH);
        let wait = |(now_ms, cost): &(u64, u64)| match account
            .decide(Timestamp::EPOCH + Span::from_millis(*now_ms), *cost)
            .verdict
        {
            Verdict::Wait(wait) => wait.as_micros() / 1_000,
            _ => 0,
        };
        calls.iter().map(wait).collect()
    }

    #[test]
    fn guavas_own_test_of_weights_is_reproduced() {
        // Costs 1, 1, 2, 4, 8, 1 at 1 per second: each request waits for the previous one.
        let rate = Rate { count: 1, period: Span::from_secs(1) };
        let calls = [(0, 1), (0, 1), (1_000, 2), (2_000, 4), (4_000, 8), (8_000, 1)];
        assert_eq!(waits(rate, &calls), [0, 1_000, 1_000, 2_000, 4_000, 8_000]);
    }

    #[test]
    fn after_ten_idle_seconds_six_are_free() {
        let rate = Rate { count: 5, period: Span::from_secs(1) };
        let calls = [(10_000, 1); 8];
        assert_eq!(waits(rate, &calls), [0, 0, 0, 0, 0, 0, 200, 400]);
    }
}

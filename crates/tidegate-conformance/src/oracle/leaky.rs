//! Leaky bucket as a meter: a level that every request raises and that falls at the rate.

use super::rational::{Rational, at_least_zero, micros, solved_wait, units_floor, whole};
use super::{ExpectedDecision, Oracle, Pace, Rate};
use tidegate_core::{Retry, Timestamp, Verdict};

/// One bucket.
#[derive(Clone, Debug)]
pub struct Leaky {
    pace: Pace,
    capacity: u64,
    water: Rational,
    /// The time of that level.
    last: Timestamp,
}

impl Leaky {
    /// Starts with an empty bucket.
    pub fn new(rate: Rate, capacity: u64, birth: Timestamp) -> Self {
        Self { pace: rate.pace(), capacity, water: whole(0), last: birth }
    }

    fn leak(&mut self, now: Timestamp) {
        assert!(now >= self.last, "time must not go back");
        self.water = self.water_after(&micros(now.since(self.last)));
        self.last = now;
    }

    fn water_after(&self, us: &Rational) -> Rational {
        at_least_zero(&self.water - us * &self.pace.per_us)
    }
}

impl Oracle for Leaky {
    fn decide(&mut self, now: Timestamp, cost: u64) -> ExpectedDecision {
        self.leak(now);
        let brim = whole(self.capacity);
        let poured = &self.water + whole(cost);
        let verdict = if cost > self.capacity {
            Verdict::Deny(Retry::Never)
        } else if poured <= brim {
            self.water = poured;
            Verdict::Allow
        } else {
            let us = (&poured - &brim) * &self.pace.interval;
            let fits = |us: &Rational| self.water_after(us) + whole(cost) <= brim;
            Verdict::Deny(Retry::After(solved_wait(&us, fits)))
        };
        let until_dry = &self.water * &self.pace.interval;
        ExpectedDecision {
            verdict,
            limit: self.capacity,
            remaining: units_floor(&(brim - &self.water)),
            reset_after: solved_wait(&until_dry, |us| self.water_after(us) == whole(0)),
        }
    }

    fn refund(&mut self, now: Timestamp, cost: u64) {
        self.leak(now);
        self.water = at_least_zero(&self.water - whole(cost));
    }
}

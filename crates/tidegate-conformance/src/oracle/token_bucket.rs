//! Token bucket: a number of tokens, which grows with time up to `burst`.

use super::rational::{Rational, micros, solved_wait, units_floor, whole};
use super::{ExpectedDecision, Oracle, Pace, Rate};
use tidegate_core::{Retry, Timestamp, Verdict};

/// One bucket.
#[derive(Clone, Debug)]
pub struct TokenBucket {
    pace: Pace,
    burst: u64,
    tokens: Rational,
    /// The time of that number.
    last: Timestamp,
}

impl TokenBucket {
    /// Starts with a bucket that is full at `birth`.
    pub fn full(rate: Rate, burst: u64, birth: Timestamp) -> Self {
        Self { pace: rate.pace(), burst, tokens: whole(burst), last: birth }
    }

    /// Starts with a bucket that is empty at `birth`.
    pub fn empty(rate: Rate, burst: u64, birth: Timestamp) -> Self {
        Self { pace: rate.pace(), burst, tokens: whole(0), last: birth }
    }

    fn refill(&mut self, now: Timestamp) {
        assert!(now >= self.last, "time must not go back");
        self.tokens = self.tokens_after(&micros(now.since(self.last)));
        self.last = now;
    }

    fn tokens_after(&self, us: &Rational) -> Rational {
        whole(self.burst).min(&self.tokens + us * &self.pace.per_us)
    }
}

impl Oracle for TokenBucket {
    fn decide(&mut self, now: Timestamp, cost: u64) -> ExpectedDecision {
        self.refill(now);
        let wanted = whole(cost);
        let verdict = if cost > self.burst {
            Verdict::Deny(Retry::Never)
        } else if self.tokens >= wanted {
            self.tokens -= wanted;
            Verdict::Allow
        } else {
            let us = (&wanted - &self.tokens) * &self.pace.interval;
            Verdict::Deny(Retry::After(solved_wait(&us, |us| self.tokens_after(us) >= wanted)))
        };
        let full = whole(self.burst);
        let until_full = (&full - &self.tokens) * &self.pace.interval;
        ExpectedDecision {
            verdict,
            limit: self.burst,
            remaining: units_floor(&self.tokens),
            reset_after: solved_wait(&until_full, |us| self.tokens_after(us) >= full),
        }
    }

    fn refund(&mut self, now: Timestamp, cost: u64) {
        self.refill(now);
        self.tokens = whole(self.burst).min(&self.tokens + whole(cost));
    }
}

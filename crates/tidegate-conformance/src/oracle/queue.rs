//! Leaky bucket as a queue: a list of departures, and how long each of them blocks the exit.

use super::rational::{
    Rational, at_least_zero, micros, solved_wait, span_ceil, units_floor, whole,
};
use super::{ExpectedDecision, Oracle, Pace, Rate};
use tidegate_core::{Retry, Span, Timestamp, Verdict};

/// One queue.
#[derive(Clone, Debug)]
pub struct Queue {
    pace: Pace,
    capacity: u64,
    wait: Option<Span>,
    /// How long the exit is blocked by one departing unit, and by a full queue.
    room: Rational,
    departures: Vec<Departure>,
}

/// Instants in microseconds, which need not be whole.
#[derive(Clone, Debug)]
struct Departure {
    leaves: Rational,
    /// When the next unit may leave.
    clears: Rational,
}

impl Queue {
    /// Starts with an empty queue and a free exit.
    pub fn new(rate: Rate, capacity: u64, wait: Option<Span>) -> Self {
        let pace = rate.pace();
        let room = whole(capacity + 1) * &pace.interval;
        Self { pace, capacity, wait, room, departures: Vec::new() }
    }

    /// Returns how long, in microseconds, a request that arrives now waits before it leaves.
    fn backlog(&self, now: Timestamp) -> Rational {
        let clear = self.departures.last().map_or(whole(0), |last| last.clears.clone());
        at_least_zero(clear - whole(now.as_micros()))
    }

    /// Returns whether a request behind this backlog is admitted: its wait is short enough, and the queue has space.
    fn lets_in(&self, backlog: &Rational, cost: &Rational) -> bool {
        let is_bearable = self.wait.is_none_or(|wait| *backlog <= micros(wait));
        is_bearable && backlog + cost * &self.pace.interval <= self.room
    }

    fn retry(&self, backlog: &Rational, cost: u64) -> Retry {
        if cost > self.capacity + 1 {
            return Retry::Never;
        }
        let cost = whole(cost);
        let over_room = backlog + &cost * &self.pace.interval - &self.room;
        let over_wait = self.wait.map_or(whole(0), |wait| backlog - micros(wait));
        let shorter = |us: &Rational| at_least_zero(backlog - us);
        let over = over_room.max(over_wait);
        Retry::After(solved_wait(&over, |us| self.lets_in(&shorter(us), &cost)))
    }

    /// Returns how many requests of cost 1 are admitted, one after the other.
    fn remaining(&self, backlog: &Rational) -> u64 {
        let behind = |others: u64| backlog + whole(others) * &self.pace.interval;
        let lets_in_after = |others: u64| self.lets_in(&behind(others), &whole(1));
        let by_room = units_floor(&((&self.room - backlog) * &self.pace.per_us));
        let by_wait = self.wait.map_or(u64::MAX, |wait| {
            let slack = micros(wait) - backlog;
            if slack < whole(0) {
                0
            } else {
                units_floor(&(slack * &self.pace.per_us)).saturating_add(1)
            }
        });
        let remaining = by_room.min(by_wait);
        assert!(remaining == 0 || lets_in_after(remaining - 1), "{remaining} is too many");
        assert!(!lets_in_after(remaining), "{remaining} is too few");
        remaining
    }

    fn answer(&self, verdict: Verdict, now: Timestamp) -> ExpectedDecision {
        let backlog = self.backlog(now);
        ExpectedDecision {
            verdict,
            limit: self.remaining(&whole(0)),
            remaining: self.remaining(&backlog),
            reset_after: span_ceil(&backlog),
        }
    }
}

impl Oracle for Queue {
    fn decide(&mut self, now: Timestamp, cost: u64) -> ExpectedDecision {
        if cost == 0 {
            return self.answer(Verdict::Allow, now);
        }
        let backlog = self.backlog(now);
        if !self.lets_in(&backlog, &whole(cost)) {
            return self.answer(Verdict::Deny(self.retry(&backlog, cost)), now);
        }
        let leaves = whole(now.as_micros()) + &backlog;
        let clears = &leaves + whole(cost) * &self.pace.interval;
        self.departures.push(Departure { leaves, clears });
        let verdict = match span_ceil(&backlog) {
            Span::ZERO => Verdict::Allow,
            wait => Verdict::Wait(wait),
        };
        self.answer(verdict, now)
    }

    /// Removes the last units; the part of a departure that has passed is not refunded.
    fn refund(&mut self, now: Timestamp, cost: u64) {
        let now = whole(now.as_micros());
        let mut left = whole(cost) * &self.pace.interval;
        while left > whole(0) {
            let Some(last) = self.departures.last_mut() else { return };
            let from = now.clone().max(last.leaves.clone());
            let taken = at_least_zero(&last.clears - &from).min(left.clone());
            if taken == whole(0) {
                return;
            }
            last.clears -= &taken;
            left -= taken;
            if last.clears == last.leaves {
                self.departures.pop();
            }
        }
    }
}

//! A key of `tidegate-core` under one rule, and the list of its requests.
//!
//! If a claim does not hold, the failure shows the rule and the list.

use crate::generate::{Action, Case, Cost, Delta};
use proptest::test_runner::TestCaseError;
use std::fmt;
use tidegate_conformance::oracle::Rule;
use tidegate_core::{Decision, Limit, Span, State, Ticket, Timestamp};

/// The latest time in tests that wait: far from the largest timestamp.
const END: Timestamp = Timestamp::from_micros(1 << 63);
/// The year 9000, because jiff supports times until 9999.
const CALENDAR_END: Timestamp = Timestamp::from_micros(221_845_392_000_000_000);

#[derive(Clone)]
pub(crate) struct Track {
    pub(crate) limit: Limit,
    pub(crate) state: State,
    pub(crate) now: Timestamp,
    pub(crate) birth: Timestamp,
    end: Timestamp,
    /// The latest decision. Costs and times are chosen in relation to its numbers.
    pub(crate) last: Decision,
    events: Vec<Event>,
}

#[derive(Clone)]
struct Event {
    at: Timestamp,
    did: Did,
}

#[derive(Clone)]
enum Did {
    Take(u64, Decision),
    Refund(u64),
    Release(String),
    Change(String),
}

impl Track {
    pub(crate) fn new(case: &Case) -> Self {
        let is_calendar = matches!(case.rule, Rule::Calendar { .. });
        let (birth, end) = if is_calendar {
            let us = case.birth.as_micros() % CALENDAR_END.as_micros();
            (Timestamp::from_micros(us), CALENDAR_END)
        } else {
            (case.birth, END)
        };
        Self::at(&case.rule, birth, end)
    }

    /// Creates a key whose time may reach the last instant.
    pub(crate) fn without_end(rule: &Rule, birth: Timestamp) -> Self {
        Self::at(rule, birth, Timestamp::MAX)
    }

    fn at(rule: &Rule, birth: Timestamp, end: Timestamp) -> Self {
        let limit = limit(&rule.to_string());
        let state = limit.fresh(birth);
        let last = limit.peek(&state, birth, 0);
        Self { limit, state, now: birth, birth, end, last, events: Vec::new() }
    }

    /// Returns the same key under another rule.
    pub(crate) fn taken_over_by(&self, rule: &Rule) -> Self {
        let fresh = Self::at(rule, self.now, self.end);
        let state = fresh.limit.take_over(&self.limit, &self.state, self.now);
        let last = fresh.limit.peek(&state, self.now, 0);
        Self { state, last, ..fresh }
    }

    /// Lets time pass, or sets the clock back.
    pub(crate) fn pass(&mut self, delta: Delta) {
        let one = Span::from_micros(1);
        let retry_after = self.last.retry_after().unwrap_or(Span::ZERO);
        let reset_after = self.last.reset_after;
        self.now = match delta {
            Delta::None => self.now,
            Delta::Us(us) => self.now + Span::from_micros(us),
            Delta::RetryAfter => self.now + retry_after,
            Delta::OneUsLessThanRetryAfter => self.now + retry_after.saturating_sub(one),
            Delta::ResetAfter => self.now + reset_after,
            Delta::OneUsLessThanResetAfter => self.now + reset_after.saturating_sub(one),
            Delta::ThousandthsOfReset(thousandths) => self.now + self.part_of_reset(thousandths),
            Delta::BackUs(us) => self.now - Span::from_micros(us),
            Delta::BackThousandthsOfReset(thousandths) => {
                self.now - self.part_of_reset(thousandths)
            }
        };
        self.now = self.now.min(self.end);
    }

    pub(crate) fn part_of_reset(&self, thousandths: u64) -> Span {
        let us = u128::from(self.last.reset_after.as_micros()) * u128::from(thousandths) / 1_000;
        Span::from_micros(u64::try_from(us).unwrap_or(u64::MAX))
    }

    pub(crate) fn cost(&self, cost: Cost) -> u64 {
        let Decision { limit, remaining, .. } = self.last;
        match cost {
            Cost::Zero => 0,
            Cost::Units(units) => units,
            Cost::Limit => limit,
            Cost::LimitAndOne => limit.saturating_add(1),
            Cost::Remaining => remaining,
            Cost::RemainingAndOne => remaining.saturating_add(1),
            Cost::ThousandthsOfLimit(thousandths) => {
                let units = u128::from(limit) * u128::from(thousandths) / 1_000;
                u64::try_from(units).unwrap_or(u64::MAX)
            }
            Cost::Max => u64::MAX,
        }
    }

    pub(crate) fn take(&mut self, cost: u64) -> Decision {
        self.last = self.limit.decide(&mut self.state, self.now, cost);
        self.events.push(Event { at: self.now, did: Did::Take(cost, self.last) });
        self.last
    }

    pub(crate) fn refund(&mut self, cost: u64) {
        self.limit.refund(&mut self.state, self.now, cost);
        self.events.push(Event { at: self.now, did: Did::Refund(cost) });
    }

    pub(crate) fn enter(&mut self, cost: u64) -> (Decision, Option<Ticket>) {
        let (decision, ticket) = self.limit.enter(&mut self.state, self.now, cost);
        self.last = decision;
        self.events.push(Event { at: self.now, did: Did::Take(cost, decision) });
        (decision, ticket)
    }

    pub(crate) fn release(&mut self, ticket: Ticket) {
        self.events.push(Event { at: self.now, did: Did::Release(format!("{ticket:?}")) });
        self.limit.release(&mut self.state, ticket);
    }

    /// Continues under another rule.
    pub(crate) fn change(&mut self, rule: &Rule) {
        let new = self.taken_over_by(rule);
        self.events.push(Event { at: self.now, did: Did::Change(new.limit.to_string()) });
        let events = std::mem::take(&mut self.events);
        *self = Self { birth: self.birth, events, ..new };
    }

    /// Performs an action in relation to the latest decision.
    pub(crate) fn act(&mut self, action: Action) {
        match action {
            Action::Take(cost) => {
                let _ = self.take(self.cost(cost));
            }
            Action::Refund(cost) => self.refund(self.cost(cost)),
        }
    }

    pub(crate) fn peek(&self, cost: u64) -> Decision {
        self.limit.peek(&self.state, self.now, cost)
    }

    /// Returns the decision about a request after `wait`, if that is before the latest time.
    pub(crate) fn peek_after(&self, wait: Span, cost: u64) -> Option<Decision> {
        let then = self.now + wait;
        (then < self.end).then(|| self.limit.peek(&self.state, then, cost))
    }

    /// Returns the admitted requests that were charged.
    pub(crate) fn admitted(&self) -> Vec<Admitted> {
        let admission = |event: &Event| match event.did {
            Did::Take(cost, decision) if cost > 0 => {
                let wait = decision.into_result().ok()?;
                Some(Admitted { at: event.at, wait, cost })
            }
            _ => None,
        };
        self.events.iter().filter_map(admission).collect()
    }

    pub(crate) fn fail(&self, why: impl fmt::Display) -> TestCaseError {
        TestCaseError::fail(format!("{why}\n{self}"))
    }
}

/// Returns the limit of a valid rule.
pub(crate) fn limit(text: &str) -> Limit {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Admitted {
    pub(crate) at: Timestamp,
    pub(crate) wait: Span,
    pub(crate) cost: u64,
}

impl fmt::Display for Track {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "limit {}\nborn at {:?}", self.limit, self.birth)?;
        for Event { at, did } in &self.events {
            match did {
                Did::Take(cost, decision) => writeln!(
                    f,
                    "at {at:?} take {cost}: {:?}, remaining {}, reset {:?}",
                    decision.verdict, decision.remaining, decision.reset_after
                )?,
                Did::Refund(cost) => writeln!(f, "at {at:?} refund {cost}")?,
                Did::Release(ticket) => writeln!(f, "at {at:?} release {ticket}")?,
                Did::Change(rule) => writeln!(f, "at {at:?} change to {rule}")?,
            }
        }
        write!(f, "now {:?}", self.now)
    }
}

/// Fails with the rule and the list unless the condition holds.
macro_rules! ensure {
    ($condition:expr, $track:expr, $($why:tt)+) => {
        if !$condition {
            return Err($track.fail(format_args!($($why)+)));
        }
    };
}
pub(crate) use ensure;

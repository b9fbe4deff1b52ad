//! Oracles: a second implementation of every algorithm that is simple, slow and evidently correct.
//!
//! Each oracle has the simplest possible state (a log that is counted again for every request, a level as a fraction) and
//! computes the decision that its algorithm must return. Property tests compare `tidegate-core` with it, decision by
//! decision.
//!
//! Always   Exact: integers and fractions. Only [`warmup::Guava`] uses floating point, because Guava does.
//!          Independent: from `tidegate-core` it uses only the types of requests and decisions.
//!          A wait is the smallest number of whole microseconds after which the decision changes. It is found by search,
//!          or computed and then checked against that definition.
//! Not here Clocks that step back: the specification then gives a bound and not a number, see
//!          `tests/properties/clock.rs`.

pub mod concurrency;
pub mod leaky;
pub mod nginx;
pub mod queue;
mod rate;
mod rational;
mod rule;
pub mod sliding;
pub mod sliding_log;
pub mod smooth;
pub mod token_bucket;
pub mod warmup;
pub mod windows;

pub use rate::Rate;
pub use rational::Rational;
pub use rule::{Anchor, From, Rule};

use rate::Pace;
use std::fmt;
use tidegate_core::{Decision, Span, Timestamp, Verdict};

/// The expected decision: the fields of a [`Decision`], which only core can construct.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExpectedDecision {
    /// The verdict.
    pub verdict: Verdict,
    /// The largest cost that is ever admitted at one instant.
    pub limit: u64,
    /// The cost that would be admitted now.
    pub remaining: u64,
    /// The time until the key has recovered completely.
    pub reset_after: Span,
}

impl std::convert::From<Decision> for ExpectedDecision {
    fn from(decision: Decision) -> Self {
        let Decision { verdict, limit, remaining, reset_after, .. } = decision;
        Self { verdict, limit, remaining, reset_after }
    }
}

/// One key under one rule. Time must not go back.
pub trait Oracle: fmt::Debug {
    /// Decides a request, and charges it unless it is denied.
    fn decide(&mut self, now: Timestamp, cost: u64) -> ExpectedDecision;

    /// Refunds `cost` of the newest charges, and never more than was charged.
    fn refund(&mut self, now: Timestamp, cost: u64);
}

/// An admitted request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Admission {
    at: Timestamp,
    cost: u64,
}

/// Refunds `cost` from the newest admissions for which `counts` holds.
fn give_back(log: &mut Vec<Admission>, mut cost: u64, counts: impl Fn(Timestamp) -> bool) {
    for admission in log.iter_mut().rev().filter(|admission| counts(admission.at)) {
        let taken = cost.min(admission.cost);
        admission.cost -= taken;
        cost -= taken;
    }
    log.retain(|admission| admission.cost > 0);
}

/// Adds up the costs of the admissions for which `counts` holds.
fn total(log: &[Admission], counts: impl Fn(Timestamp) -> bool) -> u64 {
    log.iter().filter(|admission| counts(admission.at)).map(|admission| admission.cost).sum()
}

/// Returns the smallest number in `0..=most` for which `holds` is true; it is true for all larger ones.
fn smallest(most: u128, holds: impl Fn(u128) -> bool) -> u128 {
    assert!(holds(most), "it never holds");
    let (mut no_less_than, mut no_more_than) = (0, most);
    while no_less_than < no_more_than {
        let middle = no_less_than + (no_more_than - no_less_than) / 2;
        if holds(middle) {
            no_more_than = middle;
        } else {
            no_less_than = middle + 1;
        }
    }
    no_more_than
}

/// Like [`smallest`], in microseconds from now.
fn smallest_wait(most: Span, holds: impl Fn(Span) -> bool) -> Span {
    span(smallest(u128::from(most.as_micros()), |us| holds(span(us))))
}

/// Converts microseconds; a value that does not fit is [`Span::MAX`].
fn span(us: u128) -> Span {
    Span::from_micros(u64::try_from(us).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_is_found_at_both_ends_and_between() {
        for wanted in [0, 1, 2, 99, 100] {
            assert_eq!(smallest(100, |n| n >= wanted), wanted);
        }
        assert_eq!(smallest(u128::MAX, |n| n >= 1 << 100), 1 << 100);
    }

    #[test]
    fn the_newest_admission_is_refunded_first() {
        let at = Timestamp::from_micros;
        let mut log = vec![
            Admission { at: at(1), cost: 5 },
            Admission { at: at(2), cost: 2 },
            Admission { at: at(3), cost: 1 },
        ];
        give_back(&mut log, 4, |at| at > Timestamp::from_micros(1));
        assert_eq!(log, [Admission { at: at(1), cost: 5 }]);
        give_back(&mut log, 4, |_| true);
        assert_eq!(log, [Admission { at: at(1), cost: 1 }]);
    }
}

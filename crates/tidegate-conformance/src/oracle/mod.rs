//! A second opinion on every algorithm: simple, slow, and right at a glance.
//!
//! Each oracle keeps the most naive state there is (a log that is counted again for every question,
//! a level as a fraction) and says what its algorithm must answer. Property tests hold
//! `tidegate-core` to it, answer by answer.
//!
//! Always   Exact: whole numbers and fractions. Only [`warmup::Guava`] counts in floating point,
//!          because that is what Guava does.
//!          Independent: of `tidegate-core` only the types of questions and answers are used here.
//!          A wait is the smallest number of whole microseconds after which the answer changes. It is
//!          searched for, or solved for and then checked against that definition.
//! Not here Clocks that step back: what happens then is a bound and not a number, see
//!          `tests/properties/clock.rs`.

pub mod concurrency;
pub mod leaky;
pub mod nginx;
pub mod queue;
mod rational;
mod rule;
pub mod sliding;
pub mod sliding_log;
pub mod smooth;
pub mod token_bucket;
pub mod warmup;
pub mod windows;

pub use rational::Rational;
pub use rule::{Anchor, From, Rate, Rule};

use rule::Pace;
use std::fmt;
use tidegate_core::{Decision, Span, Timestamp, Verdict};

/// What a limit must say: the fields of a [`Decision`], which only core can make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Whether the request may pass.
    pub verdict: Verdict,
    /// The most that can ever be admitted at one instant.
    pub limit: u64,
    /// How much more would be admitted now.
    pub remaining: u64,
    /// How long until the key is as good as new.
    pub reset_after: Span,
}

impl std::convert::From<Decision> for Answer {
    fn from(decision: Decision) -> Self {
        let Decision { verdict, limit, remaining, reset_after, .. } = decision;
        Self { verdict, limit, remaining, reset_after }
    }
}

/// One key under one rule. Time must not go back.
pub trait Oracle: fmt::Debug {
    /// Decides about `cost` and charges it unless it is denied.
    fn decide(&mut self, now: Timestamp, cost: u64) -> Answer;

    /// Gives back `cost` of what was charged last, and never more than is charged.
    fn refund(&mut self, now: Timestamp, cost: u64);
}

/// Something that was admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Admission {
    at: Timestamp,
    cost: u64,
}

/// Takes `cost` back from the newest admissions for which `counts` holds.
fn give_back(log: &mut Vec<Admission>, mut cost: u64, counts: impl Fn(Timestamp) -> bool) {
    for admission in log.iter_mut().rev().filter(|admission| counts(admission.at)) {
        let taken = cost.min(admission.cost);
        admission.cost -= taken;
        cost -= taken;
    }
    log.retain(|admission| admission.cost > 0);
}

/// The costs of the admissions for which `counts` holds.
fn total(log: &[Admission], counts: impl Fn(Timestamp) -> bool) -> u64 {
    log.iter().filter(|admission| counts(admission.at)).map(|admission| admission.cost).sum()
}

/// The smallest number in `0..=most` for which `holds`, which once true stays true.
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

/// As [`smallest`], of microseconds from now.
fn smallest_wait(most: Span, holds: impl Fn(Span) -> bool) -> Span {
    span(smallest(u128::from(most.as_micros()), |us| holds(span(us))))
}

/// Microseconds that may not fit: what does not fit is for ever.
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
    fn the_newest_is_given_back_first() {
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

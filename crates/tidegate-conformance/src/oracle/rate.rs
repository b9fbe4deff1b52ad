//! `count` per `period`, and the exact rate that it means.

use super::rational::{Rational, micros, whole};
use std::fmt;
use tidegate_core::Span;

/// `count` per `period`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub struct Rate {
    pub count: u64,
    pub period: Span,
}

/// An exact rate and its inverse.
#[derive(Clone, Debug)]
pub(super) struct Pace {
    /// Microseconds for one unit.
    pub(super) interval: Rational,
    /// Units in a microsecond.
    pub(super) per_us: Rational,
}

impl Rate {
    pub(super) fn pace(self) -> Pace {
        let (count, period) = (whole(self.count), micros(self.period));
        Pace { interval: &period / &count, per_us: count / period }
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.count, self.period)
    }
}

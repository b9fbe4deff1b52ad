//! Fractions of whole numbers without an end, and the only two places where they become whole.

use super::span;
use num_bigint::BigInt;
use num_rational::Ratio;
use tidegate_core::Span;

/// An exact number.
pub type Rational = Ratio<BigInt>;

/// A whole number as a fraction.
pub(super) fn whole(number: impl Into<BigInt>) -> Rational {
    Rational::from_integer(number.into())
}

/// Microseconds as a fraction.
pub(super) fn micros(span: Span) -> Rational {
    whole(span.as_micros())
}

/// Zero for what is below it.
pub(super) fn at_least_zero(number: Rational) -> Rational {
    number.max(whole(0))
}

/// The whole units that surely are in it.
pub(super) fn units_floor(number: &Rational) -> u64 {
    u64::try_from(number.floor().to_integer()).unwrap_or(u64::MAX)
}

/// The wait in whole microseconds that surely covers it.
pub(super) fn span_ceil(us: &Rational) -> Span {
    span(u128::try_from(us.ceil().to_integer()).unwrap_or(u128::MAX))
}

/// A wait that was solved for, after checking that it is what is wanted by definition: after it,
/// `holds`; one microsecond earlier, not.
pub(super) fn solved_wait(us: &Rational, holds: impl Fn(&Rational) -> bool) -> Span {
    let wait = us.ceil();
    assert!(holds(&wait), "{wait}us is too short");
    assert!(wait <= whole(0) || !holds(&(&wait - whole(1))), "{wait}us is too long");
    span_ceil(us)
}

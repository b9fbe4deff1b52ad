//! Fractions of big integers, and the only two functions that round them.
//!
//! Always   Exact. Fractions are not reduced to lowest terms at every step, which would take most of the time of an oracle:
//!          those of one oracle mostly have the same denominator, or one that the next factor cancels. A fraction
//!          with long terms is reduced.

use super::span;
use num_bigint::BigInt;
use num_rational::Ratio;
use std::cmp::Ordering;
use std::fmt;
use std::ops::{Add, AddAssign, Div, Mul, Neg, Sub, SubAssign};
use tidegate_core::Span;

/// An exact number.
#[derive(Clone, Debug)]
pub struct Rational {
    numerator: BigInt,
    /// Always positive.
    denominator: BigInt,
}

/// A fraction with a longer denominator is reduced to lowest terms.
const DENOMINATOR_BITS_MAX: u64 = 1_024;

impl Rational {
    /// Makes a fraction of an integer.
    pub fn whole(number: impl Into<BigInt>) -> Self {
        Self { numerator: number.into(), denominator: BigInt::from(1) }
    }

    fn new(numerator: BigInt, denominator: BigInt) -> Self {
        debug_assert!(denominator > BigInt::ZERO);
        if denominator.bits() <= DENOMINATOR_BITS_MAX {
            return Self { numerator, denominator };
        }
        let (numerator, denominator) = Ratio::new(numerator, denominator).into_raw();
        Self { numerator, denominator }
    }

    fn is_whole(&self) -> bool {
        self.denominator == BigInt::from(1)
    }

    /// Expands both to a common denominator.
    fn with_one_denominator(&self, other: &Self) -> (BigInt, BigInt, BigInt) {
        if self.denominator == other.denominator {
            (self.numerator.clone(), other.numerator.clone(), self.denominator.clone())
        } else if other.is_whole() {
            let whole = &other.numerator * &self.denominator;
            (self.numerator.clone(), whole, self.denominator.clone())
        } else if self.is_whole() {
            let whole = &self.numerator * &other.denominator;
            (whole, other.numerator.clone(), other.denominator.clone())
        } else {
            let (left, right) =
                (&self.numerator * &other.denominator, &other.numerator * &self.denominator);
            (left, right, &self.denominator * &other.denominator)
        }
    }

    fn plus(&self, other: &Self) -> Self {
        let (left, right, denominator) = self.with_one_denominator(other);
        Self::new(left + right, denominator)
    }

    fn minus(&self, other: &Self) -> Self {
        let (left, right, denominator) = self.with_one_denominator(other);
        Self::new(left - right, denominator)
    }

    fn times(&self, other: &Self) -> Self {
        if self.denominator == other.numerator {
            return Self::new(self.numerator.clone(), other.denominator.clone());
        }
        if other.denominator == self.numerator {
            return Self::new(other.numerator.clone(), self.denominator.clone());
        }
        let numerator = &self.numerator * &other.numerator;
        Self::new(numerator, &self.denominator * &other.denominator)
    }

    fn over(&self, other: &Self) -> Self {
        assert!(other.numerator > BigInt::ZERO, "nothing here is divided by less than zero");
        let (numerator, denominator) = (other.denominator.clone(), other.numerator.clone());
        self.times(&Self { numerator, denominator })
    }

    fn floor_whole(&self) -> BigInt {
        // `/` rounds towards zero.
        if self.numerator < BigInt::ZERO {
            (&self.numerator - &self.denominator + 1) / &self.denominator
        } else {
            &self.numerator / &self.denominator
        }
    }

    fn ceil_whole(&self) -> BigInt {
        -(-self).floor_whole()
    }

    /// Returns the nearest number with this many binary places.
    pub(super) fn to_places(&self, places: u32) -> Self {
        let scaled = Self::new(&self.numerator << (places + 1), self.denominator.clone());
        let doubled = scaled.floor_whole() + 1;
        Self::new(doubled >> 1, BigInt::from(1) << places)
    }
}

impl Ord for Rational {
    fn cmp(&self, other: &Self) -> Ordering {
        let (left, right, _) = self.with_one_denominator(other);
        left.cmp(&right)
    }
}

impl PartialOrd for Rational {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Eq for Rational {}

impl PartialEq for Rational {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl fmt::Display for Rational {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Ratio::new(self.numerator.clone(), self.denominator.clone()).fmt(f)
    }
}

impl Neg for &Rational {
    type Output = Rational;

    fn neg(self) -> Rational {
        Rational { numerator: -&self.numerator, denominator: self.denominator.clone() }
    }
}

/// Implements an operator between values and references, in all four combinations.
macro_rules! operator {
    ($trait:ident $operator:ident is $method:ident) => {
        operator!($trait $operator is $method: Rational, Rational);
        operator!($trait $operator is $method: Rational, &Rational);
        operator!($trait $operator is $method: &Rational, Rational);
        operator!($trait $operator is $method: &Rational, &Rational);
    };
    ($trait:ident $operator:ident is $method:ident: $left:ty, $right:ty) => {
        impl $trait<$right> for $left {
            type Output = Rational;

            fn $operator(self, other: $right) -> Rational {
                Rational::$method(&self, &other)
            }
        }
    };
}

operator!(Add add is plus);
operator!(Sub sub is minus);
operator!(Mul mul is times);
operator!(Div div is over);

impl AddAssign for Rational {
    fn add_assign(&mut self, other: Self) {
        *self = self.plus(&other);
    }
}

impl SubAssign for Rational {
    fn sub_assign(&mut self, other: Self) {
        *self = self.minus(&other);
    }
}

impl SubAssign<&Self> for Rational {
    fn sub_assign(&mut self, other: &Self) {
        *self = self.minus(other);
    }
}

/// Makes a fraction of an integer.
pub(super) fn whole(number: impl Into<BigInt>) -> Rational {
    Rational::whole(number)
}

/// Makes a fraction of microseconds.
pub(super) fn micros(span: Span) -> Rational {
    whole(span.as_micros())
}

/// Replaces a negative number by zero.
pub(super) fn at_least_zero(number: Rational) -> Rational {
    if number.numerator < BigInt::ZERO { whole(0) } else { number }
}

/// Rounds down to whole units.
pub(super) fn units_floor(number: &Rational) -> u64 {
    u64::try_from(number.floor_whole()).unwrap_or(u64::MAX)
}

/// Rounds up to a wait in whole microseconds.
pub(super) fn span_ceil(us: &Rational) -> Span {
    span(u128::try_from(us.ceil_whole()).unwrap_or(u128::MAX))
}

/// Returns a computed wait, after checking the definition: `holds` is true after it, and false one microsecond earlier.
pub(super) fn solved_wait(us: &Rational, holds: impl Fn(&Rational) -> bool) -> Span {
    let wait = whole(us.ceil_whole());
    assert!(holds(&wait), "{wait}us is too short");
    assert!(wait <= whole(0) || !holds(&(&wait - whole(1))), "{wait}us is too long");
    span_ceil(us)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fractions of both signs, with terms that have common factors, have none, and are long enough to be reduced.
    fn fractions() -> Vec<(Rational, Ratio<BigInt>)> {
        let long: BigInt = (BigInt::from(1) << 2_000_u32) + 1;
        let numerators =
            [BigInt::from(-7), (-1).into(), 0.into(), 1.into(), 6.into(), 7.into(), &long * 3];
        let denominators = [BigInt::from(1), 2.into(), 6.into(), 7.into(), long];
        let pairs = numerators.iter().flat_map(|numerator| {
            denominators.iter().map(move |denominator| (numerator.clone(), denominator.clone()))
        });
        pairs.map(|(n, d)| (Rational::new(n.clone(), d.clone()), Ratio::new(n, d))).collect()
    }

    fn exact(number: &Rational) -> Ratio<BigInt> {
        Ratio::new(number.numerator.clone(), number.denominator.clone())
    }

    #[test]
    fn arithmetic_equals_num_rationals() {
        for (a, a_exact) in fractions() {
            for (b, b_exact) in fractions() {
                assert_eq!(exact(&(&a + &b)), &a_exact + &b_exact);
                assert_eq!(exact(&(&a - &b)), &a_exact - &b_exact);
                assert_eq!(exact(&(&a * &b)), &a_exact * &b_exact);
                assert_eq!(a.cmp(&b), a_exact.cmp(&b_exact));
                assert_eq!(a == b, a_exact == b_exact);
                if b > whole(0) {
                    assert_eq!(exact(&(&a / &b)), &a_exact / &b_exact);
                }
            }
        }
    }

    #[test]
    fn rounding_equals_num_rationals() {
        for (number, exact) in fractions() {
            assert_eq!(number.floor_whole(), exact.floor().to_integer(), "{exact}");
            assert_eq!(number.ceil_whole(), exact.ceil().to_integer(), "{exact}");
            let places = number.to_places(3) * whole(8);
            // num-rational rounds a half away from zero, and this type rounds it up.
            let up = (exact * BigInt::from(8) + Ratio::new(1.into(), 2.into())).floor();
            assert_eq!(places.floor_whole(), up.to_integer());
            assert_eq!(places.ceil_whole(), up.to_integer());
        }
    }

    #[test]
    fn a_long_fraction_is_reduced() {
        let long: BigInt = BigInt::from(6) << 2_000_u32;
        assert_eq!(Rational::new(long.clone(), long).denominator, BigInt::from(1));
    }
}

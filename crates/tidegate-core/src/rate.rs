//! A rate as an exact fraction, and the ticks in which a bucket counts time without remainder.
//!
//! With the rate in lowest terms, `n` units per `p` microseconds, a tick is 1/n µs. Then a microsecond is `n` ticks and a
//! unit of cost is `p` ticks. Both are whole numbers, so a rate such as 7/min never drifts, and nothing is divided until
//! a decision is reported.
//!
//! Always   Counts and capacities are at most [`COUNT_MAX`], periods at most [`PERIOD_MAX`], so any
//!          `u64` of microseconds and any capacity fit into a `u128` of ticks with bits to spare.

use crate::time::{Span, Timestamp};

/// The largest count, burst or capacity: the largest integer that a Lua script in Redis counts exactly.
pub(crate) const COUNT_MAX: u64 = 1 << 53;
/// The longest period: a hundred years.
pub(crate) const PERIOD_MAX: Span = Span::from_secs(36_525 * 86_400);
/// The fastest rate: 10^10 a second, which suffices for limits on bytes.
pub(crate) const PER_MICROSECOND_MAX: u64 = 10_000;

/// `count` units of cost per `period`, as written in the rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Rate {
    pub(crate) count: u64,
    pub(crate) period: Span,
}

impl Rate {
    pub(crate) fn ticks(self) -> Ticks {
        let divisor = gcd(self.count, self.period.as_micros());
        Ticks { per_us: self.count / divisor, per_unit: self.period.as_micros() / divisor }
    }
}

/// The number of ticks in a microsecond and in a unit of cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticks {
    pub(crate) per_us: u64,
    pub(crate) per_unit: u64,
}

impl Ticks {
    pub(crate) fn at(self, instant: Timestamp) -> u128 {
        u128::from(instant.as_micros()) * u128::from(self.per_us)
    }

    pub(crate) fn in_span(self, span: Span) -> u128 {
        u128::from(span.as_micros()) * u128::from(self.per_us)
    }

    pub(crate) fn of_cost(self, cost: u64) -> u128 {
        u128::from(cost) * u128::from(self.per_unit)
    }

    /// Returns the time that this many ticks take, rounded up.
    pub(crate) fn span_ceil(self, ticks: u128) -> Span {
        Span::from_wide(div_ceil(ticks, self.per_us))
    }

    /// Returns the units of cost in this many ticks, rounded down.
    pub(crate) fn units_floor(self, ticks: u128) -> u64 {
        u64::try_from(div_floor(ticks, self.per_unit)).unwrap_or(u64::MAX)
    }
}

/// Divides by 64 bits where 64 bits hold the dividend, as nearly always: a wide division takes four times as many
/// instructions.
#[inline]
pub(crate) fn div_floor(dividend: u128, divisor: u64) -> u128 {
    match u64::try_from(dividend) {
        Ok(dividend) => u128::from(dividend / divisor),
        Err(_) => dividend / u128::from(divisor),
    }
}

/// As [`div_floor`], rounded up.
#[inline]
pub(crate) fn div_ceil(dividend: u128, divisor: u64) -> u128 {
    match u64::try_from(dividend) {
        Ok(dividend) => u128::from(dividend.div_ceil(divisor)),
        Err(_) => dividend.div_ceil(u128::from(divisor)),
    }
}

/// Returns the greatest common divisor. Neither argument is zero here, so the result is not either.
fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// Returns `⌊part · total / whole⌋` for `part <= whole < 2^127`, without computing the product, which may overflow.
///
/// Long multiplication, one bit of `total` at a time, is exact. Its 128 rounds are fast enough, because it runs only when
/// a limit is changed.
pub(crate) fn share_floor(total: u128, part: u128, whole: u128) -> u128 {
    debug_assert!(part <= whole && whole < 1 << 127);
    if whole == 0 {
        return 0;
    }
    let (mut quotient, mut remainder) = (0_u128, 0_u128);
    for bit in (0..u128::BITS).rev() {
        quotient <<= 1;
        remainder <<= 1;
        if (total >> bit) & 1 == 1 {
            remainder += part;
        }
        // At most two rounds: the remainder was below `whole` before, so it is below 3 · whole now.
        while remainder >= whole {
            remainder -= whole;
            quotient += 1;
        }
    }
    quotient
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_reduced_to_lowest_terms() {
        let per_minute = Rate { count: 7, period: Span::from_secs(60) };
        assert_eq!(per_minute.ticks(), Ticks { per_us: 7, per_unit: 60_000_000 });
        let bytes = Rate { count: 1_500_000_000, period: Span::from_secs(1) };
        assert_eq!(bytes.ticks(), Ticks { per_us: 1_500, per_unit: 1 });
    }

    #[test]
    fn a_share_is_exact_where_the_product_would_overflow() {
        assert_eq!(share_floor(10, 1, 3), 3);
        assert_eq!(share_floor(u128::MAX, 1, 1), u128::MAX);
        assert_eq!(share_floor((1 << 100) * 6, 1 << 100, 1 << 101), (1 << 100) * 3);
        assert_eq!(share_floor(7, 0, 0), 0);
        assert_eq!(share_floor(1_000_000, 999_999, 1_000_000), 999_999);
    }
}

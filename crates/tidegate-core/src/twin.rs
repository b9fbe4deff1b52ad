//! A limit as its Lua twin sees it: in numbers that a double holds exactly.
//!
//! The twins (`tidegate-redis/lua/`, one a stem) keep states and say yes or no. What a caller is told besides,
//! the limit works out here from the state as it was: one arithmetic for the numbers, wherever the state lives.
//!
//! Always   A number is whole and below 2^53, or it is not sent; only `warmup` has fractions, and its twin adds
//!          and multiplies doubles in the same order as Rust does.

use crate::limit::{Limit, State};
use alloc::vec::Vec;
use core::fmt;

/// The largest number of which a double still knows all neighbours.
const DOUBLE_MAX: u64 = 1 << 53;

/// A rule that doubles cannot count: it takes more than a hundred years to recover, or its rate has more digits
/// than they have.
///
/// ```
/// use tidegate_core::{Limit, TooLarge};
///
/// let limit: Limit = "1/week burst 9007199254740992".parse()?;
/// assert_eq!(limit.twin_numbers(), Err(TooLarge));
/// # Ok::<(), tidegate_core::RuleError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLarge;

impl Limit {
    /// The name that the algorithm's files have in common: its page, its code, its Lua twin.
    ///
    /// ```
    /// # use tidegate_core::Limit;
    /// assert_eq!("100/min sliding-log".parse::<Limit>()?.stem(), "sliding_log");
    /// # Ok::<(), tidegate_core::RuleError>(())
    /// ```
    pub fn stem(&self) -> &'static str {
        self.algorithm.stem()
    }

    /// What the rule says, for the twin.
    ///
    /// ```
    /// # use tidegate_core::Limit;
    /// let limit: Limit = "10/s burst 3".parse()?;
    /// let capacity_us = limit.twin_numbers().expect("they are small")[0];
    /// assert_eq!(capacity_us, 300_000.0);
    /// # Ok::<(), tidegate_core::RuleError>(())
    /// ```
    pub fn twin_numbers(&self) -> Result<Vec<f64>, TooLarge> {
        self.algorithm.twin_numbers().ok_or(TooLarge)
    }

    /// What a cost amounts to, for the twin.
    ///
    /// ```
    /// # use tidegate_core::Limit;
    /// let limit: Limit = "10/s burst 3".parse()?;
    /// assert_eq!(limit.twin_price(2), Ok([200_000.0, 0.0].to_vec()));
    /// # Ok::<(), tidegate_core::RuleError>(())
    /// ```
    pub fn twin_price(&self, cost: u64) -> Result<Vec<f64>, TooLarge> {
        self.algorithm.twin_price(cost).ok_or(TooLarge)
    }

    /// A state as the twin keeps it.
    ///
    /// ```
    /// # use tidegate_core::{Limit, Timestamp};
    /// let limit: Limit = "10/s burst 3".parse()?;
    /// let mut state = limit.fresh(Timestamp::EPOCH);
    /// limit.decide(&mut state, Timestamp::from_micros(7), 1);
    /// assert_eq!(limit.to_twin(&state), Ok([100_007.0, 0.0].to_vec()));
    /// # Ok::<(), tidegate_core::RuleError>(())
    /// ```
    pub fn to_twin(&self, state: &State) -> Result<Vec<f64>, TooLarge> {
        self.algorithm.to_twin(&state.0).ok_or(TooLarge)
    }

    /// The way back; `None` for what no twin of this rule says.
    ///
    /// ```
    /// # use tidegate_core::{Limit, Timestamp};
    /// let limit: Limit = "10/s burst 3".parse()?;
    /// let state = limit.of_twin(&[200_000.0, 0.0]).expect("a bucket has two numbers");
    /// assert_eq!(limit.peek(&state, Timestamp::EPOCH, 0).remaining, 1);
    /// # Ok::<(), tidegate_core::RuleError>(())
    /// ```
    pub fn of_twin(&self, numbers: &[f64]) -> Option<State> {
        self.algorithm.of_twin(numbers).map(State)
    }
}

impl fmt::Display for TooLarge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "its numbers are beyond what Redis's scripts count exactly: it must recover within 140 years, and \
             its rate must be a fraction of smaller numbers",
        )
    }
}

impl core::error::Error for TooLarge {}

/// As a double, if that is exact.
#[expect(clippy::cast_precision_loss, reason = "below 2^53 there is none")]
pub(crate) fn exact(value: u64) -> Option<f64> {
    (value < DOUBLE_MAX).then_some(value as f64)
}

/// The same for numbers of which two are added up.
pub(crate) fn exact_half(value: u64) -> Option<f64> {
    exact(value.checked_mul(2)?)?;
    exact(value)
}

/// A double that is a whole number which it can hold.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "it is whole and in range"
)]
pub(crate) fn whole(value: f64) -> Option<u64> {
    #[expect(clippy::cast_precision_loss, reason = "a power of two")]
    let max = DOUBLE_MAX as f64;
    // `fract` is not in core.
    let cut = if (0.0..=max).contains(&value) { value as u64 } else { return None };
    #[expect(clippy::cast_precision_loss, clippy::float_cmp, reason = "it is at most 2^53")]
    (cut as f64 == value).then_some(cut)
}

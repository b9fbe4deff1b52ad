//! Numbers that Redis's Lua scripts can hold: Lua 5.1 knows only doubles.
//!
//! The scripts (`tidegate-redis/lua/`, one for each algorithm) keep the state and answer yes or no. The numbers that
//! go with the answer are computed in Rust from the state before the decision, so that the arithmetic of
//! `remaining` and `retry_after` exists once, wherever the state is stored.
//!
//! Invariant A number that is sent is whole and below 2^53. The exception is `warmup`: its script adds and
//!           multiplies doubles in the same order as Rust does, so both get the same bits.

use crate::rate::Ticks;
use alloc::vec::Vec;
use core::fmt;

/// Up to this number, a double represents every integer exactly.
const DOUBLE_MAX: u64 = 1 << 53;

/// The error for a rule whose numbers Redis's Lua scripts cannot represent exactly.
///
/// Such a rule takes more than a century to recover, or its rate has more digits than a double.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLargeForLua;

impl fmt::Display for TooLargeForLua {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "the rule's numbers are too large for Redis's Lua scripts: it must recover within 140 years, and \
             its rate must be a fraction of smaller numbers",
        )
    }
}

impl core::error::Error for TooLargeForLua {}

/// Converts to a double, if a double represents the number exactly.
#[expect(clippy::cast_precision_loss, reason = "below 2^53 there is none")]
pub(crate) fn exact_f64(value: u64) -> Option<f64> {
    (value < DOUBLE_MAX).then_some(value as f64)
}

/// Converts to a double, if the script can add two numbers of this size exactly.
pub(crate) fn exact_f64_addend(value: u64) -> Option<f64> {
    exact_f64(value.checked_mul(2)?)?;
    exact_f64(value)
}

/// Converts a double to the whole number that it represents; `None` for fractions, negative numbers and NaN.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "it is whole and in range"
)]
pub(crate) fn exact_u64(value: f64) -> Option<u64> {
    #[expect(clippy::cast_precision_loss, reason = "a power of two")]
    let max = DOUBLE_MAX as f64;
    // `f64::fract` is not in core.
    let cut = if (0.0..=max).contains(&value) { value as u64 } else { return None };
    #[expect(clippy::cast_precision_loss, clippy::float_cmp, reason = "it is at most 2^53")]
    (cut as f64 == value).then_some(cut)
}

impl Ticks {
    /// Splits a number of ticks into whole microseconds and the remaining ticks, as the scripts count.
    ///
    /// Returns `None` if a double could not hold the sum of two such numbers.
    pub(crate) fn split_parts(self, ticks: u128) -> Option<[f64; 2]> {
        let [us, rest] = self.parts(ticks);
        Some([exact_f64_addend(us?)?, exact_f64_addend(rest?)?])
    }

    /// Splits an instant in ticks like [`split_parts`](Self::split_parts). An instant may be larger: only
    /// numbers that `split_parts` accepted are added to it.
    pub(crate) fn split_instant(self, instant: u128) -> Option<[f64; 2]> {
        let [us, rest] = self.parts(instant);
        Some([exact_f64(us?)?, exact_f64_addend(rest?)?])
    }

    fn parts(self, ticks: u128) -> [Option<u64>; 2] {
        let per_us = u128::from(self.per_us);
        [ticks / per_us, ticks % per_us].map(|part| u64::try_from(part).ok())
    }

    /// Returns a cost in the units of the script; `None` if it does not fit.
    pub(crate) fn cost_to_lua(self, cost: u64) -> Option<Vec<f64>> {
        Some(self.split_parts(self.of_cost(cost))?.to_vec())
    }

    /// Returns a state that is one instant as the script stores it; `None` if it does not fit.
    pub(crate) fn instant_to_lua(self, instant: u128) -> Option<Vec<f64>> {
        Some(self.split_instant(instant)?.to_vec())
    }

    /// Restores the instant from the numbers of [`instant_to_lua`](Self::instant_to_lua).
    pub(crate) fn instant_from_lua(self, numbers: &[f64]) -> Option<u128> {
        let [us, rest] = *numbers else { return None };
        self.join_parts(us, rest)
    }

    /// Joins what [`split_parts`](Self::split_parts) or [`split_instant`](Self::split_instant) made.
    pub(crate) fn join_parts(self, us: f64, rest: f64) -> Option<u128> {
        Some(u128::from(exact_u64(us)?) * u128::from(self.per_us) + u128::from(exact_u64(rest)?))
    }
}

//! Whole numbers and spans of time as rules write them: digits, and a unit.
//!
//! Always   No sign, no fraction, no exponent, no separators: what is not plainly a whole number is
//!          an error that says so. Too large is an error too, never a wrap.

use super::error::RuleErrorKind;
use super::parse::Word;
use crate::rate::{COUNT_MAX, PERIOD_MAX};
use crate::time::{Span, UNITS};

type Result<T> = core::result::Result<T, super::RuleError>;

/// A count of at least 1.
pub(super) fn count(word: Word<'_>, what: &'static str) -> Result<u64> {
    match count_or_zero(word, what)? {
        0 => Err(word.error(RuleErrorKind::Zero { what })),
        count => Ok(count),
    }
}

/// A count that may be 0.
pub(super) fn count_or_zero(word: Word<'_>, what: &'static str) -> Result<u64> {
    let digits = word.digits();
    if digits.text.is_empty() || digits.text.len() != word.text.len() {
        return Err(word.error(RuleErrorKind::Expected { expected: "a whole number" }));
    }
    match digits.text.parse::<u64>() {
        Ok(count) if count <= COUNT_MAX => Ok(count),
        _ => Err(word.error(RuleErrorKind::TooLarge { what, max: COUNT_MAX })),
    }
}

/// A span of at least a microsecond: `500ms`, `2s`, `30min`.
pub(super) fn span(word: Word<'_>, what: &'static str) -> Result<Span> {
    let digits = word.digits();
    if digits.text.is_empty() {
        let expected = "a time such as `500ms`";
        return Err(word.error(RuleErrorKind::Expected { expected }));
    }
    let number = count(digits, what)?;
    let unit = unit(word.from(digits.text.len()))?;
    in_range(word, what, number, unit)
}

/// A period: `s`, `10s`, `30min`. Without a number it is one of the unit.
pub(super) fn period(word: Word<'_>) -> Result<Span> {
    let digits = word.digits();
    if digits.text.is_empty() {
        return unit(word).map(Span::from_micros);
    }
    span(word, "the period")
}

fn in_range(word: Word<'_>, what: &'static str, number: u64, unit_us: u64) -> Result<Span> {
    match number.checked_mul(unit_us).map(Span::from_micros) {
        Some(span) if span <= PERIOD_MAX => Ok(span),
        _ => {
            let max = PERIOD_MAX.as_micros() / unit_us;
            Err(word.error(RuleErrorKind::TooLarge { what, max }))
        }
    }
}

/// The microseconds of a unit.
fn unit(word: Word<'_>) -> Result<u64> {
    if word.text.is_empty() {
        let expected = "a unit: us, ms, s, min, h, day or week";
        return Err(word.error(RuleErrorKind::Unfinished { expected }));
    }
    let known = UNITS.iter().find(|(name, _)| *name == word.text);
    known
        .map(|(_, us)| *us)
        .ok_or_else(|| word.error(RuleErrorKind::UnknownUnit { hint: hint(word.text) }))
}

/// What people write who mean one of our units.
fn hint(unit: &str) -> Option<&'static str> {
    Some(match unit {
        "sec" | "secs" | "second" | "seconds" | "S" => "s",
        "m" | "minute" | "minutes" | "mins" | "M" => "min",
        "hour" | "hours" | "hr" | "hrs" | "H" => "h",
        "d" | "days" | "D" => "day",
        "w" | "weeks" | "W" => "week",
        "µs" | "μs" | "usec" | "microsecond" | "microseconds" => "us",
        "msec" | "millis" | "millisecond" | "milliseconds" => "ms",
        "mo" | "month" | "months" => "month calendar",
        "y" | "yr" | "year" | "years" => "year calendar",
        _ => return None,
    })
}

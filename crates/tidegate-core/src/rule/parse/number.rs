//! Whole numbers and spans of time in rules: digits, and a unit.
//!
//! Always   A number has no sign, fraction, exponent or separator: everything but plain digits is an error. A number that is
//!          too large is an error too, and never wraps around.

use super::super::diagnostics::words::{Word, Words};
use super::super::diagnostics::{BYTES_MAX, RuleError, RuleErrorKind, unit_names};
use crate::rate::{COUNT_MAX, PERIOD_MAX};
use crate::time::{Span, UNITS};
use alloc::format;
use alloc::string::{String, ToString};

type Result<T> = core::result::Result<T, RuleError>;

/// Parses a count of at least 1.
pub(super) fn count(word: Word<'_>, what: &'static str) -> Result<u64> {
    match count_or_zero(word, what)? {
        0 => Err(word.error(RuleErrorKind::Zero { what, least: "1" })),
        count => Ok(count),
    }
}

/// Parses a count that may be 0.
pub(super) fn count_or_zero(word: Word<'_>, what: &'static str) -> Result<u64> {
    if word.text.is_empty() {
        return Err(word.error(RuleErrorKind::Missing { what: "a number" }));
    }
    if word.digits().text.len() != word.text.len() {
        return Err(word.error(no_number(word.text)));
    }
    match word.text.parse::<u64>() {
        Ok(count) if count <= COUNT_MAX => Ok(count),
        _ => Err(word.error(RuleErrorKind::TooLarge { what, max: COUNT_MAX, unit: "" })),
    }
}

fn no_number(text: &str) -> RuleErrorKind {
    match written_out(text) {
        Some(count) => {
            let why = "a number is written out in digits";
            RuleErrorKind::Rewrite { why, write: count.to_string() }
        }
        None => RuleErrorKind::Expected { expected: "a whole number" },
    }
}

/// Returns the number that is meant by `1_000`, `1,000`, `10k`, `2M` or `1e9`.
fn written_out(text: &str) -> Option<u64> {
    let plain: String = text.chars().filter(|c| !['_', ',', '\''].contains(c)).collect();
    let (digits, zeros) = if let Some((digits, zeros)) = plain.split_once(['e', 'E']) {
        (digits, zeros.parse().ok()?)
    } else if let Some(digits) = plain.strip_suffix(['k', 'K']) {
        (digits, 3)
    } else if let Some(digits) = plain.strip_suffix('M') {
        (digits, 6)
    } else if let Some(digits) = plain.strip_suffix('G') {
        (digits, 9)
    } else {
        (plain.as_str(), 0)
    };
    let is_number = digits.chars().all(|c| c.is_ascii_digit());
    let number: u64 = is_number.then(|| digits.parse().ok())??;
    let count = number.checked_mul(10_u64.checked_pow(zeros)?)?;
    (1..=COUNT_MAX).contains(&count).then_some(count)
}

/// Parses a text that is a span and nothing else.
pub(in crate::rule) fn whole_span(text: &str) -> Result<Span> {
    if text.len() > BYTES_MAX {
        return Err(RuleError::new(text, 0..0, RuleErrorKind::TooLong));
    }
    let mut words = Words::new(text);
    let Some(word) = words.next() else {
        let what = "a time such as `500ms`";
        return Err(RuleError::new(text, 0..0, RuleErrorKind::Missing { what }));
    };
    let span = span(word, "the time")?;
    match words.next() {
        Some(more) => {
            Err(more.error(RuleErrorKind::Conflict { why: "a time is one number and its unit" }))
        }
        None => Ok(span),
    }
}

/// Parses a span of at least a microsecond: `500ms`, `2s`, `30min`.
pub(super) fn span(word: Word<'_>, what: &'static str) -> Result<Span> {
    let digits = word.digits();
    if digits.text.is_empty() {
        let expected = "a time such as `500ms`";
        return Err(word.error(RuleErrorKind::Expected { expected }));
    }
    let rest = word.from(digits.text.len());
    if rest.text.starts_with('.') {
        return Err(word.error(fraction(digits.text, &rest.text[1..])));
    }
    let unit = unit(rest)?;
    if digits.text.bytes().all(|digit| digit == b'0') {
        return Err(digits.error(RuleErrorKind::Zero { what, least: "1us" }));
    }
    let us = digits.text.parse::<u64>().ok().and_then(|number| number.checked_mul(unit));
    us.map(Span::from_micros).filter(|span| *span <= PERIOD_MAX).ok_or_else(|| {
        let max = PERIOD_MAX.as_micros() / DAY_US;
        word.error(RuleErrorKind::TooLarge { what, max, unit: "day" })
    })
}

const DAY_US: u64 = 86_400_000_000;

/// `1.5s` is `1500ms`.
fn fraction(whole: &str, rest: &str) -> RuleErrorKind {
    let exact = || {
        let end = rest.find(|c: char| !c.is_ascii_digit())?;
        let (part, unit) = rest.split_at(end);
        let unit = UNITS.iter().find(|(name, _)| *name == unit)?.1;
        let scale = 10_u64.checked_pow(u32::try_from(part.len()).ok()?)?;
        let scaled = format!("{whole}{part}").parse::<u64>().ok()?.checked_mul(unit)?;
        let span = Span::from_micros(scaled / scale);
        (scaled.is_multiple_of(scale) && !span.is_zero() && span <= PERIOD_MAX).then_some(span)
    };
    match exact() {
        Some(span) => {
            let why = "a time is a whole number of its unit";
            RuleErrorKind::Rewrite { why, write: span.to_string() }
        }
        None => RuleErrorKind::Expected { expected: "a whole number and a unit, such as `1500ms`" },
    }
}

/// Parses a period: `s`, `10s`, `30min`. Without a number it is one unit.
pub(super) fn period(word: Word<'_>) -> Result<Span> {
    match word.text.chars().next() {
        Some('0'..='9') => span(word, "the period"),
        Some('-' | '+' | '.') => {
            let expected = "a unit, or a time such as `10s`";
            Err(word.error(RuleErrorKind::Expected { expected }))
        }
        _ => unit(word).map(Span::from_micros),
    }
}

/// Returns the microseconds of a unit.
fn unit(word: Word<'_>) -> Result<u64> {
    if word.text.is_empty() {
        return Err(without_unit(word));
    }
    let known = UNITS.iter().find(|(name, _)| *name == word.text);
    known.map(|(_, us)| *us).ok_or_else(|| {
        word.error(RuleErrorKind::UnknownUnit { hint: unit_names::synonym(word.text) })
    })
}

/// Returns the error of a missing unit, or of a space before it, as in `5/15 min`.
fn without_unit(word: Word<'_>) -> RuleError {
    let joined = word.after().next().and_then(|next| Some((next, unit_names::meant(next.text)?)));
    match joined {
        Some((next, unit)) if word.unbroken().len() <= SHOWN_BYTES_MAX => {
            let why = "there must be no space before a unit";
            let write = format!("{}{unit}", word.unbroken());
            next.error(RuleErrorKind::Rewrite { why, write })
        }
        _ => {
            let what = "a unit (us, ms, s, min, h, day or week)";
            word.error(RuleErrorKind::Missing { what })
        }
    }
}

/// The longest part of a rule that is repeated in a suggestion.
const SHOWN_BYTES_MAX: usize = 40;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_one_number_and_its_unit() {
        assert_eq!("1s".parse(), Ok(Span::from_secs(1)));
        assert_eq!(" 30min ".parse(), Ok(Span::from_secs(1_800)));
        let refused = |text: &str| text.parse::<Span>().unwrap_err().message();
        assert_eq!(refused(""), "a time such as `500ms` is missing here");
        assert_eq!(refused("0s"), "the time must be at least 1us");
        assert_eq!(refused("1.5s"), "a time is a whole number of its unit: write `1500ms`");
        assert_eq!(
            refused("1s 500ms"),
            "`500ms` is not allowed here: a time is one number and its unit"
        );
        assert_eq!(refused("1 s"), "there must be no space before a unit: write `1s`");
        for text in ["soon", "-1s", "1", "s", "99999999999999999999s", &"9".repeat(300)] {
            assert!(text.parse::<Span>().is_err(), "{text:?} was read");
        }
    }
}

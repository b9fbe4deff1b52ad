//! The anchor of fixed windows: an instant in RFC 3339, with its offset, which is printed again.
//!
//! Always   Only existing instants from 1970 on: no February 30th, no 25th hour, no leap second.

use super::super::diagnostics::words::Word;
use super::super::diagnostics::{RuleError, RuleErrorKind};
use crate::time::{Span, civil};
use core::fmt;

/// An instant in whole seconds, and the offset in which it was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Anchor {
    /// Seconds since the epoch in local time at the offset.
    local_secs: u64,
    offset_mins: i64,
}

const DAY_SECS: u64 = 86_400;

impl Anchor {
    /// Returns the start of the first window after the epoch, whose distance to the anchor is a multiple of the period.
    pub(crate) fn offset_within(&self, period: Span) -> Span {
        let us = (i128::from(self.local_secs) - i128::from(self.offset_mins) * 60) * 1_000_000;
        let offset = us.rem_euclid(i128::from(period.as_micros()));
        Span::from_wide(offset.unsigned_abs())
    }

    pub(super) fn parse(word: Word<'_>) -> Result<Self, RuleError> {
        read(word.text.as_bytes()).ok_or_else(|| {
            let expected = "`first`, or an instant such as `2024-01-01T00:00:00+08:00`";
            word.error(RuleErrorKind::Expected { expected })
        })
    }
}

/// Parses `YYYY-MM-DDThh:mm:ss` and `Z` or `±hh:mm`.
fn read(text: &[u8]) -> Option<Anchor> {
    let [
        y1,
        y2,
        y3,
        y4,
        b'-',
        mo1,
        mo2,
        b'-',
        d1,
        d2,
        b'T',
        h1,
        h2,
        b':',
        mi1,
        mi2,
        b':',
        s1,
        s2,
        zone @ ..,
    ] = text
    else {
        return None;
    };
    let year = digits(&[*y1, *y2, *y3, *y4], 1970..=9999)?;
    let month = digits(&[*mo1, *mo2], 1..=12)?;
    let day = digits(&[*d1, *d2], 1..=civil::days_in_month(year, month))?;
    let hour = digits(&[*h1, *h2], 0..=23)?;
    let minute = digits(&[*mi1, *mi2], 0..=59)?;
    let second = digits(&[*s1, *s2], 0..=59)?;
    let offset_mins = match zone {
        [b'Z'] => 0,
        [sign @ (b'+' | b'-'), h1, h2, b':', m1, m2] => {
            let hours = digits(&[*h1, *h2], 0..=23)?;
            let minutes = digits(&[*m1, *m2], 0..=59)?;
            let offset = i64::try_from(hours * 60 + minutes).ok()?;
            if *sign == b'-' { -offset } else { offset }
        }
        _ => return None,
    };
    let days = civil::days_since_epoch(year, month, day);
    let local_secs = days * DAY_SECS + hour * 3_600 + minute * 60 + second;
    Some(Anchor { local_secs, offset_mins })
}

fn digits(text: &[u8], range: core::ops::RangeInclusive<u64>) -> Option<u64> {
    let mut value = 0;
    for digit in text {
        value = value * 10 + u64::from(digit.checked_sub(b'0').filter(|digit| *digit < 10)?);
    }
    range.contains(&value).then_some(value)
}

impl fmt::Display for Anchor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let civil::Date { year, month, day } = civil::date_of(self.local_secs / DAY_SECS);
        let secs = self.local_secs % DAY_SECS;
        let (hour, minute, second) = (secs / 3_600, secs / 60 % 60, secs % 60);
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}")?;
        if self.offset_mins == 0 {
            return f.write_str("Z");
        }
        let sign = if self.offset_mins < 0 { '-' } else { '+' };
        let offset = self.offset_mins.unsigned_abs();
        write!(f, "{sign}{:02}:{:02}", offset / 60, offset % 60)
    }
}

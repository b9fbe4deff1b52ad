//! Fixed and calendar windows: a log of admissions, of which those in the current window are counted.
//!
//! The window of an instant is computed with integers for `fixed`, and with jiff for `calendar`.

use super::{Admission, ExpectedDecision, Oracle, give_back, smallest_wait, total};
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use jiff::{RoundMode, ToSpan, Unit, ZonedRound};
use tidegate_core::{CalendarUnit, Retry, Span, Timestamp, Verdict, Window};

/// How time is divided into windows.
#[derive(Clone, Copy, Debug)]
pub enum Cut {
    /// Windows start at this many microseconds from the epoch, and at whole periods before and after it.
    Aligned {
        /// May be negative.
        from_us: i128,
        /// The length of a window.
        period: Span,
    },
    /// A window starts with the first admission outside of one.
    FirstAdmission {
        /// The length of a window.
        period: Span,
    },
    /// A unit of the UTC calendar, up to the year 9999.
    Calendar(CalendarUnit),
}

/// One key.
#[derive(Clone, Debug)]
pub struct Windows {
    count: u64,
    cut: Cut,
    log: Vec<Admission>,
}

impl Windows {
    /// Starts with an unused key.
    pub fn new(count: u64, cut: Cut) -> Self {
        Self { count, cut, log: Vec::new() }
    }

    /// Returns the window of `now`, if there is one.
    fn window(&self, now: Timestamp) -> Option<Window> {
        match self.cut {
            Cut::Aligned { from_us, period } => Some(aligned(now, from_us, period)),
            Cut::FirstAdmission { period } => self.opened(now, period),
            Cut::Calendar(unit) => Some(calendar(now, unit)),
        }
    }

    fn opened(&self, now: Timestamp, period: Span) -> Option<Window> {
        let mut open: Option<Window> = None;
        for Admission { at, .. } in &self.log {
            if open.is_none_or(|window| *at >= window.end) {
                open = Some(Window { start: *at, end: *at + period });
            }
        }
        open.filter(|window| now < window.end)
    }

    fn used(&self, now: Timestamp) -> u64 {
        let window = self.window(now);
        total(&self.log, |at| window.is_some_and(|window| window.start <= at && at < window.end))
    }

    /// Returns the smallest wait after which `holds` is true. At the end of the window, no earlier admission counts.
    fn wait_until(&self, now: Timestamp, holds: impl Fn(u64) -> bool) -> Span {
        let most = self.window(now).map_or(Span::ZERO, |window| window.end.since(now));
        if let Cut::Calendar(_) = self.cut {
            // Calling jiff at every step of a search would take too long, so only the relevant instants are tried.
            if holds(self.used(now)) {
                return Span::ZERO;
            }
            assert!(!holds(self.used(now + most.saturating_sub(Span::from_micros(1)))));
            assert!(holds(self.used(now + most)));
            return most;
        }
        smallest_wait(most, |wait| holds(self.used(now + wait)))
    }
}

impl Oracle for Windows {
    fn decide(&mut self, now: Timestamp, cost: u64) -> ExpectedDecision {
        let fits = |used: u64| u128::from(used) + u128::from(cost) <= u128::from(self.count);
        let verdict = if cost > self.count {
            Verdict::Deny(Retry::Never)
        } else if fits(self.used(now)) {
            Verdict::Allow
        } else {
            Verdict::Deny(Retry::After(self.wait_until(now, fits)))
        };
        if verdict == Verdict::Allow && cost > 0 {
            self.log.push(Admission { at: now, cost });
        }
        ExpectedDecision {
            verdict,
            limit: self.count,
            remaining: self.count - self.used(now),
            reset_after: self.wait_until(now, |used| used == 0),
        }
    }

    fn refund(&mut self, now: Timestamp, cost: u64) {
        let window = self.window(now);
        give_back(&mut self.log, cost, |at| {
            window.is_some_and(|window| window.start <= at && at < window.end)
        });
    }
}

fn aligned(now: Timestamp, from_us: i128, period: Span) -> Window {
    let period = i128::from(period.as_micros());
    let index = (i128::from(now.as_micros()) - from_us).div_euclid(period);
    let edge = |index: i128| timestamp(from_us + index * period);
    Window { start: edge(index), end: edge(index + 1) }
}

/// Returns the window of the UTC calendar that contains `now`, computed by jiff. Weeks start on Monday.
///
/// # Panics
///
/// After the year 9998, because jiff supports no later time.
pub fn calendar(now: Timestamp, unit: CalendarUnit) -> Window {
    let us = i64::try_from(now.as_micros()).expect("it is before the year 9999");
    let now = jiff::Timestamp::from_microsecond(us).expect("it is before the year 9999");
    let now = now.to_zoned(TimeZone::UTC);
    let cut = |unit: Unit| {
        let down = ZonedRound::new().smallest(unit).mode(RoundMode::Trunc);
        now.round(down).expect("time can be cut to days and less").datetime()
    };
    let midnight = cut(Unit::Day);
    let (start, length) = match unit {
        CalendarUnit::Minute => (cut(Unit::Minute), 1.minute()),
        CalendarUnit::Hour => (cut(Unit::Hour), 1.hour()),
        CalendarUnit::Day => (midnight, 1.day()),
        CalendarUnit::Week => {
            let days_since_monday = i64::from(now.weekday().to_monday_zero_offset());
            (midnight - days_since_monday.days(), 1.week())
        }
        CalendarUnit::Month => (midnight.first_of_month(), 1.month()),
        CalendarUnit::Year => (midnight.first_of_year(), 1.year()),
    };
    Window { start: instant(start), end: instant(start + length) }
}

fn instant(datetime: DateTime) -> Timestamp {
    let zoned = datetime.to_zoned(TimeZone::UTC).expect("UTC has every time of day");
    timestamp(i128::from(zoned.timestamp().as_microsecond()))
}

/// Moves an instant before the epoch to the epoch, because there are no requests before it.
fn timestamp(us: i128) -> Timestamp {
    Timestamp::from_micros(u64::try_from(us.max(0)).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jiff_knows_the_leap_day_and_the_monday() {
        // 2024-02-29T12:00:00Z, a Thursday.
        let noon = Timestamp::from_micros(1_709_208_000_000_000);
        let day = 86_400_000_000;
        let midnight = noon.as_micros() - day / 2;
        let window = |start: u64, days: u64| Window {
            start: Timestamp::from_micros(start),
            end: Timestamp::from_micros(start + days * day),
        };
        assert_eq!(calendar(noon, CalendarUnit::Day), window(midnight, 1));
        assert_eq!(calendar(noon, CalendarUnit::Week), window(midnight - 3 * day, 7));
        assert_eq!(calendar(noon, CalendarUnit::Month), window(midnight - 28 * day, 29));
        assert_eq!(calendar(noon, CalendarUnit::Year), window(midnight - 59 * day, 366));
    }
}

//! A slow oracle for the windows of a calendar in a named time zone.
//!
//! It computes nothing from dates: it finds the instant at which a day begins by bisection. From the time zone database
//! it takes only the offset of a zone's clock from UTC, and when the offset changes.
//!
//! Always   Days and longer units never begin twice: if a clock is set back over midnight, the new day has begun and
//!          continues. Minutes and hours end where the clock is changed within them.

use jiff::tz::TimeZone;
use std::sync::Arc;
use tidegate_core::{CalendarUnit, Timestamp, Window, Windows};

/// The windows of a zone in the database.
pub(super) fn find(unit: CalendarUnit, name: &str) -> Option<Arc<dyn Windows>> {
    let zone = TimeZone::get(name).ok()?;
    Some(Arc::new(Zone { unit, zone }))
}

#[derive(Debug)]
struct Zone {
    unit: CalendarUnit,
    zone: TimeZone,
}

const SECOND_US: i64 = 1_000_000;
const DAY_US: i64 = 86_400 * SECOND_US;
/// Maximum length of a window, and so the distance to search in both directions for its ends.
const WINDOW_US_MAX: i64 = 367 * DAY_US;

impl Windows for Zone {
    fn window_at(&self, now: Timestamp) -> Window {
        let last = jiff::Timestamp::MAX.as_microsecond() - 2 * WINDOW_US_MAX;
        match i64::try_from(now.as_micros()) {
            Ok(now) if now <= last => self.around(now),
            // The calendar ends in the year 9996, and no scenario is later.
            _ => Window { start: now, end: Timestamp::MAX },
        }
    }
}

impl Zone {
    fn around(&self, now: i64) -> Window {
        let (start, end) = match self.unit {
            CalendarUnit::Minute => self.clock_window(now, 60 * SECOND_US),
            CalendarUnit::Hour => self.clock_window(now, 3_600 * SECOND_US),
            _ => {
                let number = self.number_reached(now);
                let begins = |number| {
                    let first = now - WINDOW_US_MAX;
                    halve(first, now + WINDOW_US_MAX, |at| self.number_reached(at) >= number)
                };
                (begins(number), begins(number + 1))
            }
        };
        Window { start: timestamp(start), end: timestamp(end) }
    }

    fn clock_window(&self, now: i64, length: i64) -> (i64, i64) {
        let start = now - (now + self.offset(now)).rem_euclid(length);
        let (mut from, mut to) = (start, start + length);
        if let Some(change) = self.last_change(now) {
            from = from.max(change);
        }
        if let Some(change) = self.last_change(to - 1).filter(|change| *change > now) {
            to = change;
        }
        (from, to)
    }

    /// Returns the highest day (week, month, year) that the zone's calendar has shown until now.
    fn number_reached(&self, at: i64) -> i64 {
        let now = self.number(at);
        self.last_change(at).map_or(now, |change| now.max(self.number(change - 1)))
    }

    /// Returns the number of the day (week, month, year) that the zone's calendar shows.
    fn number(&self, at: i64) -> i64 {
        let days = (at + self.offset(at)).div_euclid(DAY_US);
        let date = instant(days * DAY_US).to_zoned(TimeZone::UTC).date();
        let year = i64::from(date.year());
        match self.unit {
            CalendarUnit::Year => year,
            CalendarUnit::Month => year * 12 + i64::from(date.month()),
            // The epoch was a Thursday, three days after a Monday.
            CalendarUnit::Week => (days + 3).div_euclid(7),
            _ => days,
        }
    }

    /// Returns the offset of the zone's clock from UTC.
    fn offset(&self, at: i64) -> i64 {
        i64::from(self.zone.to_offset(instant(at)).seconds()) * SECOND_US
    }

    /// Returns when the zone's clock was last changed, at or before this instant.
    fn last_change(&self, at: i64) -> Option<i64> {
        let mut changes =
            self.zone.preceding(instant(at + 1)).map(|t| t.timestamp().as_microsecond());
        changes.find(|change| self.offset(*change) != self.offset(change - 1))
    }
}

/// Returns the first instant for which `is_after` holds; it does not hold for `low`, and does for `high`.
fn halve(mut low: i64, mut high: i64, is_after: impl Fn(i64) -> bool) -> i64 {
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if is_after(middle) {
            high = middle;
        } else {
            low = middle;
        }
    }
    high
}

fn instant(us: i64) -> jiff::Timestamp {
    jiff::Timestamp::from_microsecond(us).unwrap_or(jiff::Timestamp::MAX)
}

/// Moves a start before 1970 to the epoch, which is the earliest timestamp.
fn timestamp(us: i64) -> Timestamp {
    Timestamp::from_micros(u64::try_from(us).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use CalendarUnit::{Day, Hour, Minute, Month, Week, Year};

    /// Tests instants from before one change of the clock to after the next.
    #[test]
    fn windows_follow_each_other_without_gaps_or_overlaps() {
        let zones = ["America/St_Johns", "Australia/Lord_Howe", "Pacific/Apia", "Asia/Shanghai"];
        for zone in zones {
            for (unit, count) in
                [(Minute, 120), (Hour, 400), (Day, 400), (Week, 60), (Month, 14), (Year, 2)]
            {
                let windows = find(unit, zone).expect("the database has it");
                let mut window = windows.window_at(Timestamp::from_micros(1_289_095_500_000_000));
                for _ in 0..count {
                    let next = windows.window_at(window.end);
                    let before = Timestamp::from_micros(window.end.as_micros() - 1);
                    assert_eq!(next.start, window.end, "{zone} {unit:?}");
                    assert_eq!(windows.window_at(before), window, "{zone} {unit:?}");
                    window = next;
                }
            }
        }
    }

    #[test]
    fn a_window_that_starts_before_1970_starts_at_the_epoch() {
        let windows = find(Day, "America/New_York").expect("the database has it");
        let window = windows.window_at(Timestamp::EPOCH);
        assert_eq!((window.start, window.end.as_micros()), (Timestamp::EPOCH, 18_000_000_000));
    }

    #[test]
    fn a_zone_that_does_not_exist_is_not_found() {
        assert!(find(Day, "Mars/Olympus").is_none());
    }
}

//! The windows of a calendar in a named time zone, from jiff's time zone database (A2).
//!
//! Always   Windows touch and do not overlap, also where the zone changes its clock. Days, weeks, months and years begin
//!          with the first instant of their first date: if the clock goes back over midnight, the day does not begin a
//!          second time. A minute or hour ends early if the zone's clock is changed within it.

use crate::sync::lock_std;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{Span as Step, ToSpan, Zoned};
use std::sync::{Arc, Mutex};
use tidegate_core::{CalendarUnit, Timestamp, Window, Windows};

/// Returns the windows of a zone, if the database contains it.
pub(crate) fn find(unit: CalendarUnit, zone: &str) -> Option<Arc<dyn Windows>> {
    let zone = TimeZone::get(zone).ok()?;
    Some(Arc::new(ZoneWindows { unit, zone, last: Mutex::new(None) }))
}

#[derive(Debug)]
struct ZoneWindows {
    unit: CalendarUnit,
    zone: TimeZone,
    /// The window of the last call, which most calls need again.
    last: Mutex<Option<Window>>,
}

impl Windows for ZoneWindows {
    fn window_at(&self, now: Timestamp) -> Window {
        let mut last = lock_std(&self.last);
        match *last {
            Some(window) if window.start <= now && now < window.end => window,
            _ => *last.insert(self.compute(now)),
        }
    }
}

impl ZoneWindows {
    fn compute(&self, now: Timestamp) -> Window {
        // The calendar ends with the year 9999: its last window lasts for ever.
        let end_of_calendar = jiff::Timestamp::MAX;
        let within = now.min(micros(end_of_calendar));
        let computed = zoned(within, &self.zone).and_then(|zoned| match self.unit {
            CalendarUnit::Minute => Some(self.by_clock(&zoned, 60)),
            CalendarUnit::Hour => Some(self.by_clock(&zoned, 3_600)),
            _ => self.by_date(&zoned),
        });
        let mut window = computed.unwrap_or(Window { start: within, end: Timestamp::MAX });
        if window.end > micros(end_of_calendar) {
            window.end = Timestamp::MAX;
        }
        window
    }

    /// Returns a minute or an hour of the zone's clock, cut off where that clock is changed.
    fn by_clock(&self, now: &Zoned, length_secs: i64) -> Window {
        let time = now.time();
        let into_secs = (i64::from(time.minute()) * 60 + i64::from(time.second())) % length_secs;
        let now_us = now.timestamp().as_microsecond();
        let start_us = now_us - into_secs * 1_000_000 - i64::from(time.subsec_nanosecond()) / 1_000;
        let end_us = start_us + length_secs * 1_000_000;
        let changes = |at: &jiff::Timestamp| {
            let before = *at - 1.nanoseconds();
            self.zone.to_offset(before) != self.zone.to_offset(*at)
        };
        let after_now = now.timestamp() + 1.nanoseconds();
        let last = self.zone.preceding(after_now).map(|t| t.timestamp()).find(changes);
        let next = self.zone.following(now.timestamp()).map(|t| t.timestamp()).find(changes);
        let start_us = last.map_or(start_us, |last| start_us.max(last.as_microsecond()));
        let end_us = next.map_or(end_us, |next| end_us.min(next.as_microsecond()));
        Window { start: from_micros(start_us), end: from_micros(end_us) }
    }

    /// Returns a day or a longer window: from the first instant of one date to the first instant of another.
    fn by_date(&self, now: &Zoned) -> Option<Window> {
        let step: Step = match self.unit {
            CalendarUnit::Month => 1.month(),
            CalendarUnit::Year => 1.year(),
            CalendarUnit::Week => 1.week(),
            _ => 1.day(),
        };
        let first = self.first_date(now.date());
        let mut window = self.between(first, step)?;
        // If the clock went back over midnight, the date is again that of the previous window.
        if micros(now.timestamp()) >= window.end {
            window = self.between(first.checked_add(step).ok()?, step)?;
        }
        Some(window)
    }

    fn first_date(&self, date: Date) -> Date {
        match self.unit {
            CalendarUnit::Year => date.first_of_year(),
            CalendarUnit::Month => date.first_of_month(),
            CalendarUnit::Week => {
                let since_monday = date.weekday().to_monday_zero_offset();
                date.checked_sub(i64::from(since_monday).days()).unwrap_or(date)
            }
            _ => date,
        }
    }

    fn between(&self, first: Date, step: Step) -> Option<Window> {
        let begin = |date: Date| {
            let midnight = date.to_zoned(self.zone.clone()).ok()?;
            Some(micros(midnight.start_of_day().ok()?.timestamp()))
        };
        let next = first.checked_add(step).ok().and_then(begin);
        Some(Window { start: begin(first)?, end: next.unwrap_or(Timestamp::MAX) })
    }
}

fn zoned(now: Timestamp, zone: &TimeZone) -> Option<Zoned> {
    let us = i64::try_from(now.as_micros()).ok()?;
    let timestamp = jiff::Timestamp::from_microsecond(us).ok()?;
    Some(timestamp.to_zoned(zone.clone()))
}

/// Converts a timestamp of jiff. One before 1970 becomes the epoch, because there is no earlier timestamp.
fn micros(timestamp: jiff::Timestamp) -> Timestamp {
    from_micros(timestamp.as_microsecond())
}

fn from_micros(us: i64) -> Timestamp {
    Timestamp::from_micros(u64::try_from(us).unwrap_or(0))
}

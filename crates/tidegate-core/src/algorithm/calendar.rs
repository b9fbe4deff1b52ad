//! Calendar window: `count` per minute, hour, day, week, month or year of a time zone (A2).
//!
//! State    The window's start, and the cost admitted in it.
//! Always   At most `count` per calendar window, also when a day has 23 or 25 hours. [`Windows`] knows the zone and
//!          decides when a day starts; this file only counts.
//! Bound    As for `fixed`: twice the count in any interval as long as a window.
//! Spec     `spec/calendar.md`.

use super::window::{CountedWindows, Counter, Window};
use crate::codec::lua::exact_f64;
use crate::time::civil;
use crate::time::{Span, Timestamp};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

/// The windows of one calendar unit in one time zone, as a pure function of time.
///
/// UTC is built in. Named zones need a time zone database, which this crate does not have; the crate `tidegate` has one.
///
/// ```
/// use std::sync::Arc;
/// use tidegate_core::{Limit, ParsedRule, Span, Timestamp, Window, Windows};
///
/// /// Days of a zone that is one hour ahead of UTC and never changes.
/// #[derive(Debug)]
/// struct OneHourAhead;
///
/// impl Windows for OneHourAhead {
///     fn window_at(&self, now: Timestamp) -> Window {
///         let day_us = 86_400_000_000;
///         let into = (now.as_micros() + 3_600_000_000) % day_us;
///         let start = now - Span::from_micros(into);
///         Window { start, end: start + Span::from_micros(day_us) }
///     }
/// }
///
/// let rule: ParsedRule = "5/day calendar in Europe/Nowhere".parse()?;
/// let limit = Limit::with_windows(rule, |_unit, _zone| Some(Arc::new(OneHourAhead)))?;
/// let now = Timestamp::from_micros(1_700_000_000_000_000);
/// assert_eq!(limit.decide(&mut limit.fresh(now), now, 1).remaining, 4);
/// # Ok::<(), tidegate_core::RuleError>(())
/// ```
pub trait Windows: fmt::Debug + Send + Sync {
    /// Returns the window that contains `now`. Windows follow each other without gaps or overlaps.
    fn window_at(&self, now: Timestamp) -> Window;
}

/// The units of a calendar. A week starts on Monday, as in ISO 8601.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CalendarUnit {
    /// From second 0 to second 0.
    Minute,
    /// From minute 0 to minute 0 of the zone's clock.
    Hour,
    /// From midnight to midnight: 23 to 25 hours.
    Day,
    /// From Monday's midnight to Monday's midnight.
    Week,
    /// From the first of a month to the first of the next.
    Month,
    /// From January 1st to January 1st.
    Year,
}

impl CalendarUnit {
    /// Returns the length of the unit when the zone's offset does not change; `None` for months and years, whose length varies.
    pub(crate) fn usual_length(self) -> Option<Span> {
        match self {
            Self::Minute => Some(Span::from_secs(60)),
            Self::Hour => Some(Span::from_secs(3_600)),
            Self::Day => Some(Span::from_secs(86_400)),
            Self::Week => Some(Span::from_secs(7 * 86_400)),
            Self::Month | Self::Year => None,
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Calendar {
    count: u64,
    windows: Arc<dyn Windows>,
}

impl Calendar {
    pub(crate) fn new(count: u64, windows: Arc<dyn Windows>) -> Self {
        Self { count, windows }
    }
}

impl CountedWindows for Calendar {
    fn count(&self) -> u64 {
        self.count
    }

    fn window_at(&self, counter: &Counter, now: Timestamp) -> Window {
        // Every window lasts at least a minute, so the longest tolerance applies.
        self.windows.window_at(Span::MAX.absorb_skew(counter.start, now))
    }

    /// Returns `false`: two calendars cannot be compared.
    fn has_windows_of(&self, _old: &Self) -> bool {
        false
    }

    /// Returns only the count: the script has no calendar, so each request carries the start and end of its window.
    fn lua_params(&self) -> Option<Vec<f64>> {
        Some([exact_f64(self.count)?].to_vec())
    }
}

/// The windows of UTC, which need no database: UTC has a constant offset, and timestamps have no leap seconds.
#[derive(Debug)]
pub(crate) struct Utc(pub(crate) CalendarUnit);

const DAY_US: u64 = 86_400_000_000;

impl Windows for Utc {
    fn window_at(&self, now: Timestamp) -> Window {
        let period = match self.0 {
            CalendarUnit::Minute => Span::from_secs(60),
            CalendarUnit::Hour => Span::from_secs(3_600),
            CalendarUnit::Day => Span::from_micros(DAY_US),
            CalendarUnit::Week => {
                // 1970-01-01 was a Thursday, so the first Monday was four days later.
                let monday = Span::from_micros(4 * DAY_US);
                return super::window::aligned(now, Span::from_micros(7 * DAY_US), monday);
            }
            CalendarUnit::Month => return by_month(now, 1),
            CalendarUnit::Year => return by_month(now, 12),
        };
        super::window::aligned(now, period, Span::ZERO)
    }
}

/// Returns the window of `months` months (1 or 12) that contains `now`.
fn by_month(now: Timestamp, months: u64) -> Window {
    let date = civil::date_of(now.as_micros() / DAY_US);
    let month = date.year * 12 + (date.month - 1);
    let first = month - month % months;
    let midnight = |month: u64| {
        let day = civil::days_since_epoch(month / 12, month % 12 + 1, 1);
        Timestamp::from_micros(day.saturating_mul(DAY_US))
    };
    Window { start: midnight(first), end: midnight(first + months) }
}

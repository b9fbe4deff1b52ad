//! Calendar window: `count` per minute, hour, day, week, month or year of a time zone (A2).
//!
//! State    The window's start and what has been used of it.
//! Always   At most `count` per calendar window, also when a day has 23 or 25 hours. Which instant
//!          starts a day is not decided here: [`Windows`] knows the zone, this file only counts.
//! Bound    As `fixed`: twice the count in any interval as long as a window.
//! Spec     `spec/calendar.md`.

use super::window::{Counter, Window};
use super::{Algorithm, Usage};
use crate::codec::lua::exact_f64;
use crate::codec::packed::PackedWords;
use crate::decision::Decision;
use crate::time::civil;
use crate::time::{Span, Timestamp};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

/// The windows of a calendar: a pure function of time, for one unit in one zone.
///
/// UTC is built in. Named zones need a time zone database, which core does not have: the `tidegate`
/// crate brings one.
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
    /// The window that `now` lies in. Windows touch and do not overlap.
    ///
    /// ```
    /// # use tidegate_core::{Limit, Timestamp};
    /// let limit: Limit = "5/day calendar".parse()?;
    /// let now = Timestamp::from_micros(86_400_000_001);
    /// let window = limit.window(&limit.fresh(now), now).unwrap();
    /// assert_eq!(window.start, Timestamp::from_micros(86_400_000_000));
    /// # Ok::<(), tidegate_core::RuleError>(())
    /// ```
    fn window_at(&self, now: Timestamp) -> Window;
}

/// The calendar's units. A week starts on Monday, as ISO 8601 has it.
///
/// ```
/// use tidegate_core::{CalendarUnit, Limit, ParsedRule};
///
/// let rule: ParsedRule = "1/week calendar in Europe/Berlin".parse()?;
/// let mut asked = None;
/// let unknown = Limit::with_windows(rule, |unit, zone| {
///     asked = Some((unit, zone.to_owned()));
///     None
/// });
/// assert!(unknown.is_err(), "this database is empty");
/// assert_eq!(asked, Some((CalendarUnit::Week, "Europe/Berlin".to_owned())));
/// # Ok::<(), tidegate_core::RuleError>(())
/// ```
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
    /// How long it is when no clocks are changed; months and years have no such length.
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

    fn window_at(&self, counter: &Counter, now: Timestamp) -> Window {
        // Calendar windows are minutes at the least.
        self.windows.window_at(Span::MAX.absorb_skew(counter.start, now))
    }
}

impl Algorithm for Calendar {
    type State = Counter;

    fn fresh(&self, _birth: Timestamp) -> Counter {
        Counter::default()
    }

    fn decide(&self, counter: &mut Counter, now: Timestamp, cost: u64) -> Decision {
        counter.decide(self.count, self.window_at(counter, now), now, cost)
    }

    fn refund(&self, counter: &mut Counter, now: Timestamp, cost: u64) {
        counter.refund(self.window_at(counter, now), cost);
    }

    fn usage(&self, counter: &Counter, now: Timestamp) -> Usage {
        counter.usage(self.window_at(counter, now), now)
    }

    fn adopt(&self, usage: Usage, now: Timestamp) -> Counter {
        Counter::adopt(usage, self.count, self.windows.window_at(now), now)
    }

    fn to_words(&self, counter: &Counter) -> Vec<u64> {
        counter.pack()[..2].to_vec()
    }

    fn read_words(&self, words: &[u64]) -> Option<Counter> {
        let [start, used] = *words else { return None };
        Some(Counter::unpack(&[start, used, 0]))
    }

    /// The twin is told the edges of its windows with each request: it has no calendar.
    fn lua_params(&self) -> Option<Vec<f64>> {
        Some([exact_f64(self.count)?].to_vec())
    }

    fn state_to_lua(&self, counter: &Counter) -> Option<Vec<f64>> {
        counter.state_to_lua()
    }

    fn state_from_lua(&self, numbers: &[f64]) -> Option<Counter> {
        Counter::state_from_lua(numbers)
    }

    fn packed_words(&self) -> usize {
        2
    }

    fn pack(&self, counter: &Counter, _epoch: Timestamp) -> Option<PackedWords> {
        Some(counter.pack())
    }

    fn unpack(&self, words: &PackedWords, _epoch: Timestamp) -> Counter {
        Counter::unpack(words)
    }

    fn window(&self, counter: &Counter, now: Timestamp) -> Option<Window> {
        Some(self.window_at(counter, now))
    }
}

/// UTC, by arithmetic: no leap seconds and no surprises, so no database.
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
                // 1970-01-01 was a Thursday: the first Monday came four days later.
                let monday = Span::from_micros(4 * DAY_US);
                return super::window::aligned(now, Span::from_micros(7 * DAY_US), monday);
            }
            CalendarUnit::Month => return by_month(now, 1),
            CalendarUnit::Year => return by_month(now, 12),
        };
        super::window::aligned(now, period, Span::ZERO)
    }
}

/// The window of `months` months (1 or 12) around `now`.
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

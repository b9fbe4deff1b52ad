//! The published bounds, as something that can be asked: may so much have passed in so long?
//!
//! This is deliberately not how any algorithm decides: it looks at what has passed, not at a state, so
//! that an auditor who keeps a log can tell whether the algorithm kept its promise.

use crate::algorithm::CalendarUnit;
use crate::limit::Limit;
use crate::rate::Rate;
use crate::rule::Kind;
use crate::time::{Span, Timestamp};

const HOUR: u64 = 3_600;
const DAY: u64 = 24 * HOUR;

impl Limit {
    /// Whether this rule may let `total` units pass between two instants that are `interval` apart,
    /// both included, of which the last request cost `last`. What counts is when requests pass: after
    /// their wait, under a rule that makes them wait (but for nginx's, when they come).
    ///
    /// A concurrency limit bounds how many are in flight, not how many pass, so it permits all.
    ///
    /// ```
    /// # use tidegate_core::{Limit, Span};
    /// let limit: Limit = "10/s burst 5".parse()?;
    /// assert!(limit.permits(15, 1, Span::from_secs(1)));
    /// assert!(!limit.permits(16, 1, Span::from_secs(1)));
    /// # Ok::<(), tidegate_core::RuleError>(())
    /// ```
    pub fn permits(&self, total: u64, last: u64, interval: Span) -> bool {
        let before_last = total.saturating_sub(last);
        match self.rule().kind() {
            Kind::TokenBucket { rate, burst, .. } => total <= refilled(*rate, interval, *burst),
            Kind::Leaky { rate, capacity } => total <= refilled(*rate, interval, *capacity),
            // The last one passes on what the next has to wait for. A wait is rounded up to a whole
            // microsecond, so two that pass may be closer by one than they are.
            Kind::Queue { rate, .. } => before_last <= refilled(*rate, loosened(interval), 0),
            Kind::Warmup { rate, .. } => {
                // Floating point: a few of the last bits may be wrong.
                before_last <= refilled(*rate, loosened(interval), 1 + (total >> 50))
            }
            Kind::Smooth { rate, burst } => {
                let second = || refilled(*rate, Span::from_secs(1), 1);
                before_last <= refilled(*rate, loosened(interval), burst.unwrap_or_else(second))
            }
            Kind::Fixed { rate, .. } => in_windows(total, rate.count, rate.period, interval),
            Kind::Calendar { count, unit, .. } => {
                in_windows(total, *count, shortest(*unit), interval)
            }
            Kind::SlidingLog { rate } => {
                total <= rate.count.saturating_mul(periods(rate.period, interval))
            }
            Kind::Sliding { rate } => {
                let most = rate.count.saturating_mul(2) - 1;
                total <= most.saturating_mul(periods(rate.period, interval))
            }
            Kind::Nginx { count, per_second, burst, .. } => {
                // In its own milliseconds, of which an interval may touch one more than it is long.
                let rate = count * 1_000 / if *per_second { 1 } else { 60 };
                let rate = Rate { count: rate, period: Span::from_secs(1_000) };
                total <= refilled(rate, interval + Span::from_millis(1), burst + 1)
            }
            Kind::Concurrency { .. } => true,
        }
    }
}

impl Limit {
    /// The time by which [`permits`](Self::permits) counts a request that came now and was told to
    /// wait so long.
    ///
    /// ```
    /// # use tidegate_core::{Limit, Span, Timestamp};
    /// let (now, wait) = (Timestamp::EPOCH, Span::from_secs(1));
    /// assert_eq!("10/s queue".parse::<Limit>()?.passes_at(now, wait), now + wait);
    /// assert_eq!("10r/s burst=9".parse::<Limit>()?.passes_at(now, wait), now);
    /// # Ok::<(), tidegate_core::RuleError>(())
    /// ```
    pub fn passes_at(&self, now: Timestamp, wait: Span) -> Timestamp {
        if matches!(self.rule().kind(), Kind::Nginx { .. }) { now } else { now + wait }
    }
}

fn loosened(interval: Span) -> Span {
    interval + Span::from_micros(1)
}

/// `burst + ⌊L · N / P⌋`.
fn refilled(rate: Rate, interval: Span, burst: u64) -> u64 {
    let refill = u128::from(interval.as_micros()) * u128::from(rate.count)
        / u128::from(rate.period.as_micros());
    burst.saturating_add(u64::try_from(refill).unwrap_or(u64::MAX))
}

/// How many periods an interval reaches into, if it begins with one.
fn periods(period: Span, interval: Span) -> u64 {
    interval.as_micros() / period.as_micros() + 1
}

/// As if the interval began just before an edge: one window more.
fn in_windows(total: u64, count: u64, period: Span, interval: Span) -> bool {
    let windows = if interval.is_zero() { 1 } else { periods(period, interval) + 1 };
    total <= count.saturating_mul(windows)
}

/// The shortest that a calendar's window can be, the change of the clocks included.
fn shortest(unit: CalendarUnit) -> Span {
    Span::from_secs(match unit {
        CalendarUnit::Minute => 60,
        CalendarUnit::Hour => HOUR / 2,
        CalendarUnit::Day => DAY - 2 * HOUR,
        CalendarUnit::Week => 7 * DAY - 2 * HOUR,
        CalendarUnit::Month => 28 * DAY - 2 * HOUR,
        CalendarUnit::Year => 365 * DAY - 2 * HOUR,
    })
}

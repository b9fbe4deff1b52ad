//! The published bounds, as something that can be asked: may so much have passed in so long?
//!
//! This is deliberately not how any algorithm decides: it looks at what has passed, not at a state, so
//! that an auditor with a log of requests can verify the algorithm.

use super::Limit;
use crate::algorithm::CalendarUnit;
use crate::rate::Rate;
use crate::rule::RuleKind;
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
            RuleKind::TokenBucket { rate, burst, .. } => total <= refilled(*rate, interval, *burst),
            RuleKind::Leaky { rate, capacity } => total <= refilled(*rate, interval, *capacity),
            // The last one passes on what the next has to wait for. A wait is rounded up to a whole
            // microsecond, so two that pass may be closer by one than they are.
            RuleKind::Queue { rate, .. } => before_last <= refilled(*rate, loosened(interval), 0),
            RuleKind::Warmup { rate, .. } => {
                // Floating point: a few of the last bits may be wrong.
                before_last <= refilled(*rate, loosened(interval), 1 + (total >> 50))
            }
            RuleKind::Smooth { rate, burst } => {
                let second = || refilled(*rate, Span::from_secs(1), 1);
                before_last <= refilled(*rate, loosened(interval), burst.unwrap_or_else(second))
            }
            RuleKind::Fixed { rate, .. } => in_windows(total, rate.count, rate.period, interval),
            RuleKind::Calendar { count, unit, .. } => {
                in_windows(total, *count, shortest(*unit), interval)
            }
            RuleKind::SlidingLog { rate } => {
                total <= rate.count.saturating_mul(periods(rate.period, interval))
            }
            RuleKind::Sliding { rate } => {
                let most = rate.count.saturating_mul(2) - 1;
                total <= most.saturating_mul(periods(rate.period, interval))
            }
            RuleKind::Nginx { count, per_second, burst, .. } => {
                // In its own milliseconds, of which an interval may touch one more than it is long.
                let rate = count * 1_000 / if *per_second { 1 } else { 60 };
                let rate = Rate { count: rate, period: Span::from_secs(1_000) };
                total <= refilled(rate, interval + Span::from_millis(1), burst + 1)
            }
            RuleKind::Nothing => total == 0,
            RuleKind::Concurrency { .. } => true,
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
        if matches!(self.rule().kind(), RuleKind::Nginx { .. }) { now } else { now + wait }
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

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;

    const US: Span = Span::from_micros(1);
    const SECOND: Span = Span::from_secs(1);
    const BEFORE_A_SECOND: Span = Span::from_micros(999_999);

    fn limit(rule: &str) -> Limit {
        rule.parse().unwrap_or_else(|error| panic!("{rule}: {error}"))
    }

    /// So much may pass, the last of it with a cost of one, and no more.
    fn assert_most(rule: &str, interval: Span, most: u64) {
        let limit = limit(rule);
        assert!(limit.permits(most, 1, interval), "{rule}: {most} in {interval}");
        assert!(!limit.permits(most + 1, 1, interval), "{rule}: not only {most} in {interval}");
    }

    #[test]
    fn a_bucket_permits_its_burst_and_what_flows_meanwhile() {
        for rule in ["10/s burst 5", "10/s leaky capacity 5"] {
            assert_most(rule, Span::ZERO, 5);
            assert_most(rule, Span::from_micros(99_999), 5);
            assert_most(rule, Span::from_micros(100_000), 6);
            assert_most(rule, SECOND, 15);
        }
    }

    #[test]
    fn a_queue_permits_one_and_what_flows_to_the_next_rounded_microsecond() {
        assert_most("10/s queue", Span::from_micros(99_998), 1);
        assert_most("10/s queue", Span::from_micros(99_999), 2);
        assert_most("10/s queue", SECOND, 11);
        let queue = limit("10/s queue");
        assert!(queue.permits(13, 3, SECOND), "the last one is paid for by the next");
        assert!(!queue.permits(14, 3, SECOND));
    }

    #[test]
    fn who_pays_later_is_permitted_what_was_saved_and_one() {
        assert_most("10/s smooth burst 5", SECOND, 16);
        assert_most("10/s smooth", SECOND, 22);
        assert_most("10/s warmup 1s", SECOND, 12);
        // WindowStart 2^50 on, one more for each bit that floating point may have lost.
        let long = Span::from_micros(225_179_981_368);
        assert_most("10000/us warmup 1s", long, (long + US).as_micros() * 10_000 + 4);
    }

    #[test]
    fn windows_permit_one_more_than_an_interval_is_long() {
        assert_most("10/s fixed", Span::ZERO, 10);
        assert_most("10/s fixed", US, 20);
        assert_most("10/s fixed", BEFORE_A_SECOND, 20);
        assert_most("10/s fixed", SECOND, 30);
        assert_most("10/s sliding-log", BEFORE_A_SECOND, 10);
        assert_most("10/s sliding-log", SECOND, 20);
        assert_most("10/s sliding", BEFORE_A_SECOND, 19);
        assert_most("10/s sliding", SECOND, 38);
    }

    #[test]
    fn a_calendars_windows_may_be_shorter_than_their_name() {
        let (hour, day) = (3_600, 86_400);
        let shortest_secs = [
            ("min", 60),
            ("h", 1_800),
            ("day", day - 2 * hour),
            ("week", 7 * day - 2 * hour),
            ("month", 28 * day - 2 * hour),
            ("year", 365 * day - 2 * hour),
        ];
        for (unit, secs) in shortest_secs {
            let rule = format!("10/{unit} calendar");
            let shortest = Span::from_secs(secs);
            assert_most(&rule, Span::ZERO, 10);
            assert_most(&rule, shortest.saturating_sub(US), 20);
            assert_most(&rule, shortest, 30);
        }
    }

    #[test]
    fn nginx_permits_its_burst_and_one_and_what_leaks_to_the_next_millisecond() {
        assert_most("10r/s burst=4", Span::from_micros(98_999), 5);
        assert_most("10r/s burst=4", Span::from_micros(99_000), 6);
        assert_most("10r/s burst=4", SECOND, 15);
        assert_most("60r/m burst=4", SECOND, 6);
        assert_most("60r/m burst=4", Span::from_secs(2), 7);
    }

    #[test]
    fn concurrency_says_nothing_about_how_many_pass() {
        assert!(limit("concurrency 1").permits(u64::MAX, 1, Span::ZERO));
    }

    #[test]
    fn who_waits_passes_after_the_wait_but_for_nginxs() {
        let now = Timestamp::from_micros(5_000_000);
        for rule in ["10/s", "10/s queue", "10/s smooth", "concurrency 1"] {
            assert_eq!(limit(rule).passes_at(now, SECOND).as_micros(), 6_000_000, "{rule}");
        }
        assert_eq!(limit("10r/s burst=9").passes_at(now, SECOND), now);
    }
}

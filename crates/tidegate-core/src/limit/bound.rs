//! The published bounds as a function: whether a rule permits a total cost within an interval.
//!
//! No algorithm uses this. It checks the requests that have passed instead of a state, so an auditor with a log of requests
//! can verify an algorithm independently.

use super::Limit;
use crate::algorithm::CalendarUnit;
use crate::rate::Rate;
use crate::rule::RuleKind;
use crate::time::{Span, Timestamp};

const HOUR: u64 = 3_600;
const DAY: u64 = 24 * HOUR;

impl Limit {
    /// Returns whether this rule permits requests with a total cost of `total` to pass between two instants that are `interval`
    /// apart, both included. `last` is the cost of the last of these requests.
    ///
    /// [`passes_at`](Self::passes_at) defines when a request passes. A concurrency limit bounds the requests in flight, not
    /// the requests that pass, so it permits everything.
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
            // The next request waits for the cost of the last one. A wait is rounded up to a whole microsecond, so two
            // requests may pass one microsecond less apart than the rate says.
            RuleKind::Queue { rate, .. } => before_last <= refilled(*rate, loosened(interval), 0),
            RuleKind::Warmup { rate, .. } => {
                // The last bits of a floating-point number may be wrong.
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
                // nginx counts in milliseconds, and an interval may touch one more than its length.
                let rate = count * 1_000 / if *per_second { 1 } else { 60 };
                let rate = Rate { count: rate, period: Span::from_secs(1_000) };
                total <= refilled(rate, interval + Span::from_millis(1), burst + 1)
            }
            RuleKind::Nothing => total == 0,
            RuleKind::Concurrency { .. } => true,
        }
    }

    /// Returns the time at which [`permits`](Self::permits) counts a request that came at `now` and was admitted after `wait`:
    /// after the wait or, under nginx's rules, at `now`.
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

/// Returns how many periods an interval overlaps that starts with a period.
fn periods(period: Span, interval: Span) -> u64 {
    interval.as_micros() / period.as_micros() + 1
}

/// Returns whether windows permit `total`. An interval may start just before the end of a window, so it overlaps one more.
fn in_windows(total: u64, count: u64, period: Span, interval: Span) -> bool {
    let windows = if interval.is_zero() { 1 } else { periods(period, interval) + 1 };
    total <= count.saturating_mul(windows)
}

/// Returns the length of the shortest window of a calendar unit, when the zone's offset changes in it.
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

    /// Asserts that `most` is the largest total that may pass, if the last request costs 1.
    fn assert_most(rule: &str, interval: Span, most: u64) {
        let limit = limit(rule);
        assert!(limit.permits(most, 1, interval), "{rule}: {most} in {interval}");
        assert!(!limit.permits(most + 1, 1, interval), "{rule}: not only {most} in {interval}");
    }

    #[test]
    fn a_bucket_permits_its_burst_and_the_refill_of_the_interval() {
        for rule in ["10/s burst 5", "10/s leaky capacity 5"] {
            assert_most(rule, Span::ZERO, 5);
            assert_most(rule, Span::from_micros(99_999), 5);
            assert_most(rule, Span::from_micros(100_000), 6);
            assert_most(rule, SECOND, 15);
        }
    }

    #[test]
    fn a_queue_permits_one_request_and_the_rate_up_to_the_next_microsecond() {
        assert_most("10/s queue", Span::from_micros(99_998), 1);
        assert_most("10/s queue", Span::from_micros(99_999), 2);
        assert_most("10/s queue", SECOND, 11);
        let queue = limit("10/s queue");
        assert!(
            queue.permits(13, 3, SECOND),
            "the next request waits for the cost of the last one"
        );
        assert!(!queue.permits(14, 3, SECOND));
    }

    #[test]
    fn rules_with_credit_permit_the_saved_permits_and_one_more_request() {
        assert_most("10/s smooth burst 5", SECOND, 16);
        assert_most("10/s smooth", SECOND, 22);
        assert_most("10/s warmup 1s", SECOND, 12);
        // From 2^50 on, one more for each bit that floating point may have lost.
        let long = Span::from_micros(225_179_981_368);
        assert_most("10000/us warmup 1s", long, (long + US).as_micros() * 10_000 + 4);
    }

    #[test]
    fn an_interval_may_overlap_one_window_more_than_its_length() {
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
    fn a_calendar_window_may_be_shorter_than_its_unit() {
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
    fn nginx_permits_its_burst_one_more_and_the_rate_up_to_the_next_millisecond() {
        assert_most("10r/s burst=4", Span::from_micros(98_999), 5);
        assert_most("10r/s burst=4", Span::from_micros(99_000), 6);
        assert_most("10r/s burst=4", SECOND, 15);
        assert_most("60r/m burst=4", SECOND, 6);
        assert_most("60r/m burst=4", Span::from_secs(2), 7);
    }

    #[test]
    fn a_concurrency_limit_permits_any_number_to_pass() {
        assert!(limit("concurrency 1").permits(u64::MAX, 1, Span::ZERO));
    }

    #[test]
    fn a_request_passes_after_its_wait_except_under_nginx() {
        let now = Timestamp::from_micros(5_000_000);
        for rule in ["10/s", "10/s queue", "10/s smooth", "concurrency 1"] {
            assert_eq!(limit(rule).passes_at(now, SECOND).as_micros(), 6_000_000, "{rule}");
        }
        assert_eq!(limit("10r/s burst=9").passes_at(now, SECOND), now);
    }
}

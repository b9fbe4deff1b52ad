//! When each request is due, and on which connection.
//!
//! Always   Fixed before the run starts: request n is due n/rate after the start, on connection n modulo the number
//!          of connections. Nothing that the server does changes it.

use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tidegate::{Clock, SystemClock};

/// How fast requests are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rate {
    /// Requests per second, independent of the replies.
    PerSecond(u64),
    /// The next request follows as soon as a reply arrives.
    Max,
}

/// Maximum rate; no machine sends as much.
const RATE_MAX: u64 = 1_000_000_000;
const US_PER_SECOND: u128 = 1_000_000;

impl FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "max" {
            return Ok(Self::Max);
        }
        match text.parse() {
            Ok(rate @ 1..=RATE_MAX) => Ok(Self::PerSecond(rate)),
            _ => Err(format!("write requests per second, 1 to {RATE_MAX}, or `max`")),
        }
    }
}

/// Returns the time in microseconds, on the one clock of a run.
pub(super) fn now_us(clock: &SystemClock) -> u64 {
    clock.now().as_micros()
}

/// The start and the end of a run, in microseconds of its clock.
#[derive(Debug)]
#[expect(clippy::struct_field_names, reason = "numbers carry their unit")]
pub(super) struct Times {
    pub(super) start_us: u64,
    end_us: AtomicU64,
    give_up_us: AtomicU64,
}

impl Times {
    pub(super) fn new(start_us: u64, duration: Duration, timeout: Duration) -> Self {
        let us = |span: Duration| u64::try_from(span.as_micros()).unwrap_or(u64::MAX);
        let end_us = start_us.saturating_add(us(duration));
        Self {
            start_us,
            end_us: AtomicU64::new(end_us),
            give_up_us: AtomicU64::new(end_us.saturating_add(us(timeout))),
        }
    }

    /// Returns the time after which no request is due.
    pub(super) fn end_us(&self) -> u64 {
        self.end_us.load(Ordering::Relaxed)
    }

    /// Returns the time after which no reply is waited for.
    pub(super) fn give_up_us(&self) -> u64 {
        self.give_up_us.load(Ordering::Relaxed)
    }

    /// Ends the run now.
    pub(super) fn stop(&self, now_us: u64) {
        self.end_us.fetch_min(now_us, Ordering::Relaxed);
        self.give_up_us.fetch_min(now_us, Ordering::Relaxed);
    }
}

/// The due times of one connection's requests.
#[derive(Clone, Debug)]
pub(super) struct Schedule {
    rate: Rate,
    connections: u64,
    /// The number of requests of all connections.
    total: u64,
    next: u64,
}

impl Schedule {
    pub(super) fn new(rate: Rate, duration: Duration, connections: u64, connection: u64) -> Self {
        let total = match rate {
            Rate::Max => u64::MAX,
            Rate::PerSecond(rate) => {
                let total = u128::from(rate).saturating_mul(duration.as_micros());
                u64::try_from(total.div_ceil(US_PER_SECOND)).unwrap_or(u64::MAX)
            }
        };
        Self { rate, connections, total, next: connection }
    }

    /// Returns when the next request of this connection is due, or `None` if there are no more.
    pub(super) fn next_due_us(&self, times: &Times, now_us: u64) -> Option<u64> {
        let end_us = times.end_us();
        match self.rate {
            Rate::Max => (now_us < end_us).then_some(now_us),
            Rate::PerSecond(rate) => {
                let after_us = u128::from(self.next) * US_PER_SECOND / u128::from(rate);
                let due_us = times.start_us + u64::try_from(after_us).ok()?;
                (self.next < self.total && due_us < end_us).then_some(due_us)
            }
        }
    }

    /// Moves on to the request after the next.
    pub(super) fn advance(&mut self) {
        self.next = self.next.saturating_add(self.connections);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fraction_of_a_second_has_that_fraction_of_the_requests() {
        let total = |ms| Schedule::new(Rate::PerSecond(200), Duration::from_millis(ms), 1, 0).total;
        assert_eq!([total(1), total(500), total(1_500)], [1, 100, 300]);
    }

    fn dues(mut schedule: Schedule, times: &Times) -> Vec<u64> {
        let next = || {
            let due = schedule.next_due_us(times, 0)?;
            schedule.advance();
            Some(due)
        };
        std::iter::from_fn(next).collect()
    }

    #[test]
    fn connections_take_turns_and_send_every_request() {
        let second = Duration::from_secs(1);
        let times = Times::new(100, second, second);
        let all = (0..3).flat_map(|connection| {
            dues(Schedule::new(Rate::PerSecond(8), second, 3, connection), &times)
        });
        let mut all: Vec<u64> = all.collect();
        all.sort_unstable();
        let expected: Vec<u64> = (0..8).map(|number| 100 + number * 125_000).collect();
        assert_eq!(all, expected);
    }

    #[test]
    fn a_rate_that_does_not_divide_a_second_has_no_drift() {
        let hour = Duration::from_secs(3_600);
        let times = Times::new(0, hour, hour);
        let all = dues(Schedule::new(Rate::PerSecond(7), hour, 1, 0), &times);
        assert_eq!(all.len(), 7 * 3_600);
        assert_eq!(all[7 * 1_800], 1_800_000_000);
    }

    #[test]
    fn nothing_is_due_after_a_stop() {
        let second = Duration::from_secs(1);
        let times = Times::new(0, second, second);
        times.stop(250_001);
        assert_eq!(dues(Schedule::new(Rate::PerSecond(8), second, 1, 0), &times).len(), 3);
        assert_eq!(times.give_up_us(), 250_001);
        let max = Schedule::new(Rate::Max, second, 1, 0);
        assert_eq!(max.next_due_us(&times, 250_000), Some(250_000));
        assert_eq!(max.next_due_us(&times, 250_001), None);
    }

    #[test]
    fn a_rate_is_a_number_or_max() {
        assert_eq!("max".parse(), Ok(Rate::Max));
        assert_eq!("1000000000".parse(), Ok(Rate::PerSecond(RATE_MAX)));
        for text in ["0", "-1", "1000000001", "10/s", "", "1.5"] {
            assert!(text.parse::<Rate>().is_err(), "{text}");
        }
    }
}

//! The machine's clock: the calendar time when the process first read it, advanced by the processor's counter.
//!
//! Always   It does not go back on one thread. Between two cores, whose counters differ, it may go back by microseconds,
//!          which every algorithm tolerates. It does not see that the machine's calendar clock was set, or that the
//!          machine slept; windows of the calendar read `calendar_now`.

use super::Clock;
use super::calibration::us_per_count;
use std::sync::OnceLock;
use std::time::SystemTime;
use tidegate_core::{Span, Timestamp};

/// The machine's monotonic clock.
///
/// It reads the processor's time-stamp counter where that is reliable (a third of the cost of `Instant::now`), and the
/// system's monotonic clock elsewhere. It never runs faster than the system's clock did during calibration, and at most a
/// few parts in a million slower. The first one in a process calibrates the counter, which takes about 20 ms and at most a
/// quarter of a second.
///
/// ```
/// use tidegate::{Clock, SystemClock};
///
/// let clock = SystemClock::new();
/// let now = clock.now();
/// assert!(now.as_micros() > 1_700_000_000_000_000, "it is later than 2023");
/// ```
#[derive(Clone, Debug)]
pub struct SystemClock {
    counter: quanta::Clock,
    start_count: u64,
    start: Timestamp,
    /// Microseconds per count, times 2^64, so that one multiplication converts a reading.
    us_per_count: u64,
}

impl SystemClock {
    /// Returns the process's clock. All clocks of a process show the same time.
    pub fn new() -> Self {
        static CLOCK: OnceLock<SystemClock> = OnceLock::new();
        let first = || {
            let counter = quanta::Clock::new();
            let us_per_count = us_per_count(|| counter.raw());
            Self { start_count: counter.raw(), start: calendar(), us_per_count, counter }
        };
        CLOCK.get_or_init(first).clone()
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    #[inline]
    fn now(&self) -> Timestamp {
        let counts = self.counter.raw().saturating_sub(self.start_count);
        let elapsed_us = (u128::from(counts) * u128::from(self.us_per_count)) >> 64;
        self.start + Span::from_micros(elapsed_us as u64)
    }

    fn calendar_now(&self) -> Timestamp {
        calendar()
    }
}

/// Reads the machine's calendar clock. A time before 1970 reads as the epoch.
#[expect(clippy::disallowed_methods, reason = "this is the clock")]
fn calendar() -> Timestamp {
    let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Timestamp::EPOCH + Span::from_duration_floor(since_epoch)
}

//! The machine's clock: the calendar's time when the process first asked, and the processor's
//! counter since.
//!
//! Always   It does not go back on one thread; between two cores, whose counters differ by a little,
//!          it may by microseconds, which every algorithm rides out. It does not see when the
//!          machine's calendar clock is set, nor time that the machine slept; windows that are tied
//!          to the calendar ask `calendar_now`.

use super::Clock;
use super::calibration::us_per_count;
use std::sync::OnceLock;
use std::time::SystemTime;
use tidegate_core::{Span, Timestamp};

/// The machine's monotonic clock.
///
/// It reads the processor's time-stamp counter where that is reliable (a third of the cost of
/// `Instant::now`), and the system's monotonic clock elsewhere. It never runs faster than the system's clock
/// did while the counter was calibrated, and at most a few parts in a million slower. The first one made in a
/// process takes some 20 ms to calibrate the counter, and at most a quarter of a second.
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
    /// Microseconds in a count, times 2^64: one multiplication makes time of a reading.
    us_per_count: u64,
}

impl SystemClock {
    /// The process's clock: all of them tell the same time.
    ///
    /// ```
    /// # use tidegate::{Clock, SystemClock};
    /// let (a, b) = (SystemClock::new(), SystemClock::new());
    /// let earlier = a.now();
    /// assert!(b.now() >= earlier);
    /// ```
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

/// The machine's calendar clock. A machine that believes to be before 1970 is at the epoch.
#[expect(clippy::disallowed_methods, reason = "this is the clock")]
fn calendar() -> Timestamp {
    let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Timestamp::EPOCH + Span::from_duration_floor(since_epoch)
}

//! The machine's clock: the calendar's time when the process first asked, and the processor's
//! counter since.
//!
//! Always   It never goes back. It does not see when the machine's calendar clock is set, nor time
//!          that the machine slept; windows that are tied to the calendar ask `calendar_now`.

use super::Clock;
use std::sync::OnceLock;
use std::time::SystemTime;
use tidegate_core::{Span, Timestamp};

/// The machine's monotonic clock.
///
/// It reads the processor's time-stamp counter where that is reliable (a third of the cost of
/// `Instant::now`), and the system's monotonic clock elsewhere. The first one made in a process takes
/// up to 200 ms to calibrate the counter.
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
            Self { start_count: counter.raw(), start: calendar(), counter }
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
        let elapsed_ns = self.counter.delta_as_nanos(self.start_count, self.counter.raw());
        self.start + Span::from_micros(elapsed_ns / 1_000)
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

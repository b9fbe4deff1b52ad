//! tokio's clock: stands still when tokio's time is paused, and advances with it.

use super::{Clock, Sleep, SystemClock};
use tidegate_core::{Span, Timestamp};
use tokio::time::Instant;

/// A clock that follows tokio's time, and waits with tokio's timers.
///
/// In a test with `#[tokio::test(start_paused = true)]`, waits take no real time and end exactly on time.
/// Elsewhere it is the machine's monotonic clock, read through tokio.
///
/// ```
/// use tidegate::Limiter;
/// use tidegate::clock::TokioClock;
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap()
/// # .block_on(async {
/// let limiter = Limiter::with_clock("1/h".parse()?, TokioClock::new());
/// let _permit = limiter.acquire("alice").await?;
/// let _permit = limiter.acquire("alice").await?; // an hour later, at once
/// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
/// ```
#[derive(Clone, Debug)]
pub struct TokioClock {
    started: Instant,
    start: Timestamp,
}

impl TokioClock {
    /// Creates a clock that starts at the machine's calendar time.
    pub fn new() -> Self {
        Self { started: Instant::now(), start: SystemClock::new().now() }
    }
}

impl Default for TokioClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for TokioClock {
    fn now(&self) -> Timestamp {
        self.start + Span::from_duration_floor(self.started.elapsed())
    }

    fn sleep_until(&self, at: Timestamp) -> Sleep {
        let wait = at.since(self.now()).as_duration();
        Sleep::new(tokio::time::sleep(wait))
    }
}

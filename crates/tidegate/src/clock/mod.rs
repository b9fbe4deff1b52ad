//! Clocks: the only code that reads the time or waits for it.
//!
//! Always   A limiter reads only its own clock, so a test with a [`ManualClock`] controls the time and never sleeps.

mod cached;
mod calibration;
mod manual;
mod sleep;
mod system;
mod timer;
#[cfg(feature = "tokio")]
mod tokio;

pub use cached::CachedClock;
pub use manual::ManualClock;
pub use sleep::Sleep;
pub use system::SystemClock;
#[cfg(feature = "tokio")]
pub use tokio::TokioClock;

use tidegate_core::{Limit, Timestamp};

/// A source of time for limiters.
///
/// [`SystemClock`] is the default, [`ManualClock`] is for tests, [`CachedClock`] for hot paths. To write your own,
/// implement [`now`](Self::now):
///
/// ```
/// use tidegate::{Clock, Gate, Timestamp};
///
/// /// A clock that stands still.
/// #[derive(Clone)]
/// struct Standstill;
///
/// impl Clock for Standstill {
///     fn now(&self) -> Timestamp {
///         Timestamp::from_micros(1_000_000)
///     }
/// }
///
/// let gate = Gate::with_clock("2/s".parse()?, Standstill);
/// assert!(gate.check_n(2).is_allow());
/// assert!(gate.check().is_deny());
/// # Ok::<(), tidegate::RuleError>(())
/// ```
pub trait Clock: Clone + Send + Sync + 'static {
    /// Returns the time by which limits count. It should not go back; after a step back, requests wait for at most as long as an
    /// exhausted key takes to recover.
    fn now(&self) -> Timestamp;

    /// Returns the calendar time, for limits whose windows depend on it (`calendar`, `fixed`). It may step when the machine's
    /// clock is set. The default is [`now`](Self::now).
    #[inline]
    fn calendar_now(&self) -> Timestamp {
        self.now()
    }

    /// Returns a future that is ready when [`now`](Self::now) reaches `at`. The default waits by the machine's clock; override it
    /// if this clock runs at another speed.
    ///
    /// ```
    /// use tidegate::{Clock, ManualClock, Span};
    ///
    /// let clock = ManualClock::new();
    /// let sleep = clock.sleep_until(clock.now() + Span::from_secs(3600));
    /// clock.advance(Span::from_secs(3600));
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async move {
    /// sleep.await;
    /// # });
    /// ```
    fn sleep_until(&self, at: Timestamp) -> Sleep {
        Sleep::on_timer(at.since(self.now()))
    }
}

/// Returns the time by which `limit` counts: the calendar's for rules that follow the calendar, else the clock's own.
pub(crate) fn limit_now<C: Clock>(clock: &C, limit: &Limit) -> Timestamp {
    if limit.follows_calendar() { clock.calendar_now() } else { clock.now() }
}

//! Clocks: the only place where time is read, and where it is waited for.
//!
//! Always   Every limiter has one clock and asks only it, so a test that brings a [`ManualClock`]
//!          decides what time it is and never sleeps.

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

/// Says what time it is and waits for a time to come.
///
/// [`SystemClock`] is the default, [`ManualClock`] is for tests, [`CachedClock`] for those who count
/// nanoseconds. To bring your own, say what time it is:
///
/// ```
/// use tidegate::{Clock, Gate, Timestamp};
///
/// /// The clock of a simulation, which moves when the simulation does.
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
    /// The time by which limits count. It should not go back; if it does, that costs at most the time
    /// that a used-up key takes to recover.
    ///
    /// ```
    /// use tidegate::{Clock, SystemClock};
    ///
    /// let clock = SystemClock::new();
    /// let earlier = clock.now();
    /// assert!(clock.now() >= earlier);
    /// ```
    fn now(&self) -> Timestamp;

    /// The time of the calendar, for limits whose windows are tied to it (`calendar`, `fixed`). It
    /// may step when the machine's clock is set. The same as [`now`](Self::now) unless said otherwise.
    ///
    /// ```
    /// use tidegate::{Clock, ManualClock};
    ///
    /// let clock = ManualClock::new();
    /// assert_eq!(clock.calendar_now(), clock.now());
    /// ```
    #[inline]
    fn calendar_now(&self) -> Timestamp {
        self.now()
    }

    /// A future that is ready once [`now`](Self::now) has come to `at`.
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

/// The time by which `limit` counts: the calendar's for calendar windows, else the clock's own.
pub(crate) fn limit_now<C: Clock>(clock: &C, limit: &Limit) -> Timestamp {
    if limit.follows_calendar() { clock.calendar_now() } else { clock.now() }
}

//! A future that waits for a time to come, whatever clock it is.

use super::timer;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use tidegate_core::Span;

/// Waits until a clock has come to a certain time. Dropping it forgets the wait.
///
/// ```
/// use tidegate::{Clock, Span, SystemClock};
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let clock = SystemClock::new();
/// let due = clock.now() + Span::from_millis(1);
/// clock.sleep_until(due).await;
/// assert!(clock.now() >= due);
/// # });
/// ```
#[must_use = "it only sleeps when it is awaited"]
pub struct Sleep {
    future: Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl Sleep {
    /// Waits on any future: for clocks that have timers of their own.
    ///
    /// ```
    /// use tidegate::Sleep;
    ///
    /// let at_once = Sleep::new(async {});
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(at_once);
    /// ```
    pub fn new(future: impl Future<Output = ()> + Send + 'static) -> Self {
        Self { future: Box::pin(future) }
    }

    /// Waits this long by the machine's monotonic clock, without needing an async runtime.
    ///
    /// ```
    /// use tidegate::{Sleep, Span};
    ///
    /// let nap = Sleep::on_timer(Span::from_micros(10));
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(nap);
    /// ```
    pub fn on_timer(span: Span) -> Self {
        Self::new(timer::Timer::after(span))
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        self.future.as_mut().poll(context)
    }
}

impl std::fmt::Debug for Sleep {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sleep").finish_non_exhaustive()
    }
}

//! The future of a time, for any clock.

use super::timer;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use tidegate_core::Span;

/// A future that is ready when a clock reaches a certain time. Dropping it cancels the wait.
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
#[must_use = "futures do nothing unless awaited"]
pub struct Sleep {
    future: Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl Sleep {
    /// Waits for any future: for clocks that have timers of their own.
    pub fn new(future: impl Future<Output = ()> + Send + 'static) -> Self {
        Self { future: Box::pin(future) }
    }

    /// Waits by the machine's monotonic clock, without an async runtime.
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

//! A clock that is advanced by hand: for tests.

use super::{Clock, Sleep};
use crate::sync::lock_std;
use crate::sync::wake::wake_each;
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};
use tidegate_core::{Span, Timestamp};

/// A clock for tests: time passes only by [`advance`](Self::advance) and [`set`](Self::set), which wake the waiters whose
/// time has come.
///
/// Clones share their time. It starts at 2024-01-01T00:00:00Z.
///
/// ```
/// use tidegate::{Limiter, ManualClock, Span};
///
/// let clock = ManualClock::new();
/// let limiter = Limiter::with_clock("1/day".parse()?, clock.clone());
///
/// assert!(limiter.check("alice").is_allow());
/// assert!(limiter.check("alice").is_deny());
/// clock.advance(Span::from_secs(86_400));
/// assert!(limiter.check("alice").is_allow());
/// # Ok::<(), tidegate::RuleError>(())
/// ```
#[derive(Clone, Debug)]
pub struct ManualClock {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Debug)]
struct Inner {
    now: Timestamp,
    sleepers: BTreeMap<(Timestamp, u64), Waker>,
    last_number: u64,
}

/// 2024-01-01T00:00:00Z: a Monday, in a leap year, at the start of every window.
const START: Timestamp = Timestamp::from_micros(1_704_067_200_000_000);

impl ManualClock {
    /// Creates a clock at 2024-01-01T00:00:00Z.
    pub fn new() -> Self {
        Self::at(START)
    }

    /// Creates a clock at this time.
    pub fn at(now: Timestamp) -> Self {
        let inner = Inner { now, sleepers: BTreeMap::new(), last_number: 0 };
        Self { inner: Arc::new(Mutex::new(inner)) }
    }

    /// Advances the clock, and wakes the waiters whose time has come.
    pub fn advance(&self, span: impl Into<Span>) {
        let now = self.inner().now + span.into();
        self.set(now);
    }

    /// Sets the clock, forward or back: the way to test a clock step.
    pub fn set(&self, now: Timestamp) {
        let mut inner = self.inner();
        let is_step_back = now < inner.now;
        inner.now = now;
        // After a step back every waiter checks again: its turn may have moved.
        let later =
            if is_step_back { BTreeMap::new() } else { inner.sleepers.split_off(&(now, u64::MAX)) };
        let due = std::mem::replace(&mut inner.sleepers, later);
        drop(inner);
        wake_each(due.into_values());
    }

    /// Returns the number of waiters. A test can wait until its tasks sleep.
    pub fn sleepers(&self) -> usize {
        self.inner().sleepers.len()
    }

    /// Returns the times for which waiters sleep, earliest first. A test can step from one to the next.
    ///
    /// ```
    /// # use tidegate::{Limiter, ManualClock, Span};
    /// # use std::{pin::pin, task::{Context, Waker}};
    /// let clock = ManualClock::new();
    /// let limiter = Limiter::with_clock("1/s".parse()?, clock.clone());
    /// let _ = limiter.check("alice");
    ///
    /// let mut second = pin!(limiter.acquire("alice"));
    /// assert!(second.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    /// clock.set(clock.alarms()[0]);
    /// assert!(second.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready());
    /// # Ok::<(), tidegate::RuleError>(())
    /// ```
    pub fn alarms(&self) -> Vec<Timestamp> {
        self.inner().sleepers.keys().map(|(at, _)| *at).collect()
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        lock_std(&self.inner)
    }
}

impl Default for ManualClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        self.inner().now
    }

    fn sleep_until(&self, at: Timestamp) -> Sleep {
        Sleep::new(Sleeper { clock: self.clone(), at, number: None })
    }
}

struct Sleeper {
    clock: ManualClock,
    at: Timestamp,
    number: Option<u64>,
}

impl Future for Sleeper {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let clock = self.clock.clone();
        let mut inner = clock.inner();
        if inner.now >= self.at {
            return Poll::Ready(());
        }
        let number = *self.number.get_or_insert_with(|| {
            inner.last_number += 1;
            inner.last_number
        });
        let replaced = inner.sleepers.insert((self.at, number), context.waker().clone());
        // Dropped after the lock is released: dropping a waker runs foreign code.
        drop(inner);
        drop(replaced);
        Poll::Pending
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            let waker = self.clock.inner().sleepers.remove(&(self.at, number));
            drop(waker);
        }
    }
}

//! A clock that stands still until it is told to move: for tests.

use super::{Clock, Sleep};
use crate::sync::lock_std;
use crate::sync::wake::wake_each;
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};
use tidegate_core::{Span, Timestamp};

/// A clock for tests: time passes when [`advance`](Self::advance) says so, and who waits for it wakes.
///
/// Clones are the same clock. It starts at 2024-01-01T00:00:00Z.
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
    face: Arc<Mutex<Face>>,
}

#[derive(Debug)]
struct Face {
    now: Timestamp,
    sleepers: BTreeMap<(Timestamp, u64), Waker>,
    last_number: u64,
}

/// 2024-01-01T00:00:00Z: a Monday, in a leap year, at the start of every window.
const START: Timestamp = Timestamp::from_micros(1_704_067_200_000_000);

impl ManualClock {
    /// A clock that stands at 2024-01-01T00:00:00Z.
    ///
    /// ```
    /// # use tidegate::{Clock, ManualClock, Timestamp};
    /// assert_eq!(ManualClock::new().now(), Timestamp::from_micros(1_704_067_200_000_000));
    /// ```
    pub fn new() -> Self {
        Self::at(START)
    }

    /// A clock that stands at this time.
    ///
    /// ```
    /// # use tidegate::{Clock, ManualClock, Timestamp};
    /// assert_eq!(ManualClock::at(Timestamp::EPOCH).now(), Timestamp::EPOCH);
    /// ```
    pub fn at(now: Timestamp) -> Self {
        let face = Face { now, sleepers: BTreeMap::new(), last_number: 0 };
        Self { face: Arc::new(Mutex::new(face)) }
    }

    /// Lets time pass, and wakes those whose time has come.
    ///
    /// ```
    /// # use tidegate::{Clock, ManualClock, Span};
    /// let clock = ManualClock::new();
    /// let before = clock.now();
    /// clock.advance(Span::from_secs(5));
    /// assert_eq!(clock.now().since(before), Span::from_secs(5));
    /// ```
    pub fn advance(&self, span: impl Into<Span>) {
        let now = self.face().now + span.into();
        self.set(now);
    }

    /// Sets the clock, also back: that is how a test shows what a clock step does.
    ///
    /// ```
    /// # use tidegate::{Clock, ManualClock, Timestamp};
    /// let clock = ManualClock::new();
    /// clock.set(Timestamp::EPOCH);
    /// assert_eq!(clock.now(), Timestamp::EPOCH);
    /// ```
    pub fn set(&self, now: Timestamp) {
        let mut face = self.face();
        let is_step_back = now < face.now;
        face.now = now;
        // After a step back everybody looks again: what they wait for may come earlier.
        let later =
            if is_step_back { BTreeMap::new() } else { face.sleepers.split_off(&(now, u64::MAX)) };
        let due = std::mem::replace(&mut face.sleepers, later);
        drop(face);
        wake_each(due.into_values());
    }

    /// How many wait for a later time. A test can wait for its tasks to have gone to sleep.
    ///
    /// ```
    /// # use tidegate::ManualClock;
    /// assert_eq!(ManualClock::new().sleepers(), 0);
    /// ```
    pub fn sleepers(&self) -> usize {
        self.face().sleepers.len()
    }

    /// The times that somebody waits for, the earliest first. A test can go from one to the next.
    ///
    /// ```
    /// # use tidegate::{Limiter, ManualClock, Span};
    /// # use std::{pin::pin, task::{Context, Waker}};
    /// let clock = ManualClock::new();
    /// let limiter = Limiter::with_clock("1/s".parse()?, clock.clone());
    /// limiter.check("alice");
    ///
    /// let mut second = pin!(limiter.acquire("alice"));
    /// assert!(second.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    /// clock.set(clock.alarms()[0]);
    /// assert!(second.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready());
    /// # Ok::<(), tidegate::RuleError>(())
    /// ```
    pub fn alarms(&self) -> Vec<Timestamp> {
        self.face().sleepers.keys().map(|(at, _)| *at).collect()
    }

    fn face(&self) -> MutexGuard<'_, Face> {
        lock_std(&self.face)
    }
}

impl Default for ManualClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        self.face().now
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
        let mut face = clock.face();
        if face.now >= self.at {
            return Poll::Ready(());
        }
        let number = *self.number.get_or_insert_with(|| {
            face.last_number += 1;
            face.last_number
        });
        let replaced = face.sleepers.insert((self.at, number), context.waker().clone());
        // Dropped after the lock is gone: a waker's drop is not our code.
        drop(face);
        drop(replaced);
        Poll::Pending
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            let waker = self.clock.face().sleepers.remove(&(self.at, number));
            drop(waker);
        }
    }
}

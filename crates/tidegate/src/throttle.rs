//! Limits that come with each request: `CL.THROTTLE`, in process.

use crate::clock::{Clock, SystemClock};
use crate::limiter::Limiter;
use crate::rule::Rule;
use crate::store::memory::{THROTTLES, ThrottleBatch};
use std::fmt;
use std::hash::Hash;
use tidegate_core::{Throttle, Throttled};

/// Keys whose rate comes with each request, as redis-cell's `CL.THROTTLE` has it.
///
/// Only what a key owes is remembered. Bounded and sharded as [`Limiter`] is, and a key in debt is
/// never forgotten.
///
/// ```
/// use tidegate::{ManualClock, Throttle, Throttles};
///
/// let throttles = Throttles::with_clock(ManualClock::new());
/// let thirty_a_minute = Throttle::new(15, 30, 60, 1)?;
/// assert_eq!(throttles.check("user123", &thirty_a_minute).reply(), [0, 16, 15, -1, 2]);
/// # Ok::<(), tidegate::ZeroRate>(())
/// ```
pub struct Throttles<C: Clock = SystemClock> {
    limiter: Limiter<C>,
}

impl Throttles {
    /// By the machine's clock.
    ///
    /// ```
    /// # use tidegate::{Throttle, Throttles};
    /// let throttles = Throttles::new();
    /// assert!(!throttles.check("alice", &Throttle::new(0, 1, 1, 1)?).is_limited);
    /// # Ok::<(), tidegate::ZeroRate>(())
    /// ```
    pub fn new() -> Self {
        Self::with_clock(SystemClock::new())
    }

    /// The rule that the limiter must have which keeps the debts: a bucket of nanoseconds.
    ///
    /// ```
    /// assert!(tidegate::Throttles::rule().to_string().starts_with("1000/1009us burst"));
    /// ```
    #[expect(clippy::missing_panics_doc, reason = "the text is ours, and this is its example")]
    pub fn rule() -> Rule {
        THROTTLES.parse().expect("the rule of throttles is a rule")
    }
}

impl<C: Clock> Throttles<C> {
    /// By another clock.
    ///
    /// ```
    /// # use tidegate::{ManualClock, Throttle, Throttles};
    /// let throttles = Throttles::with_clock(ManualClock::new());
    /// assert!(!throttles.check("alice", &Throttle::new(0, 1, 1, 1)?).is_limited);
    /// # Ok::<(), tidegate::ZeroRate>(())
    /// ```
    pub fn with_clock(clock: C) -> Self {
        Self { limiter: Limiter::with_clock(Throttles::rule(), clock) }
    }

    /// With the debts that a limiter keeps, or will: for who has more to say than a clock, or has
    /// restored it from a snapshot. `None` if it has another rule than [`Throttles::rule`].
    ///
    /// ```
    /// use tidegate::{Limiter, Throttle, Throttles};
    ///
    /// let limiter = Limiter::builder(Throttles::rule()).max_keys(10_000).build();
    /// let throttles = Throttles::over(limiter).expect("it has the rule");
    /// assert!(Throttles::over(Limiter::new("1/s".parse()?)).is_none());
    /// # assert!(!throttles.check("alice", &Throttle::new(0, 1, 1, 1)?).is_limited);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn over(limiter: Limiter<C>) -> Option<Self> {
        (limiter.rule() == Throttles::rule()).then_some(Self { limiter })
    }

    /// Decides, and charges unless it denies.
    ///
    /// ```
    /// # use tidegate::{ManualClock, Throttle, Throttles};
    /// let throttles = Throttles::with_clock(ManualClock::new());
    /// let one_in_two_seconds = Throttle::new(0, 1, 2, 1)?;
    /// assert_eq!(throttles.check("k", &one_in_two_seconds).reply(), [0, 1, 0, -1, 2]);
    /// assert_eq!(throttles.check("k", &one_in_two_seconds).reply(), [1, 1, 0, 2, 2]);
    /// # Ok::<(), tidegate::ZeroRate>(())
    /// ```
    #[inline]
    pub fn check<K: Hash + ?Sized>(&self, key: &K, throttle: &Throttle) -> Throttled {
        let store = &self.limiter.store;
        store.throttle(store.secret.of(key), throttle)
    }

    /// Many requests that are decided in one go.
    ///
    /// ```
    /// # use tidegate::{ManualClock, Throttle, Throttles};
    /// let throttles = Throttles::with_clock(ManualClock::new());
    /// let mut batch = throttles.batch();
    /// batch.push("alice", Throttle::new(0, 1, 1, 1)?);
    /// batch.push("alice", Throttle::new(0, 1, 1, 1)?);
    /// let mut limited = Vec::new();
    /// batch.decide(|throttled| limited.push(throttled.is_limited));
    /// assert_eq!(limited, [false, true]);
    /// # Ok::<(), tidegate::ZeroRate>(())
    /// ```
    pub fn batch(&self) -> ThrottleBatch<C> {
        ThrottleBatch::new(self.limiter.store.clone())
    }

    /// Forgets what a key owes. Tells whether it owed anything.
    ///
    /// ```
    /// # use tidegate::{ManualClock, Throttle, Throttles};
    /// let throttles = Throttles::with_clock(ManualClock::new());
    /// throttles.check("alice", &Throttle::new(0, 1, 1, 1)?);
    /// assert!(throttles.reset("alice"));
    /// assert!(!throttles.reset("alice"));
    /// # Ok::<(), tidegate::ZeroRate>(())
    /// ```
    pub fn reset<K: Hash + ?Sized>(&self, key: &K) -> bool {
        let was_owed = !self.limiter.request(key).cost(0).peek().reset_after.is_zero();
        self.limiter.reset(key);
        was_owed
    }

    /// The limiter that keeps the debts: for its numbers, and for snapshots.
    ///
    /// ```
    /// # use tidegate::Throttles;
    /// assert_eq!(Throttles::new().limiter().keys(), 0);
    /// ```
    pub fn limiter(&self) -> &Limiter<C> {
        &self.limiter
    }
}

impl Default for Throttles {
    fn default() -> Self {
        Self::new()
    }
}

impl<C: Clock> Clone for Throttles<C> {
    fn clone(&self) -> Self {
        Self { limiter: self.limiter.clone() }
    }
}

impl<C: Clock> fmt::Debug for Throttles<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Throttles").field("keys", &self.limiter.keys()).finish_non_exhaustive()
    }
}

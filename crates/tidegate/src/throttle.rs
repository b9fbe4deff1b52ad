//! Limits whose rate comes with each request: redis-cell's `CL.THROTTLE`, in process.

use crate::clock::{Clock, SystemClock};
use crate::limiter::Limiter;
use crate::rule::Rule;
use crate::store::memory::THROTTLES;
use std::fmt;
use std::hash::Hash;

pub use crate::store::memory::ThrottleBatch;
pub use tidegate_core::{Throttle, Throttled, ZeroRate};

/// A limiter whose rate comes with each request, as in redis-cell's `CL.THROTTLE`.
///
/// Only the debt of each key is stored. The number of keys is bounded as in [`Limiter`], and a key in debt is never
/// evicted.
///
/// ```
/// use tidegate::ManualClock;
/// use tidegate::throttle::{Throttle, Throttles};
///
/// let throttles = Throttles::with_clock(ManualClock::new());
/// let thirty_a_minute = Throttle::new(15, 30, 60, 1)?;
/// assert_eq!(throttles.check("user123", &thirty_a_minute).reply(), [0, 16, 15, -1, 2]);
/// # Ok::<(), tidegate::throttle::ZeroRate>(())
/// ```
pub struct Throttles<C: Clock = SystemClock> {
    limiter: Limiter<C>,
}

impl Throttles {
    /// Creates throttles that use the machine's clock.
    pub fn new() -> Self {
        Self::with_clock(SystemClock::new())
    }

    /// Returns the rule of a limiter that stores debts: a bucket of nanoseconds.
    #[expect(clippy::missing_panics_doc, reason = "the text is a constant, and a test parses it")]
    pub fn rule() -> Rule {
        THROTTLES.parse().expect("the rule of throttles is a rule")
    }
}

impl<C: Clock> Throttles<C> {
    /// Creates throttles that use `clock`.
    pub fn with_clock(clock: C) -> Self {
        Self { limiter: Limiter::with_clock(Throttles::rule(), clock) }
    }

    /// Creates throttles that store their debts in `limiter`: to set its number of keys, or to restore it from a snapshot. `None`
    /// if its rule is not [`Throttles::rule`].
    ///
    /// ```
    /// use tidegate::Limiter;
    /// use tidegate::throttle::{Throttle, Throttles};
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

    /// Decides a request, and charges it unless it is denied.
    #[inline]
    pub fn check<K: Hash + ?Sized>(&self, key: &K, throttle: &Throttle) -> Throttled {
        let store = &self.limiter.store;
        store.throttle(store.secret.of(key), throttle)
    }

    /// Starts a batch: many requests that are decided in one call.
    pub fn batch(&self) -> ThrottleBatch<C> {
        ThrottleBatch::new(self.limiter.store.clone())
    }

    /// Clears the debt of a key. Returns whether it had any.
    pub fn reset<K: Hash + ?Sized>(&self, key: &K) -> bool {
        let was_owed = !self.limiter.request(key).cost(0).peek().reset_after.is_zero();
        self.limiter.reset(key);
        was_owed
    }

    /// Returns the limiter that stores the debts: for statistics and snapshots.
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

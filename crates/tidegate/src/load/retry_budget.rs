//! A budget for the retries of a client, shared by all calls of the same service (A14, T49).
//!
//! Always   One lock, held for a few additions. The time is read under it.

use crate::clock::{Clock, SystemClock};
use crate::sync::{Arc, Mutex, lock};
use std::fmt;
use tidegate_core::Retries;

/// A limit on the retries of a client: a share of its requests.
///
/// It keeps retries from multiplying the load on a service that fails because of load. Clones are the same budget.
///
/// ```
/// use tidegate::load::{Retries, RetryBudget};
///
/// # fn call() -> Result<(), ()> { Err(()) }
/// let budget = RetryBudget::new(Retries::new().percent(10));
///
/// budget.deposit(); // one for each request, not for its retries
/// let mut result = call();
/// for _ in 0..2 {
///     if result.is_ok() || !budget.withdraw() {
///         break;
///     }
///     result = call();
/// }
/// ```
pub struct RetryBudget<C: Clock = SystemClock> {
    inner: Arc<Inner<C>>,
}

struct Inner<C> {
    clock: C,
    retries: Mutex<Retries>,
}

impl RetryBudget {
    /// Creates a budget that uses the machine's clock.
    pub fn new(retries: Retries) -> Self {
        Self::with_clock(retries, SystemClock::new())
    }
}

impl<C: Clock> RetryBudget<C> {
    /// Creates a budget that uses `clock`.
    ///
    /// ```
    /// # use tidegate::{ManualClock, Span};
    /// # use tidegate::load::{Retries, RetryBudget};
    /// let clock = ManualClock::new();
    /// let budget = RetryBudget::with_clock(Retries::new().min_per_second(0), clock.clone());
    /// for _ in 0..10 {
    ///     budget.deposit();
    /// }
    /// clock.advance(Span::from_secs(11));
    /// assert!(!budget.withdraw(), "the requests have left the window");
    /// ```
    pub fn with_clock(retries: Retries, clock: C) -> Self {
        Self { inner: Arc::new(Inner { clock, retries: Mutex::new(retries) }) }
    }

    /// Counts a request that is not a retry.
    pub fn deposit(&self) {
        let mut retries = lock(&self.inner.retries);
        retries.deposit(self.inner.clock.now());
    }

    /// Returns whether a request may be retried. The retry is counted then.
    #[must_use = "a retry may be made only if this returns true"]
    pub fn withdraw(&self) -> bool {
        let mut retries = lock(&self.inner.retries);
        retries.withdraw(self.inner.clock.now())
    }

    /// Returns how many retries would be granted now.
    pub fn balance(&self) -> u64 {
        let retries = lock(&self.inner.retries);
        retries.balance(self.inner.clock.now())
    }
}

impl<C: Clock> Clone for RetryBudget<C> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner) }
    }
}

impl<C: Clock> fmt::Debug for RetryBudget<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RetryBudget").field("balance", &self.balance()).finish_non_exhaustive()
    }
}

//! A budget for the retries of a client, shared by all that call the same service (A14, T49).
//!
//! Always   One lock, held for a few additions; the time is read under it.

use crate::clock::{Clock, SystemClock};
use crate::sync::{Arc, Mutex, lock};
use std::fmt;
use tidegate_core::Retries;

/// How many retries a client may make: a share of its requests.
///
/// A service that fails because it has too much to do is not helped by being asked three times as often.
/// Clones are the same budget.
///
/// ```
/// use tidegate::{Retries, RetryBudget};
///
/// # fn call() -> Result<(), ()> { Err(()) }
/// let budget = RetryBudget::new(Retries::new().percent(10));
///
/// budget.deposit(); // one for each request, not for its retries
/// let mut answer = call();
/// for _ in 0..2 {
///     if answer.is_ok() || !budget.withdraw() {
///         break;
///     }
///     answer = call();
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
    /// A budget by the machine's clock.
    ///
    /// ```
    /// # use tidegate::{Retries, RetryBudget};
    /// let budget = RetryBudget::new(Retries::new());
    /// assert_eq!(budget.balance(), 10);
    /// ```
    pub fn new(retries: Retries) -> Self {
        Self::with_clock(retries, SystemClock::new())
    }
}

impl<C: Clock> RetryBudget<C> {
    /// A budget by another clock.
    ///
    /// ```
    /// # use tidegate::{ManualClock, Retries, RetryBudget, Span};
    /// let clock = ManualClock::new();
    /// let budget = RetryBudget::with_clock(Retries::new().min_per_second(0), clock.clone());
    /// for _ in 0..10 {
    ///     budget.deposit();
    /// }
    /// clock.advance(Span::from_secs(11));
    /// assert!(!budget.withdraw(), "those requests are long past");
    /// ```
    pub fn with_clock(retries: Retries, clock: C) -> Self {
        Self { inner: Arc::new(Inner { clock, retries: Mutex::new(retries) }) }
    }

    /// Counts a request that is no retry.
    ///
    /// ```
    /// # use tidegate::{Retries, RetryBudget};
    /// let budget = RetryBudget::new(Retries::new());
    /// budget.deposit();
    /// ```
    pub fn deposit(&self) {
        let mut retries = lock(&self.inner.retries);
        retries.deposit(self.inner.clock.now());
    }

    /// May a request be retried? If so, the retry has been counted.
    ///
    /// ```
    /// # use tidegate::{Retries, RetryBudget};
    /// let budget = RetryBudget::new(Retries::new().min_per_second(0));
    /// assert!(!budget.withdraw());
    /// ```
    #[must_use = "who is not granted a retry must not make it"]
    pub fn withdraw(&self) -> bool {
        let mut retries = lock(&self.inner.retries);
        retries.withdraw(self.inner.clock.now())
    }

    /// How many retries would be granted now.
    ///
    /// ```
    /// # use tidegate::{Retries, RetryBudget};
    /// assert_eq!(RetryBudget::new(Retries::new().min_per_second(2)).balance(), 20);
    /// ```
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

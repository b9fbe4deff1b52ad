//! How a limiter is to be, said before it is made.

use crate::clock::{Clock, SystemClock};
use crate::limiter::Limiter;
use crate::rule::Rule;
use crate::store::IdempotencyCache;
use crate::store::memory::{MemoryStore, Overflow, StoreConfig};
use crate::sync::Arc;

/// A limiter that is not made yet; made by [`Limiter::builder`].
///
/// ```
/// use tidegate::{Limiter, Overflow};
///
/// let limiter = Limiter::builder("100/s burst 20".parse()?)
///     .max_keys(10_000)
///     .overflow(Overflow::Deny)
///     .build();
/// assert_eq!(limiter.stats().max_keys, 10_000);
/// # Ok::<(), tidegate::RuleError>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "a builder makes nothing until `build` or `with_clock`"]
pub struct Builder {
    rule: Rule,
    config: StoreConfig,
    idempotency: Option<Arc<IdempotencyCache>>,
}

/// How many keys are remembered unless it is said otherwise.
const MAX_KEYS: usize = 1_000_000;

impl Builder {
    pub(crate) fn new(rule: Rule) -> Self {
        let overflow = Overflow::default();
        let config = StoreConfig { max_keys: MAX_KEYS, overflow, has_top: false, audit: None };
        Self { rule, config, idempotency: None }
    }

    /// The most keys that are remembered; a million unless told, and at least one. It bounds the
    /// memory: some 30 bytes a key for buckets and queues, 40 to 48 for the other rules with a state of
    /// fixed size (see the guide's page on keys in memory).
    ///
    /// ```
    /// # use tidegate::Limiter;
    /// let limiter = Limiter::builder("1/h".parse()?).max_keys(2).build();
    /// for key in 0..100 {
    ///     limiter.check(&key);
    /// }
    /// assert_eq!(limiter.keys(), 2);
    /// # Ok::<(), tidegate::RuleError>(())
    /// ```
    pub fn max_keys(mut self, max_keys: usize) -> Self {
        self.config.max_keys = max_keys.max(1);
        self
    }

    /// What becomes of new keys while there is no room for them.
    ///
    /// ```
    /// # use tidegate::{Limiter, Overflow};
    /// let limiter = Limiter::builder("1/h".parse()?).max_keys(1).overflow(Overflow::Share).build();
    /// assert!(limiter.check("alice").is_allow());
    /// assert!(limiter.check("bob").is_allow(), "he takes what all share for whom there is no room");
    /// assert!(limiter.check("carol").is_deny());
    /// # Ok::<(), tidegate::RuleError>(())
    /// ```
    pub fn overflow(mut self, overflow: Overflow) -> Self {
        self.config.overflow = overflow;
        self
    }

    /// Keeps track of the keys that are asked about most; see [`Limiter::top`].
    ///
    /// ```
    /// # use tidegate::Limiter;
    /// let limiter = Limiter::builder("100/s".parse()?).top_keys().build();
    /// assert!(limiter.top(10).hot.is_empty(), "nobody has asked yet");
    /// # Ok::<(), tidegate::RuleError>(())
    /// ```
    pub fn top_keys(mut self) -> Self {
        self.config.has_top = true;
        self
    }

    /// Lets an auditor keep the exact history of one key in `sample` and count what breaks the bound of
    /// the rule; see [`Limiter::audit`]. For tests and for the suspicious: 1024 costs next to nothing.
    ///
    /// ```
    /// # use tidegate::Limiter;
    /// let limiter = Limiter::builder("100/s".parse()?).audit(1_024).build();
    /// assert_eq!(limiter.audit().map(|audit| audit.violations), Some(0));
    /// # Ok::<(), tidegate::RuleError>(())
    /// ```
    pub fn audit(mut self, sample: u64) -> Self {
        self.config.audit = Some(sample);
        self
    }

    /// Shares one cache of idempotent requests, and its bound, with other limiters; see [`Limiter::check_once`].
    pub fn idempotency_cache(mut self, cache: Arc<IdempotencyCache>) -> Self {
        self.idempotency = Some(cache);
        self
    }

    /// Makes a limiter with the store that `make` returns.
    pub(crate) fn over<C: Clock>(
        self,
        make: impl FnOnce(Rule, StoreConfig) -> MemoryStore<C>,
    ) -> Limiter<C> {
        let store = make(self.rule, self.config);
        if let Some(cache) = self.idempotency {
            let _ = store.idempotency.set(cache);
        }
        Limiter { store: Arc::new(store) }
    }

    /// Makes the limiter, by the machine's clock.
    ///
    /// ```
    /// # use tidegate::Limiter;
    /// let limiter = Limiter::builder("100/s".parse()?).build();
    /// assert!(limiter.check("alice").is_allow());
    /// # Ok::<(), tidegate::RuleError>(())
    /// ```
    pub fn build(self) -> Limiter {
        self.with_clock(SystemClock::new())
    }

    /// Makes the limiter, by another clock.
    ///
    /// ```
    /// # use tidegate::{Limiter, ManualClock};
    /// let limiter = Limiter::builder("100/s".parse()?).with_clock(ManualClock::new());
    /// assert!(limiter.check("alice").is_allow());
    /// # Ok::<(), tidegate::RuleError>(())
    /// ```
    pub fn with_clock<C: Clock>(self, clock: C) -> Limiter<C> {
        self.over(|rule, config| MemoryStore::new(rule.limit, clock, config))
    }
}

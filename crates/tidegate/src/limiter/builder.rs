//! The options of a limiter.

use crate::clock::{Clock, SystemClock};
use crate::limiter::Limiter;
use crate::rule::Rule;
use crate::store::IdempotencyCache;
use crate::store::memory::{MemoryStore, Overflow, StoreConfig};
use crate::sync::Arc;

/// The options of a limiter; made by [`Limiter::builder`].
///
/// ```
/// use tidegate::Limiter;
/// use tidegate::limiter::Overflow;
///
/// let limiter = Limiter::builder("100/s burst 20".parse()?)
///     .max_keys(10_000)
///     .overflow(Overflow::Deny)
///     .build();
/// assert_eq!(limiter.stats().max_keys, 10_000);
/// # Ok::<(), tidegate::RuleError>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "no limiter is made until `build` or `with_clock` is called"]
pub struct Builder {
    rule: Rule,
    config: StoreConfig,
    idempotency: Option<Arc<IdempotencyCache>>,
}

/// The default of `max_keys`.
const MAX_KEYS: usize = 1_000_000;

impl Builder {
    pub(crate) fn new(rule: Rule) -> Self {
        let overflow = Overflow::default();
        let config = StoreConfig { max_keys: MAX_KEYS, overflow, has_top: false, audit: None };
        Self { rule, config, idempotency: None }
    }

    /// Sets the maximum number of keys, at least 1. Default: a million. It bounds the memory: about 30 bytes a key for buckets
    /// and queues, and 40 to 48 for other rules with a state of fixed size (see the guide's page on many keys).
    pub fn max_keys(mut self, max_keys: usize) -> Self {
        self.config.max_keys = max_keys.max(1);
        self
    }

    /// Sets what happens to new keys while the table is full of keys in debt.
    pub fn overflow(mut self, overflow: Overflow) -> Self {
        self.config.overflow = overflow;
        self
    }

    /// Tracks the keys with the most requests; see [`Limiter::top`].
    pub fn top_keys(mut self) -> Self {
        self.config.has_top = true;
        self
    }

    /// Records the exact history of one key in `sample`, and counts violations of the rule's bound; see [`Limiter::audit`]. It
    /// is meant for tests; a sample of 1024 costs next to nothing.
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

    /// Makes a limiter that uses the machine's clock.
    pub fn build(self) -> Limiter {
        self.with_clock(SystemClock::new())
    }

    /// Makes a limiter that uses `clock`.
    pub fn with_clock<C: Clock>(self, clock: C) -> Limiter<C> {
        self.over(|rule, config| MemoryStore::new(rule.limit, clock, config))
    }
}

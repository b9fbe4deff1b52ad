//! Limits in this process's memory: the `tidegate` library's limiters.

use super::{Backend, Counters, StoreError, THROTTLES_NAME};
use crate::clock::ServerClock;
use crate::config::LimitConfig;
use std::sync::Arc;
use tidegate::snapshot::Snapshot;
use tidegate::store::{IdempotencyCache, LimitStore, Reply};
use tidegate::store::{Stats, Top};
use tidegate::throttle::{Throttle, Throttled, Throttles};
use tidegate::{Limiter, Rule};
use tidegate_redis::UnsupportedRule;

/// The store in this process. Its state survives a restart by a snapshot.
#[derive(Debug)]
pub struct MemoryBackend {
    clock: ServerClock,
    throttles: Throttles<ServerClock>,
    idempotency: Arc<IdempotencyCache>,
}

impl MemoryBackend {
    /// Creates the store, with the `CL.THROTTLE` keys of the snapshot.
    #[expect(clippy::missing_panics_doc, reason = "the rule is the one that is expected")]
    pub fn new(clock: ServerClock, throttle_max_keys: usize, restored: &Snapshot) -> Self {
        let builder = Limiter::builder(Throttles::rule()).max_keys(throttle_max_keys);
        let limiter = restored.restore_with_clock(THROTTLES_NAME, builder, clock.clone());
        let throttles = Throttles::over(limiter).expect("the limiter was built with its rule");
        Self { clock, throttles, idempotency: Arc::default() }
    }
}

impl Backend for MemoryBackend {
    fn open(
        &self,
        limit: &LimitConfig,
        restored: &Snapshot,
    ) -> Result<Arc<dyn Counters>, UnsupportedRule> {
        let mut builder = Limiter::builder(limit.rule.clone()).overflow(limit.overflow).top_keys();
        builder = builder.idempotency_cache(Arc::clone(&self.idempotency));
        if let Some(max_keys) = limit.max_keys {
            builder = builder.max_keys(max_keys);
        }
        Ok(Arc::new(restored.restore_with_clock(&limit.name, builder, self.clock.clone())))
    }

    fn throttles(&self) -> &Throttles<ServerClock> {
        &self.throttles
    }

    fn throttle<'a>(&'a self, key: &'a [u8], throttle: &'a Throttle) -> Reply<'a, Throttled> {
        Reply::now(self.throttles.check(key, throttle))
    }

    fn reset_throttle<'a>(&'a self, key: &'a [u8]) -> Reply<'a, Result<bool, StoreError>> {
        Reply::now(Ok(self.throttles.reset(key)))
    }

    fn throttle_stats(&self) -> Stats {
        self.throttles.limiter().stats()
    }
}

impl Counters for Limiter<ServerClock> {
    #[inline]
    fn store(&self) -> &dyn LimitStore {
        self
    }

    fn set_rule(&self, rule: Rule) {
        if self.rule() != rule {
            Self::set_rule(self, rule);
        }
    }

    fn stats(&self) -> Stats {
        Self::stats(self)
    }

    fn top(&self, k: usize) -> Top {
        Self::top(self, k)
    }

    fn is_idle(&self) -> bool {
        Self::is_idle(self)
    }

    fn limiter(&self) -> Option<&Limiter<ServerClock>> {
        Some(self)
    }
}

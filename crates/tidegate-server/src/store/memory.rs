//! Counters in this process: the `tidegate` library's keyed limiters.

use super::IdempotencyKey;
use super::{Ask, Counters, Key, StoreError};
use crate::clock::ServerClock;
use crate::config::LimitConfig;
use std::sync::Arc;
use tidegate::snapshot::Snapshot;
use tidegate::store::ClientId;
use tidegate::store::{IdempotencyCache, LimitStore};
use tidegate::store::{Stats, Top};
use tidegate::throttle::Throttles;
use tidegate::{Decision, Joint, Limiter, Permit, Rule};

/// Counters that live as long as this process, or longer by a snapshot.
#[derive(Clone, Debug)]
pub struct Memory {
    clock: ServerClock,
    throttles: Throttles<ServerClock>,
    idempotency: Arc<IdempotencyCache>,
}

pub(crate) use tidegate_config::THROTTLES_NAME;

/// The counters of one limit.
#[derive(Clone, Debug)]
pub struct MemoryCounters {
    limiter: Limiter<ServerClock>,
}

impl Memory {
    pub(super) fn new(clock: ServerClock, max_keys: usize, restored: &Snapshot) -> Self {
        let builder = Limiter::builder(Throttles::rule()).max_keys(max_keys);
        let limiter = restored.restore_with_clock(THROTTLES_NAME, builder, clock.clone());
        let throttles = Throttles::over(limiter).expect("it was built with the rule");
        Self { clock, throttles, idempotency: Arc::default() }
    }

    pub(super) fn throttles(&self) -> &Throttles<ServerClock> {
        &self.throttles
    }

    pub(super) fn open(&self, limit: &LimitConfig, restored: &Snapshot) -> MemoryCounters {
        let mut builder = Limiter::builder(limit.rule.clone()).overflow(limit.overflow).top_keys();
        builder = builder.idempotency_cache(Arc::clone(&self.idempotency));
        if let Some(max_keys) = limit.max_keys {
            builder = builder.max_keys(max_keys);
        }
        let limiter = restored.restore_with_clock(&limit.name, builder, self.clock.clone());
        MemoryCounters { limiter }
    }
}

pub(super) fn check_all(asks: &[Ask<'_>]) -> Joint {
    let ask = |ask: &Ask<'_>| match ask.counters {
        Counters::Memory(counters) => counters.limiter.request(&ask.key).cost(ask.cost),
        Counters::Redis(_) => unreachable!("a server has one store"),
    };
    tidegate::check_all(asks.iter().map(ask))
}

impl MemoryCounters {
    /// Decides at once: for wires that decide whole pipelines without waiting for anything.
    #[inline]
    pub(super) fn check(&self, key: Key<'_>, cost: u64) -> Decision {
        self.limiter.check_n(&key, cost)
    }

    pub(super) fn check_once(
        &self,
        (key, cost): (Key<'_>, u64),
        id: IdempotencyKey<'_>,
        client: ClientId,
    ) -> Result<Decision, StoreError> {
        let decided = LimitStore::check_once(&self.limiter, key.0, cost, id, client);
        let decided = decided.ready().unwrap_or_else(|_| unreachable!("memory replies at once"));
        Ok(decided?)
    }

    pub(super) fn peek(&self, key: Key<'_>, cost: u64) -> Decision {
        self.limiter.request(&key).cost(cost).peek()
    }

    pub(super) fn reset(&self, key: Key<'_>) {
        self.limiter.reset(&key);
    }

    pub(super) fn refund(&self, key: Key<'_>, cost: u64) {
        self.limiter.refund(&key, cost);
    }

    pub(super) fn acquire(&self, key: Key<'_>, cost: u64) -> Result<Permit<ServerClock>, Decision> {
        self.limiter.request(&key).cost(cost).try_acquire().map_err(|denied| denied.decision)
    }

    /// Goes on under another rule: nobody is refunded, nobody is locked out.
    pub(super) fn change(&self, rule: Rule) {
        if self.limiter.rule() != rule {
            self.limiter.set_rule(rule);
        }
    }

    /// The rule as it stands.
    pub(super) fn rule(&self) -> Rule {
        self.limiter.rule()
    }

    /// What has been decided.
    pub(super) fn stats(&self) -> Stats {
        self.limiter.stats()
    }

    /// The keys that ask the most, and those that are denied the most.
    pub(super) fn top(&self, k: usize) -> Top {
        self.limiter.top(k)
    }

    /// For who saves it.
    pub(super) fn limiter(&self) -> &Limiter<ServerClock> {
        &self.limiter
    }
}

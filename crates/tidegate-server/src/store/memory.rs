//! Counters in this process: the `tidegate` library's keyed limiters.

use super::once::{Onces, Request, RequestId};
use super::{Ask, Counters, Key, StoreError};
use crate::clock::ServerClock;
use crate::config::LimitConfig;
use crate::shares::PeerId;
use std::sync::Arc;
use tidegate::{Decision, Joint, Limiter, Permit, Rule, Snapshot, Stats, Throttles, Top};

/// Counters that live as long as this process, or longer by a snapshot.
#[derive(Clone, Debug)]
pub struct Memory {
    clock: ServerClock,
    throttles: Throttles<ServerClock>,
    onces: Arc<Onces>,
}

/// What debts of `CL.THROTTLE` are called in a snapshot, and what it has counted is called for the operator. No limit of
/// the configuration may have this name: of two that have one name, a snapshot would restore one.
pub(crate) const THROTTLES_NAME: &str = "CL.THROTTLE";

/// The counters of one limit.
#[derive(Clone, Debug)]
pub struct MemoryCounters {
    limiter: Limiter<ServerClock>,
    name: Arc<str>,
}

impl Memory {
    pub(super) fn new(clock: ServerClock, max_keys: usize, restored: &Snapshot) -> Self {
        let builder = Limiter::builder(Throttles::rule()).max_keys(max_keys);
        let limiter = restored.restore_with_clock(THROTTLES_NAME, builder, clock.clone());
        let throttles = Throttles::over(limiter).expect("it was built with the rule");
        Self { clock, throttles, onces: Arc::default() }
    }

    pub(super) fn throttles(&self) -> &Throttles<ServerClock> {
        &self.throttles
    }

    pub(super) fn open(&self, limit: &LimitConfig, restored: &Snapshot) -> MemoryCounters {
        let mut builder = Limiter::builder(limit.rule.clone()).overflow(limit.overflow).top_keys();
        if let Some(max_keys) = limit.max_keys {
            builder = builder.max_keys(max_keys);
        }
        let limiter = restored.restore_with_clock(&limit.name, builder, self.clock.clone());
        MemoryCounters { limiter, name: limit.name.as_str().into() }
    }

    pub(super) fn check_once(
        &self,
        counters: &MemoryCounters,
        (key, cost): (Key<'_>, u64),
        id: RequestId<'_>,
        peer: PeerId,
    ) -> Result<Decision, StoreError> {
        let request = Request { limit: &counters.name, key, cost, id };
        self.onces.decide((&request, peer), &self.clock, || counters.check(key, cost))
    }
}

pub(super) fn check_all(asks: &[Ask<'_>]) -> Joint {
    let ask = |ask: &Ask<'_>| match ask.counters {
        Counters::Memory(counters) => counters.limiter.ask(&ask.key).cost(ask.cost),
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

    pub(super) fn peek(&self, key: Key<'_>, cost: u64) -> Decision {
        self.limiter.ask(&key).cost(cost).peek()
    }

    pub(super) fn reset(&self, key: Key<'_>) {
        self.limiter.reset(&key);
    }

    pub(super) fn refund(&self, key: Key<'_>, cost: u64) {
        self.limiter.refund(&key, cost);
    }

    pub(super) fn acquire(&self, key: Key<'_>, cost: u64) -> Result<Permit<ServerClock>, Decision> {
        self.limiter.ask(&key).cost(cost).try_acquire().map_err(|denied| denied.decision)
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

//! Counters in Redis or Valkey, which several servers share: the `tidegate-redis` crate's limiters.
//!
//! Always   A decision never fails: where the store does not answer, the limit's `on_error` does.
//! Always   Who was started or reloaded last has the last word about a rule. It is published until the store has
//!          heard of it; then others may change it, and this server goes by theirs.

use super::findings::Findings;
use super::health::{Seen, ServerHealth};
use super::{Ask, Counters, IdempotencyKey, Key, StoreError};
use crate::clock::ServerClock;
use crate::config::{LimitConfig, OnError, StoreConfig};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use tidegate::store::Stats;
use tidegate::throttle::{Throttle, Throttled, Throttles};
use tidegate::{Decision, Joint, Limiter, Rule};
use tidegate_redis::{
    Finding, JointAsk, Latencies, LimitHealth, RedisLimiter, RedisPermit, RedisStore,
    RedisThrottles, Unsuited,
};
use tokio::runtime::Handle;

/// A store that several servers share.
#[derive(Debug)]
pub struct Redis {
    store: RedisStore,
    nodes: u64,
    lease: bool,
    /// Where its connections live, and what is done in the background.
    runtime: Handle,
    throttles: RedisThrottles<ServerClock>,
    seen: Seen,
    findings: Findings,
}

/// The counters of one limit.
#[derive(Clone, Debug)]
pub struct RedisCounters {
    limiter: RedisLimiter,
    on_error: OnError,
    /// What the store has to hear about the rule.
    unpublished: Arc<Mutex<Option<Rule>>>,
}

impl Redis {
    /// In the runtime that this is called in.
    pub(super) fn new(
        store: RedisStore,
        config: Option<&StoreConfig>,
        clock: ServerClock,
        throttle_max_keys: usize,
    ) -> Self {
        let limiter = Limiter::builder(Throttles::rule()).max_keys(throttle_max_keys);
        let share =
            Throttles::over(limiter.with_clock(clock.clone())).expect("it was built with the rule");
        let nodes = config.map_or(1, |config| config.nodes);
        Self {
            throttles: store.throttles(share, nodes),
            seen: Seen::new(clock),
            findings: Findings::default(),
            store,
            nodes,
            lease: config.is_some_and(|config| config.lease),
            runtime: Handle::current(),
        }
    }

    pub(super) fn open(&self, limit: &LimitConfig) -> Result<RedisCounters, Unsuited> {
        let on_error = match limit.on_error {
            OnError::Local => tidegate_redis::OnError::Local { nodes: self.nodes },
            OnError::Allow => tidegate_redis::OnError::Allow,
            OnError::Deny => tidegate_redis::OnError::Deny,
        };
        let builder = self.store.builder(&limit.name, limit.rule.clone()).on_error(on_error);
        let mut builder = builder.lease(self.lease);
        if let Some(deadline) = limit.deadline {
            builder = builder.deadline(deadline);
        }
        Ok(RedisCounters {
            limiter: builder.build()?,
            on_error: limit.on_error,
            unpublished: Arc::new(Mutex::new(Some(limit.rule.clone()))),
        })
    }

    /// What decides about `CL.THROTTLE` while the store does not answer.
    pub(super) fn throttles(&self) -> &Throttles<ServerClock> {
        self.throttles.share()
    }

    pub(super) fn throttle<'a>(
        &'a self,
        key: Key<'a>,
        throttle: &'a Throttle,
    ) -> Later<'a, Throttled> {
        Box::pin(self.throttles.check(key.0, throttle))
    }

    pub(super) fn forget_throttled<'a>(
        &'a self,
        key: Key<'a>,
    ) -> Later<'a, Result<bool, StoreError>> {
        Box::pin(async move { Ok(self.throttles.reset(key.0).await?) })
    }

    pub(super) fn throttled(&self) -> Stats {
        in_all_words(&self.throttles.stats())
    }

    /// Looks how the servers are.
    pub(super) fn health(&self) -> Vec<ServerHealth> {
        self.seen.look(self.store.health())
    }

    pub(super) fn round_trips(&self) -> &Latencies {
        self.store.round_trips()
    }

    pub(super) async fn examine(&self) {
        self.findings.learn(self.store.examine().await);
    }

    pub(super) fn findings(&self) -> Vec<Finding> {
        self.findings.all()
    }

    pub(super) fn throttles_failed(&self) -> Vec<(&'static str, u64)> {
        self.throttles.stats().failed_by_kind
    }

    pub(super) fn throttles_health(&self) -> LimitHealth {
        self.throttles.health()
    }

    pub(super) fn runtime(&self) -> &Handle {
        &self.runtime
    }
}

/// Something that Redis will say.
pub(super) type Later<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Decides several requests as one; without the store, by the limits' policies.
pub(super) fn check_all<'a>(asks: &'a [Ask<'a>]) -> Later<'a, Joint> {
    let ask = |ask: &'a Ask<'a>| match ask.counters {
        Counters::Redis(RedisCounters { limiter, .. }) => {
            JointAsk { limiter, key: ask.key.0, cost: ask.cost }
        }
        Counters::Memory(_) => unreachable!("a server has one store"),
    };
    let asks: Vec<JointAsk<'a>> = asks.iter().map(ask).collect();
    Box::pin(async move { tidegate_redis::decide_all(&asks).await })
}

/// Gives a place back; whether it was held.
pub(super) fn release(permit: RedisPermit) -> Later<'static, Result<bool, StoreError>> {
    Box::pin(async move { permit.release().await.map_err(StoreError::GivenBackLater) })
}

impl RedisCounters {
    pub(super) fn check<'a>(&'a self, key: Key<'a>, cost: u64) -> Later<'a, Decision> {
        Box::pin(async move { self.limiter.decide(key.0, cost).await.decision })
    }

    pub(super) fn check_once<'a>(
        &'a self,
        key: Key<'a>,
        cost: u64,
        id: IdempotencyKey<'a>,
    ) -> Later<'a, Decision> {
        Box::pin(self.limiter.check_once(key.0, cost, id.as_str()))
    }

    pub(super) fn peek<'a>(
        &'a self,
        key: Key<'a>,
        cost: u64,
    ) -> Later<'a, Result<Decision, StoreError>> {
        Box::pin(async move { Ok(self.limiter.peek(key.0, cost).await?) })
    }

    /// What this server would say without the store.
    pub(super) fn peek_without(&self, key: Key<'_>, cost: u64) -> Decision {
        self.limiter.peek_without_redis(key.0, cost)
    }

    pub(super) fn reset<'a>(&'a self, key: Key<'a>) -> Later<'a, Result<(), StoreError>> {
        Box::pin(async move { Ok(self.limiter.reset(key.0).await?) })
    }

    pub(super) fn refund<'a>(
        &'a self,
        key: Key<'a>,
        cost: u64,
    ) -> Later<'a, Result<(), StoreError>> {
        Box::pin(async move { Ok(self.limiter.refund(key.0, cost).await?) })
    }

    pub(super) fn acquire<'a>(
        &'a self,
        key: Key<'a>,
        cost: u64,
    ) -> Later<'a, Result<RedisPermit, Decision>> {
        let acquired = async move { self.limiter.try_acquire(key.0, cost).await };
        Box::pin(async move { acquired.await.map_err(|denied| denied.decision) })
    }

    /// Goes on under another rule, as soon as the store [has heard](Self::publish) of it.
    pub(super) fn change(&self, rule: Rule) {
        *self.unpublished.lock().expect("nobody panics with it") = Some(rule);
    }

    /// Whether there is something that the store has not heard.
    pub(crate) fn is_published(&self) -> bool {
        self.unpublished.lock().expect("nobody panics with it").is_none()
    }

    /// Has all who share the limit go by the rule that this server was told.
    pub(crate) async fn publish(&self) -> Result<(), StoreError> {
        let told = self.unpublished.lock().expect("nobody panics with it").clone();
        let Some(rule) = told else { return Ok(()) };
        self.limiter.ready().await?;
        if self.limiter.rule() != rule {
            self.limiter.set_rule(rule.clone()).await?;
        }
        let mut unpublished = self.unpublished.lock().expect("nobody panics with it");
        // Another may have been told meanwhile.
        if unpublished.as_ref() == Some(&rule) {
            *unpublished = None;
        }
        Ok(())
    }

    pub(super) fn rule(&self) -> Rule {
        self.limiter.rule()
    }

    /// What happens when the store does not answer.
    pub fn on_error(&self) -> OnError {
        self.on_error
    }

    /// Whether the store decides this limit's requests.
    pub fn health(&self) -> LimitHealth {
        self.limiter.health()
    }

    /// What was decided, with and without the store.
    pub fn counted(&self) -> tidegate_redis::Stats {
        self.limiter.stats()
    }

    /// The same in the words that all stores have.
    pub(super) fn stats(&self) -> Stats {
        in_all_words(&self.limiter.stats())
    }
}

/// What all stores count.
fn in_all_words(counted: &tidegate_redis::Stats) -> Stats {
    let mut stats = Stats::default();
    (stats.allowed, stats.denied) = (counted.allowed, counted.denied);
    stats
}

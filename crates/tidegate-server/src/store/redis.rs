//! Limits in Redis or Valkey, which several servers may share: the `tidegate-redis` crate's limiters.
//!
//! Always   A decision never fails: while Redis does not answer, the limit's `on_error` decides.
//! Always   The server that was started or reloaded last determines a rule. It publishes the rule until Redis has it; after that,
//!          another server may change it, and this server follows.

use super::findings::Findings;
use super::health::HealthHistory;
use super::{Backend, Counters, ServerHealth, StoreError};
use crate::clock::ServerClock;
use crate::config::{Config, LimitConfig, OnError};
use crate::sync::lock;
use std::sync::{Arc, Mutex};
use tidegate::snapshot::Snapshot;
use tidegate::store::Stats;
use tidegate::store::{LimitStore, Reply};
use tidegate::throttle::{Throttle, Throttled, Throttles};
use tidegate::{Limiter, Rule};
use tidegate_redis::{
    Latencies, LimitHealth, RedisLimiter, RedisStore, RedisThrottles, ServerProblem,
    UnsupportedRule,
};
use tokio::runtime::Handle;

/// The store in Redis.
#[derive(Debug)]
pub struct RedisBackend {
    store: RedisStore,
    nodes: u64,
    lease: bool,
    /// Runs the connections and background work.
    runtime: Handle,
    throttles: RedisThrottles<ServerClock>,
    health: HealthHistory,
    findings: Findings,
}

/// One limit in Redis.
#[derive(Debug)]
pub struct RedisCounters {
    limiter: RedisLimiter,
    on_error: OnError,
    /// The rule that Redis does not have yet.
    unpublished: Mutex<Option<Rule>>,
}

impl RedisBackend {
    /// Creates the store, whose background work runs in the runtime that this is called in.
    #[expect(clippy::missing_panics_doc, reason = "the rule is the one that is expected")]
    pub fn new(store: RedisStore, config: &Config, clock: ServerClock) -> Self {
        let limiter = Limiter::builder(Throttles::rule()).max_keys(config.server.throttle_max_keys);
        let fallback = Throttles::over(limiter.with_clock(clock.clone()));
        let fallback = fallback.expect("the limiter was built with its rule");
        let nodes = config.store.as_ref().map_or(1, |config| config.nodes);
        Self {
            throttles: store.throttles(fallback, nodes),
            health: HealthHistory::new(clock),
            findings: Findings::default(),
            store,
            nodes,
            lease: config.store.as_ref().is_some_and(|config| config.lease),
            runtime: Handle::current(),
        }
    }

    /// Returns the state of Redis's servers as far as they are known, and logs what changed since the last call.
    pub fn health(&self) -> Vec<ServerHealth> {
        self.health.update(self.store.health())
    }

    /// Returns how long Redis took to reply.
    pub fn round_trips(&self) -> &Latencies {
        self.store.round_trips()
    }

    /// Examines the settings of Redis's servers and keeps the [findings](Self::findings). This takes a few round trips.
    pub async fn examine(&self) {
        self.findings.replace(self.store.examine().await);
    }

    /// Returns what the last [examination](Self::examine) found.
    pub fn findings(&self) -> Vec<ServerProblem> {
        self.findings.all()
    }

    /// Returns how often Redis failed to decide a `CL.THROTTLE`, by kind of failure.
    pub fn throttle_failures(&self) -> Vec<(&'static str, u64)> {
        self.throttles.stats().failed_by_kind
    }

    /// Returns whether Redis decides `CL.THROTTLE`.
    pub fn throttle_health(&self) -> LimitHealth {
        self.throttles.health()
    }

    /// Returns the runtime for background work.
    pub(crate) fn runtime(&self) -> &Handle {
        &self.runtime
    }
}

impl Backend for RedisBackend {
    fn open(
        &self,
        limit: &LimitConfig,
        _: &Snapshot,
    ) -> Result<Arc<dyn Counters>, UnsupportedRule> {
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
        Ok(Arc::new(RedisCounters {
            limiter: builder.build()?,
            on_error: limit.on_error,
            unpublished: Mutex::new(Some(limit.rule.clone())),
        }))
    }

    fn throttles(&self) -> &Throttles<ServerClock> {
        self.throttles.share()
    }

    fn throttle<'a>(&'a self, key: &'a [u8], throttle: &'a Throttle) -> Reply<'a, Throttled> {
        Reply::later(self.throttles.check(key, throttle))
    }

    fn reset_throttle<'a>(&'a self, key: &'a [u8]) -> Reply<'a, Result<bool, StoreError>> {
        Reply::later(async { self.throttles.reset(key).await.map_err(StoreError::unavailable) })
    }

    fn throttle_stats(&self) -> Stats {
        common_stats(&self.throttles.stats())
    }

    fn shared(&self) -> Option<&RedisBackend> {
        Some(self)
    }
}

impl RedisCounters {
    /// Returns whether Redis has the rule that this server was configured with.
    pub(crate) fn is_published(&self) -> bool {
        lock(&self.unpublished).is_none()
    }

    /// Makes the rule that this server was configured with the rule of all servers that share the limit.
    pub(crate) async fn publish(&self) -> Result<(), StoreError> {
        let configured = lock(&self.unpublished).clone();
        let Some(rule) = configured else { return Ok(()) };
        self.limiter.ready().await.map_err(StoreError::unavailable)?;
        if self.limiter.rule() != rule {
            self.limiter.set_rule(rule.clone()).await.map_err(StoreError::unavailable)?;
        }
        // A reload may have brought another rule meanwhile, which is still to be published.
        lock(&self.unpublished).take_if(|unpublished| *unpublished == rule);
        Ok(())
    }

    /// Returns what decides while Redis does not answer.
    pub fn on_error(&self) -> OnError {
        self.on_error
    }

    /// Returns whether Redis decides this limit's requests.
    pub fn health(&self) -> LimitHealth {
        self.limiter.health()
    }

    /// Returns how often Redis failed to decide, by kind of failure.
    pub fn failures(&self) -> Vec<(&'static str, u64)> {
        self.limiter.stats().failed_by_kind
    }
}

impl Counters for RedisCounters {
    fn store(&self) -> &dyn LimitStore {
        &self.limiter
    }

    fn set_rule(&self, rule: Rule) {
        *lock(&self.unpublished) = Some(rule);
    }

    fn is_idle(&self) -> bool {
        self.limiter.is_idle()
    }

    fn stats(&self) -> Stats {
        common_stats(&self.limiter.stats())
    }

    fn shared(&self) -> Option<&RedisCounters> {
        Some(self)
    }
}

/// Returns the counts that every store has.
fn common_stats(redis: &tidegate_redis::RedisStats) -> Stats {
    let mut stats = Stats::default();
    (stats.allowed, stats.denied) = (redis.allowed, redis.denied);
    stats
}

//! What one process holds for one limit: the limit in Redis, the fallback, caches, leases and counters.

use crate::cache::{DenialCache, RemainingCache};
use crate::connection::{Deadline, RedisStoreError};
use crate::deferred_release::DeferredReleases;
use crate::fallback::{DecisionSource, Fallback, SourcedDecision};
use crate::lease::{self, LeaseDecision, Leases};
use crate::monitor::{Counters, FailedRequest, HealthTracker};
use crate::remote::rule_registry::CurrentRule;
use crate::remote::{RemoteLimit, RuleObserver};
use crate::script::codec::Operation;
use crate::sync::Mutex;
use std::sync::{Arc, Weak};
use tidegate::Decision;
use tokio::runtime::Handle;

/// The rule is read from Redis again once in this many sweeps, since another process may have changed it.
const SWEEPS_PER_REFRESH: u32 = 4;

#[derive(Debug)]
pub(crate) struct LimitContext {
    pub(crate) remote: Arc<RemoteLimit>,
    pub(crate) fallback: Arc<Fallback>,
    pub(crate) denial_cache: Arc<DenialCache>,
    pub(crate) remaining_cache: RemainingCache,
    pub(crate) leases: Option<Arc<Leases>>,
    pub(crate) counters: Counters,
    pub(crate) health: Arc<HealthTracker>,
    pub(crate) releases: Arc<DeferredReleases>,
    /// The version of the rule that all of these have adopted; 0 before the first.
    adopted_version: Mutex<u64>,
}

impl LimitContext {
    pub(super) fn new(remote: RemoteLimit, fallback: Fallback, has_leases: bool) -> Arc<Self> {
        let (remote, fallback) = (Arc::new(remote), Arc::new(fallback));
        let denial_cache = Arc::new(DenialCache::default());
        let leases = has_leases.then(|| {
            let parts = (Arc::clone(&remote), Arc::clone(&fallback), Arc::clone(&denial_cache));
            Arc::new(Leases::new(parts.0, parts.1, parts.2))
        });
        let context = Arc::new(Self {
            releases: Arc::new(DeferredReleases::new(Arc::clone(&remote))),
            remote,
            fallback,
            denial_cache,
            remaining_cache: RemainingCache::default(),
            leases,
            counters: Counters::default(),
            health: Arc::default(),
            adopted_version: Mutex::default(),
        });
        let observer = Arc::downgrade(&context);
        context.remote.observe(Weak::clone(&observer) as Weak<dyn RuleObserver>);
        context.runtime().spawn(sweep_until_dropped(observer));
        context
    }

    pub(crate) fn runtime(&self) -> &Handle {
        &self.remote.runner().runtime
    }

    /// Reads the rule from Redis again.
    pub(crate) async fn refresh_rule(&self) {
        if self.remote.loaded_rule().is_some() {
            // After an error the next refresh tries again.
            let _ = self.remote.refresh_rule().await;
        } else if self.remote.zero_rule_decision(1).is_some() {
            // Requests under a rule that admits nothing do not ask Redis, so they do not publish the rule.
            let _ = self.remote.current_rule(self.remote.start_deadline()).await;
        }
    }

    /// Decides, and counts, a request that Redis is not asked about: the rule admits nothing, or the share denies the key.
    pub(super) fn decide_before_redis(&self, key: &[u8], cost: u64) -> Option<SourcedDecision> {
        if let Some(decision) = self.zero_rule_decision(cost) {
            return Some(SourcedDecision { decision, source: DecisionSource::Rule });
        }
        let decision = self.share_denial(key, cost)?;
        self.counters.decided(&decision);
        Some(SourcedDecision { decision, source: DecisionSource::LocalShare })
    }

    /// Returns the decision of a rule that admits nothing, and counts it.
    pub(super) fn zero_rule_decision(&self, cost: u64) -> Option<Decision> {
        let decision = self.remote.zero_rule_decision(cost)?;
        self.counters.decided(&decision);
        Some(decision)
    }

    /// Decides by a lease that is requested first; `None` if Redis decides.
    pub(super) async fn decide_by_new_lease(
        &self,
        key: &[u8],
        cost: u64,
        deadline: Deadline,
    ) -> Result<Option<SourcedDecision>, RedisStoreError> {
        let Some(leases) = &self.leases else { return Ok(None) };
        if self.fallback.is_recovering(key) {
            // A lease must not cover a debt that Redis does not know of: the share decides about each request too.
            return Ok(None);
        }
        let sent = self.denial_cache.now();
        let sourced = match leases.refill(key, cost, sent, deadline).await? {
            LeaseDecision::AskRedis => return Ok(None),
            LeaseDecision::Admitted(decision) => {
                SourcedDecision { decision, source: DecisionSource::Lease }
            }
            LeaseDecision::Denied(decision, answer) => {
                if let Some(answer) = answer {
                    let denial = (answer.decision, &decision);
                    self.denial_cache.put(key, denial, answer.version, cost, sent);
                }
                let decision = self.fallback.confirm(key, cost, decision);
                SourcedDecision { decision, source: DecisionSource::Redis }
            }
        };
        self.health.answered();
        self.counters.decided(&sourced.decision);
        Ok(Some(sourced))
    }

    /// Returns a cached denial, and counts it.
    pub(super) fn cached_denial(&self, key: &[u8], cost: u64) -> Option<SourcedDecision> {
        let decision = self.peek_denial_cache(key, cost)?;
        self.counters.denied_by_cache();
        Some(SourcedDecision { decision, source: DecisionSource::CachedDenial })
    }

    /// Returns a cached denial.
    pub(crate) fn peek_denial_cache(&self, key: &[u8], cost: u64) -> Option<Decision> {
        // The cache uses this node's clock, which a test does not control.
        if self.remote.runner().clock.is_injected() {
            return None;
        }
        let current = self.remote.loaded_rule_guard();
        let current = current.as_ref()?;
        self.denial_cache.get(key, &current.codec, current.version, cost)
    }

    /// Returns the cached decision about a cost of 0, which reports what the key has remaining.
    pub(crate) fn cached_remaining(&self, key: &[u8]) -> Option<Decision> {
        let current = self.remote.loaded_rule_guard();
        let current = current.as_ref()?;
        self.remaining_cache.get(key, &current.codec, current.version)
    }

    /// Removes a key from the caches, after a refund or a reset.
    pub(crate) fn forget(&self, key: &[u8]) {
        self.denial_cache.forget(key);
        self.remaining_cache.forget(key);
    }

    /// Returns the share's denial of a key with a debt of which Redis does not know. `None` during the outage itself, so that the
    /// request fails and is counted as a failure.
    pub(super) fn share_denial(&self, key: &[u8], cost: u64) -> Option<Decision> {
        self.fallback.still_denies(key, cost).filter(|_| self.remote.is_up(key))
    }

    /// Returns the decision about a request that Redis has decided: during recovery the share must admit it too.
    pub(super) fn confirm(&self, key: &[u8], cost: u64, decision: Decision) -> Decision {
        self.health.answered();
        let decision = self.fallback.confirm(key, cost, decision);
        self.counters.decided(&decision);
        decision
    }

    /// Records a request that Redis did not decide.
    pub(crate) fn note_failure(&self, key: &[u8], error: &RedisStoreError) {
        let (key, deadline) = (self.remote.key(key), self.remote.deadline());
        self.health.failed(self.remote.runner(), FailedRequest { key, deadline, error });
    }

    /// Records and counts a request that the policy decides, because Redis did not.
    pub(super) fn count_failure(&self, key: &[u8], error: &RedisStoreError) {
        self.note_failure(key, error);
        self.counters.failed(self.remote.name(), error);
    }

    /// Decides a request that Redis did not decide.
    pub(super) fn decide_without_redis(
        &self,
        key: &[u8],
        cost: u64,
        error: &RedisStoreError,
    ) -> SourcedDecision {
        self.count_failure(key, error);
        let sourced = self.fallback.decide(key, cost);
        self.counters.decided(&sourced.decision);
        sourced
    }

    /// Refunds a request where it was charged. If Redis does not answer, the charge drains.
    pub(crate) async fn undo(&self, key: &[u8], cost: u64, source: DecisionSource) {
        let is_in_redis = match source {
            DecisionSource::Redis | DecisionSource::Lease => true,
            DecisionSource::LocalShare => false,
            DecisionSource::CachedDenial | DecisionSource::Policy | DecisionSource::Rule => return,
        };
        if is_in_redis {
            if self.remote.run(key, Operation::Refund, cost, None).await.is_err() {
                return;
            }
            self.forget(key);
        }
        self.fallback.refund(key, cost);
    }
}

impl RuleObserver for LimitContext {
    fn rule_changed(&self, current: &CurrentRule) {
        let mut adopted = self.adopted_version.lock();
        // Of concurrent updates, the older may arrive last.
        if current.version <= *adopted {
            return;
        }
        let is_first = *adopted == 0;
        *adopted = current.version;
        self.fallback.set_rule(&current.rule);
        self.denial_cache.forget_all();
        if let Some(leases) = &self.leases {
            leases.forget_all();
        }
        if !is_first {
            tracing::info!(limit = self.remote.name(), "the rule is `{}` now", current.rule);
        }
    }
}

/// Returns unused leases and reads the rule at regular intervals, until the limiter is dropped.
async fn sweep_until_dropped(context: Weak<LimitContext>) {
    for sweep in 1_u32.. {
        tokio::time::sleep(lease::SWEEP_INTERVAL).await;
        let Some(context) = context.upgrade() else { return };
        if let Some(leases) = &context.leases {
            leases.sweep().await;
        }
        if sweep.is_multiple_of(SWEEPS_PER_REFRESH) {
            context.refresh_rule().await;
        }
    }
}

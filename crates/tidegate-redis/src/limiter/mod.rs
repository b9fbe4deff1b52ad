//! A limit that several processes share: [`RedisLimiter`].
//!
//! Which methods have the same meaning as in memory, which differ, and which only one of the two has: `docs/guide/redis.md`,
//! "Methods". Methods that decide never fail, because [`OnError`](crate::OnError) applies; [`try_check`](RedisLimiter::try_check) is
//! `check_n` without that policy.

mod builder;
mod context;
mod permit;
mod request;

pub use builder::{Builder, UnsupportedRule};
pub(crate) use context::LimitContext;
pub use permit::RedisPermit;
pub use request::RedisRequest;

use crate::connection::{Deadline, RedisStoreError};
use crate::fallback::{DecisionSource, SourcedDecision};
use crate::monitor::{LimitHealth, LimitState, RedisStats};
use crate::script::codec::Operation;
use std::sync::Arc;
use tidegate::rule::Window;
use tidegate::store::IdempotencyKey;
use tidegate::{Decision, Denied, Rule};

/// A limit that all processes with the same store and the same name share.
///
/// Methods that decide always return a decision: if Redis does not answer within the
/// [deadline](crate::Builder::deadline), [`OnError`](crate::OnError) decides. The others return a [`RedisStoreError`] then.
///
/// `check`, `check_n`, and requests with a cost and a maximum wait have the meaning that they have in [`tidegate::Limiter`], with
/// an `.await`. Keys are bytes, so that all processes agree on them. `docs/guide/redis.md` lists the
/// methods that differ and those that only memory has.
///
/// ```no_run
/// # async fn example(store: tidegate_redis::RedisStore) -> Result<(), Box<dyn std::error::Error>> {
/// let limiter = store.limiter("api", "100/s burst 20".parse()?)?;
/// let decision = limiter.check("alice").await;
/// if decision.is_deny() {
///     println!("try again in {:?}", decision.retry_after());
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct RedisLimiter {
    pub(crate) inner: Arc<LimitContext>,
}

impl RedisLimiter {
    /// Decides a request of cost 1, and charges it unless it is denied.
    pub async fn check(&self, key: impl AsRef<[u8]>) -> Decision {
        self.check_n(key, 1).await
    }

    /// Decides a request of this cost, and charges it unless it is denied.
    pub async fn check_n(&self, key: impl AsRef<[u8]>, cost: u64) -> Decision {
        self.decide(key.as_ref(), cost).await.decision
    }

    /// Does the same as [`check_n`](Self::check_n), and also returns where the decision was made.
    pub async fn decide(&self, key: &[u8], cost: u64) -> SourcedDecision {
        match self.decide_in_memory(key, cost) {
            Some(sourced) => sourced,
            None => self.decide_in_redis(key, cost).await,
        }
    }

    /// Decides by a lease or by a cached denial.
    fn decide_in_memory(&self, key: &[u8], cost: u64) -> Option<SourcedDecision> {
        let inner = &*self.inner;
        let spent =
            inner.leases.as_ref().and_then(|leases| Some((leases, leases.spend(key, cost)?)));
        let Some((leases, spent)) = spent else { return inner.cached_denial(key, cost) };
        if spent.is_low {
            let (leases, key) = (Arc::clone(leases), key.to_vec());
            inner.runtime().spawn(async move { leases.prefetch(&key).await });
        }
        inner.counters.allowed();
        let decision = leases.admitted(spent.remaining);
        Some(SourcedDecision { decision, source: DecisionSource::Lease })
    }

    async fn decide_in_redis(&self, key: &[u8], cost: u64) -> SourcedDecision {
        let inner = &*self.inner;
        if let Some(sourced) = inner.decide_before_redis(key, cost) {
            return sourced;
        }
        let deadline = inner.remote.start_deadline();
        let decided = match inner.decide_by_new_lease(key, cost, deadline).await {
            Ok(Some(sourced)) => Ok(sourced),
            Ok(None) => self.charge_in_redis(key, cost, deadline).await,
            Err(error) => Err(error),
        };
        decided.unwrap_or_else(|error| inner.decide_without_redis(key, cost, &error))
    }

    async fn charge_in_redis(
        &self,
        key: &[u8],
        cost: u64,
        deadline: Deadline,
    ) -> Result<SourcedDecision, RedisStoreError> {
        let inner = &*self.inner;
        let sent = inner.denial_cache.now();
        let charged = inner.remote.run_within(deadline, key, Operation::Charge, cost, None).await?;
        if charged.decision.is_deny() && inner.remote.is_denial_lasting() {
            let denial = (charged.answer, &charged.decision);
            inner.denial_cache.put(key, denial, charged.version, cost, sent);
        }
        let decision = inner.confirm(key, cost, charged.decision);
        Ok(SourcedDecision { decision, source: DecisionSource::Redis })
    }

    /// Decides a request that its sender may repeat: within [`IDEMPOTENCY_WINDOW`](tidegate::store::IDEMPOTENCY_WINDOW), an admitted
    /// request with the same key, cost and `id` is charged once, and its repetitions get the first decision again. A denied
    /// request is decided anew. While Redis does not answer, [`OnError`](crate::OnError) decides and ignores the id.
    ///
    /// ```no_run
    /// # async fn example(limiter: tidegate_redis::RedisLimiter)
    /// # -> Result<(), tidegate::store::InvalidIdempotencyKey> {
    /// use tidegate::store::IdempotencyKey;
    ///
    /// let decision = limiter.check_once("alice", 1, IdempotencyKey::new("order 7")?).await;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn check_once(
        &self,
        key: impl AsRef<[u8]>,
        cost: u64,
        id: IdempotencyKey<'_>,
    ) -> Decision {
        let (key, inner) = (key.as_ref(), &*self.inner);
        if let Some(decision) = inner.zero_rule_decision(cost) {
            return decision;
        }
        // A repetition gets the stored decision even if the share would deny it now, since it was charged. A new request that
        // the share denies must not be charged.
        let denied = inner.share_denial(key, cost);
        let operation = if denied.is_some() { Operation::Peek } else { Operation::Charge };
        let charged = match inner.remote.run(key, operation, cost, Some(id)).await {
            Ok(charged) => charged,
            Err(error) => return inner.decide_without_redis(key, cost, &error).decision,
        };
        match denied {
            _ if charged.is_repeated => {
                inner.health.answered();
                charged.decision
            }
            Some(denied) => {
                inner.health.answered();
                inner.counters.decided(&denied);
                denied
            }
            None => inner.confirm(key, cost, charged.decision),
        }
    }

    /// Decides as [`check_n`](Self::check_n) does, for callers with a policy of their own.
    ///
    /// This node's share of the limit is charged too, so that a later outage does not begin with a fresh burst. After an outage, a
    /// key that was admitted requests without Redis needs the share's admission too.
    ///
    /// # Errors
    /// Redis does not answer.
    pub async fn try_check(
        &self,
        key: impl AsRef<[u8]>,
        cost: u64,
    ) -> Result<Decision, RedisStoreError> {
        let (key, inner) = (key.as_ref(), &*self.inner);
        if let Some(sourced) = inner.decide_before_redis(key, cost) {
            return Ok(sourced.decision);
        }
        match inner.remote.charge(key, cost, None).await {
            Ok(charged) => Ok(inner.confirm(key, cost, charged.decision)),
            Err(error) => {
                inner.note_failure(key, &error);
                Err(error)
            }
        }
    }

    /// Returns what [`check`](Self::check) would decide, without charging. For another cost see [`RedisRequest::peek`].
    ///
    /// # Errors
    /// Redis does not answer.
    pub async fn peek(&self, key: impl AsRef<[u8]>) -> Result<Decision, RedisStoreError> {
        self.request(key.as_ref()).peek().await
    }

    /// Returns the current window of a key, for rules with windows. It ends when the next one starts, by Redis's clock.
    ///
    /// # Errors
    /// Redis does not answer.
    pub async fn window(&self, key: impl AsRef<[u8]>) -> Result<Option<Window>, RedisStoreError> {
        self.inner.remote.window(key.as_ref()).await
    }

    /// Refunds `cost` of what was charged to a key, at most what is charged.
    ///
    /// # Errors
    /// Redis does not answer.
    pub async fn refund(&self, key: impl AsRef<[u8]>, cost: u64) -> Result<(), RedisStoreError> {
        let (key, inner) = (key.as_ref(), &*self.inner);
        inner.remote.run(key, Operation::Refund, cost, None).await?;
        inner.fallback.refund(key, cost);
        inner.forget(key);
        Ok(())
    }

    /// Forgets everything that was charged to a key.
    ///
    /// # Errors
    /// Redis does not answer.
    pub async fn reset(&self, key: impl AsRef<[u8]>) -> Result<(), RedisStoreError> {
        let (key, inner) = (key.as_ref(), &*self.inner);
        inner.remote.reset(key).await?;
        inner.fallback.reset(key);
        inner.forget(key);
        if let Some(leases) = &inner.leases {
            leases.forget(key);
        }
        Ok(())
    }

    /// Returns a request with a cost or a maximum wait, or one to decide together with others.
    pub fn request<'a>(&'a self, key: &'a (impl AsRef<[u8]> + ?Sized)) -> RedisRequest<'a> {
        RedisRequest::new(self, key.as_ref())
    }

    /// Waits until a request of cost 1 is admitted: see [`RedisRequest::acquire`].
    ///
    /// # Errors
    /// The limit never admits the request.
    pub async fn acquire(&self, key: impl AsRef<[u8]>) -> Result<RedisPermit, Denied> {
        self.request(key.as_ref()).acquire().await
    }

    /// Acquires a permit if the limit admits a request of cost 1 now: see [`RedisRequest::try_acquire`].
    ///
    /// # Errors
    /// The limit denies the request, or would delay it.
    pub async fn try_acquire(&self, key: impl AsRef<[u8]>) -> Result<RedisPermit, Denied> {
        self.request(key.as_ref()).try_acquire().await
    }

    /// Returns the command that a decision sends, for benches.
    #[doc(hidden)]
    pub async fn command(&self, key: &[u8], cost: u64) -> Result<Vec<Vec<u8>>, RedisStoreError> {
        self.inner.remote.command(key, cost).await
    }

    /// Returns whether a new limiter of this name would decide as this one does, so that this one can be dropped: it has no other
    /// clone (every permit holds one), no lease, and no key of this node's share owes anything.
    ///
    /// Redis keeps what it has charged. But only this limiter knows what it admitted while Redis did not answer, and what its share
    /// has left if Redis stops answering now. The share is charged for what Redis admits, so it owes about as long as Redis's keys do.
    pub fn is_idle(&self) -> bool {
        let inner = &*self.inner;
        Arc::strong_count(&self.inner) == 1
            && inner.leases.as_ref().is_none_or(|leases| leases.is_empty())
            && inner.fallback.is_idle()
    }

    /// Publishes the rule now, rather than with the first decision, which then takes one round trip.
    ///
    /// # Errors
    /// Redis does not answer.
    pub async fn ready(&self) -> Result<(), RedisStoreError> {
        self.inner.remote.current_rule(self.inner.remote.start_deadline()).await.map(drop)
    }

    /// Returns the rule in force, which another process may have changed.
    pub fn rule(&self) -> Rule {
        self.inner.remote.rule()
    }

    /// Changes the rule for all processes. Keys keep their debt, as far as the new rule can express it.
    ///
    /// # Errors
    /// Redis does not answer. The rule is published with the next request.
    pub async fn set_rule(&self, rule: Rule) -> Result<(), RedisStoreError> {
        self.inner.remote.publish(&rule).await
    }

    /// Returns what this process has decided, and where.
    pub fn stats(&self) -> RedisStats {
        let mut stats = self.inner.counters.read();
        if let Some(leases) = &self.inner.leases {
            (stats.lent, stats.returned) = leases.lent();
        }
        stats
    }

    /// Returns whether Redis decided this limit's requests in the last second.
    ///
    /// While Redis does not answer and there are no requests, a probe takes their place four times a second. A rule that admits
    /// nothing is never degraded, since Redis is not asked.
    ///
    /// ```no_run
    /// # fn example(limiter: tidegate_redis::RedisLimiter) {
    /// let health = limiter.health();
    /// if health.state.is_degraded() {
    ///     eprintln!("decided without Redis: {}", health.last_failure);
    /// }
    /// # }
    /// ```
    pub fn health(&self) -> LimitHealth {
        let inner = &*self.inner;
        if inner.remote.zero_rule_decision(1).is_some() {
            return LimitHealth { state: LimitState::Idle, last_failure: String::new() };
        }
        inner.health.read(&inner.remote.runner().servers)
    }
}

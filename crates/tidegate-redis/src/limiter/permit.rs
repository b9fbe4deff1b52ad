//! A permit: of a concurrency limit it is one of the requests in flight, of other limits it holds nothing.
//!
//! Invariant  Dropping a permit releases it in the background; so does cancelling [`RedisPermit::release`]. If Redis does not
//!            answer, the release is sent again (`deferred_release.rs`) until the lease ends.

use crate::connection::RedisStoreError;
use crate::deferred_release::PermitId;
use crate::fallback::DecisionSource;
use crate::limiter::RedisLimiter;
use tidegate::{Decision, Permit};

/// A permit of a concurrency limit, released when it is dropped. Permits of other limits hold nothing.
///
/// ```no_run
/// # async fn example(limiter: tidegate_redis::RedisLimiter) -> Result<(), Box<dyn std::error::Error>> {
/// let permit = limiter.acquire("pool").await?;
/// // … the work …
/// permit.release().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "dropping the permit releases it"]
pub struct RedisPermit {
    limiter: RedisLimiter,
    key: Vec<u8>,
    decision: Decision,
    /// The permit in Redis.
    permit: Option<PermitId>,
    /// The permit of this node's share.
    local: Option<Permit>,
    /// Whether Redis does not know of the permit, because it did not answer.
    is_unknown_to_redis: bool,
    /// The cost of a rate limit and where it was charged, until [`keep_charge`](Self::keep_charge).
    refundable: Option<(u64, DecisionSource)>,
}

impl RedisPermit {
    /// Returns a permit that holds nothing.
    pub(crate) fn new(limiter: &RedisLimiter, key: &[u8], decision: Decision) -> Self {
        Self {
            limiter: limiter.clone(),
            key: key.to_vec(),
            decision,
            permit: None,
            local: None,
            is_unknown_to_redis: false,
            refundable: None,
        }
    }

    pub(crate) fn with_permit(mut self, permit: Option<PermitId>) -> Self {
        self.permit = permit;
        self
    }

    pub(crate) fn with_local(mut self, local: Option<Permit>) -> Self {
        self.local = local;
        self
    }

    /// Returns a permit that was acquired without Redis.
    pub(crate) fn without_redis(limiter: &RedisLimiter, key: &[u8], local: Option<Permit>) -> Self {
        let policy = || limiter.inner.fallback.policy_decision();
        let decision = local.as_ref().map_or_else(policy, Permit::decision);
        let mut permit = Self::new(limiter, key, decision);
        (permit.is_unknown_to_redis, permit.local) = (local.is_some(), local);
        permit
    }

    /// Makes dropping the permit refund its cost.
    pub(crate) fn with_refund(mut self, cost: u64, source: DecisionSource) -> Self {
        self.refundable = Some((cost, source));
        self
    }

    /// Keeps the cost of a rate limit charged when the permit is dropped.
    pub(crate) fn keep_charge(mut self) -> Self {
        self.refundable = None;
        self
    }

    /// Returns the decision that admitted the request.
    pub fn decision(&self) -> Decision {
        self.decision
    }

    /// Releases the permit, and waits until Redis confirms it. Returns `false` if the permit was not held any more because its
    /// lease had ended.
    ///
    /// # Errors
    /// Redis does not answer. The release is sent again in the background until it does, or until the lease ends.
    ///
    /// ```no_run
    /// # async fn example(permit: tidegate_redis::RedisPermit) -> Result<(), tidegate_redis::RedisStoreError> {
    /// if !permit.release().await? {
    ///     println!("the work took longer than its lease");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn release(mut self) -> Result<bool, RedisStoreError> {
        self.local = None;
        let Some(permit) = self.permit else { return Ok(true) };
        let released = self.limiter.inner.releases.release(&self.key, permit).await;
        // Only now: a cancelled release leaves the permit to `drop`.
        self.permit = None;
        released
    }
}

impl Drop for RedisPermit {
    fn drop(&mut self) {
        let (inner, key) = (self.limiter.inner.clone(), std::mem::take(&mut self.key));
        if self.is_unknown_to_redis {
            inner.fallback.release(&key);
        }
        // If the runtime has ended, the permit is left to expire.
        let runtime = inner.runtime().clone();
        if let Some(permit) = self.permit.take() {
            runtime.spawn(async move { inner.releases.release(&key, permit).await });
        } else if let Some((cost, source)) = self.refundable.take() {
            runtime.spawn(async move { inner.undo(&key, cost, source).await });
        }
    }
}

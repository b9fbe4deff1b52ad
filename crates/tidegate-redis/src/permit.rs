//! A place under a concurrency limit that many share.
//!
//! Always   It is given back when it is dropped, in the background. If Redis does not hear of it, the lease runs
//!          out; a rule without a lease is told so by `docs/guide/redis.md`.

use crate::limiter::RedisLimiter;
use tidegate::{Decision, Permit};
use tidegate_core::Timestamp;

/// A place among those in flight; given back when it is dropped.
///
/// ```no_run
/// # async fn example(limiter: tidegate_redis::RedisLimiter) -> Result<(), tidegate::Denied> {
/// let permit = limiter.try_acquire("pool", 1).await?;
/// // … the work …
/// permit.release().await;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "the place is given back when the permit is dropped"]
pub struct RedisPermit {
    limiter: RedisLimiter,
    key: Vec<u8>,
    /// The ticket, and since when.
    place: Option<(u64, Timestamp)>,
    /// A place of this node's share.
    local: Option<Permit>,
    /// Redis did not answer, and does not know of it.
    is_unknown: bool,
    decision: Decision,
}

impl RedisPermit {
    pub(crate) fn new(
        limiter: RedisLimiter,
        key: &[u8],
        place: Option<(u64, Timestamp)>,
        decision: Decision,
    ) -> Self {
        Self { limiter, key: key.to_vec(), place, local: None, is_unknown: false, decision }
    }

    /// And a place of this node's share.
    pub(crate) fn with(mut self, local: Option<Permit>) -> Self {
        self.local = local;
        self
    }

    pub(crate) fn held(limiter: RedisLimiter, key: &[u8], local: Option<Permit>) -> Self {
        let decision = local.as_ref().map_or(Decision::UNLIMITED, Permit::decision);
        let is_unknown = local.is_some();
        Self { limiter, key: key.to_vec(), place: None, local, is_unknown, decision }
    }

    /// What the limit said.
    pub fn decision(&self) -> Decision {
        self.decision
    }

    /// Gives it back, and waits until Redis has heard of it. `false` if nobody held it any more: its lease ran out.
    pub async fn release(mut self) -> bool {
        self.local = None;
        let Some(place) = self.place.take() else { return true };
        self.limiter.inner.exact.release(&self.key, place).await.unwrap_or(false)
    }
}

impl Drop for RedisPermit {
    fn drop(&mut self) {
        if self.is_unknown {
            self.limiter.inner.fallback.give_back();
        }
        let Some(place) = self.place.take() else { return };
        let (limiter, key) = (self.limiter.clone(), std::mem::take(&mut self.key));
        // If the runtime has ended nobody can tell Redis; the lease does.
        let runtime = limiter.inner.exact.store().runtime.clone();
        runtime.spawn(async move { limiter.inner.exact.release(&key, place).await });
    }
}

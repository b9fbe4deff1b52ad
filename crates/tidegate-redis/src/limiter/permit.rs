//! A place under a concurrency limit that many share.
//!
//! Always   It is given back when it is dropped, in the background, and so it is if who gives it back does not wait for
//!          the end of it. If Redis does not answer it is told again (`returns.rs`), until the lease has run out; a rule
//!          without a lease is told so by `docs/guide/redis.md`.

use crate::connection::StoreError;
use crate::deferred_release::Place;
use crate::limiter::RedisLimiter;
use tidegate::{Decision, Permit};

/// A place among those in flight; given back when it is dropped.
///
/// ```no_run
/// # async fn example(limiter: tidegate_redis::RedisLimiter) -> Result<(), Box<dyn std::error::Error>> {
/// let permit = limiter.try_acquire("pool", 1).await?;
/// // … the work …
/// permit.release().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "the place is given back when the permit is dropped"]
pub struct RedisPermit {
    limiter: RedisLimiter,
    key: Vec<u8>,
    place: Option<Place>,
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
        place: Option<Place>,
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
        let unknown = || limiter.inner.fallback.fixed();
        let decision = local.as_ref().map_or_else(unknown, Permit::decision);
        let is_unknown = local.is_some();
        Self { limiter, key: key.to_vec(), place: None, local, is_unknown, decision }
    }

    /// What the limit said.
    ///
    /// ```no_run
    /// # fn example(permit: tidegate_redis::RedisPermit) {
    /// println!("{} places are left", permit.decision().remaining);
    /// # }
    /// ```
    pub fn decision(&self) -> Decision {
        self.decision
    }

    /// Gives it back, and waits until Redis has heard of it. `false` if nobody held it any more: its lease ran out. An
    /// error, if Redis has not answered: then it is told again in the background, until it has or the lease is over.
    ///
    /// ```no_run
    /// # async fn example(permit: tidegate_redis::RedisPermit) -> Result<(), tidegate_redis::StoreError> {
    /// if !permit.release().await? {
    ///     println!("the work took longer than its lease");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn release(mut self) -> Result<bool, StoreError> {
        self.local = None;
        let Some(place) = self.place else { return Ok(true) };
        let told = self.limiter.inner.give_back(&self.key, place).await;
        // Not before it was answered: who does not wait for that drops it with its place.
        self.place = None;
        told
    }
}

impl Drop for RedisPermit {
    fn drop(&mut self) {
        if self.is_unknown {
            self.limiter.inner.fallback.give_back(&self.key);
        }
        let Some(place) = self.place.take() else { return };
        let (limiter, key) = (self.limiter.clone(), std::mem::take(&mut self.key));
        // If the runtime has ended nobody can tell Redis; the lease does.
        let runtime = limiter.inner.exact.store().runtime.clone();
        runtime.spawn(async move { limiter.inner.give_back(&key, place).await });
    }
}

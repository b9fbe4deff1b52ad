//! One request with its cost and its maximum wait.
//!
//! Invariant  A request that is denied, delayed for too long or cancelled while it waits has charged nothing in the end. A refund
//!            needs Redis: if Redis does not answer, the charge drains.

use super::{RedisLimiter, RedisPermit};
use crate::connection::RedisStoreError;
use crate::random;
use crate::script::codec::Operation;
use std::time::Duration;
use tidegate::{Decision, Denied, Retry, Span, Verdict};
use tokio::time::{Instant, sleep};

/// The pause between two attempts to acquire a permit: it doubles from the first to the second.
const POLL_INTERVAL_MIN: Duration = Duration::from_millis(10);
const POLL_INTERVAL_MAX: Duration = Duration::from_millis(100);

/// A request to one limit, created by [`RedisLimiter::request`].
///
/// ```no_run
/// # async fn example(limiter: tidegate_redis::RedisLimiter) -> Result<(), tidegate::Denied> {
/// use std::time::Duration;
///
/// let request = limiter.request("alice").cost(3).within(Duration::from_secs(2));
/// let permit = request.acquire().await?; // waits at most two seconds
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
#[must_use = "a request does nothing until `check`, `acquire` or another method is called"]
pub struct RedisRequest<'a> {
    pub(crate) limiter: &'a RedisLimiter,
    pub(crate) key: &'a [u8],
    pub(crate) cost: u64,
    pub(crate) max_wait: Span,
}

impl<'a> RedisRequest<'a> {
    pub(crate) fn new(limiter: &'a RedisLimiter, key: &'a [u8]) -> Self {
        Self { limiter, key, cost: 1, max_wait: Span::MAX }
    }

    /// Sets the cost. The default is 1.
    pub fn cost(mut self, cost: u64) -> Self {
        self.cost = cost;
        self
    }

    /// Sets how long the request may wait. A request that would have to wait longer is denied.
    pub fn within(mut self, max_wait: impl Into<Span>) -> Self {
        self.max_wait = max_wait.into();
        self
    }

    /// Decides the request, and charges it unless it is denied.
    pub async fn check(self) -> Decision {
        let sourced = self.limiter.decide(self.key, self.cost).await;
        let Some(denied) = self.too_long(&sourced.decision) else { return sourced.decision };
        self.limiter.inner.undo(self.key, self.cost, sourced.source).await;
        denied.decision
    }

    /// Returns what [`check`](Self::check) would decide, without charging.
    ///
    /// # Errors
    /// Redis does not answer.
    pub async fn peek(self) -> Result<Decision, RedisStoreError> {
        let remote = &self.limiter.inner.remote;
        if let Some(decision) = remote.zero_rule_decision(self.cost) {
            return Ok(decision);
        }
        let decision = remote.run(self.key, Operation::Peek, self.cost, None).await?.decision;
        Ok(self.too_long(&decision).map_or(decision, |denied| denied.decision))
    }

    /// Charges a cost that was spent already: all of it if the limit admits it, else what is remaining.
    ///
    /// A limiter in memory charges all of it and lets the key go into debt; a key in Redis has no debt. A concurrency limit is
    /// not charged.
    pub async fn charge(self) {
        let Self { limiter, key, cost, .. } = self;
        if cost == 0 || limiter.rule().is_concurrency() {
            return;
        }
        let decision = limiter.check_n(key, cost).await;
        if decision.is_deny() && decision.remaining > 0 {
            let _ = limiter.check_n(key, decision.remaining.min(cost)).await;
        }
    }

    /// Acquires a permit if the limit admits the request now: a request in flight under a concurrency limit, which is released when
    /// the permit is dropped. Under other limits the request is charged, and the permit holds nothing.
    ///
    /// # Errors
    /// The limit denies the request, or would delay it.
    pub async fn try_acquire(self) -> Result<RedisPermit, Denied> {
        if self.limiter.rule().is_concurrency() {
            return self.limiter.try_permit(self.key, self.cost).await;
        }
        let decision = self.within(Span::ZERO).check().await;
        decision.into_result().map(|_| RedisPermit::new(self.limiter, self.key, decision))
    }

    /// Waits until the limit admits the request, at most the time set by [`within`](Self::within) and, for a permit, by the
    /// rule's own `wait`.
    ///
    /// - Under a rule that delays requests (`queue`, `smooth`, `warmup`), the request is charged and waits for its turn, in the
    ///   order of Redis.
    /// - Under other rates, a denied request waits for its retry time and is decided again. Among waiting requests the first to
    ///   ask Redis wins: there is no queue, so a request can be overtaken.
    /// - Under a concurrency limit, it asks Redis every 10 to 100 ms. Here, too, a request can be overtaken.
    /// - While Redis does not answer, [`OnError`](crate::OnError) decides each attempt.
    ///
    /// Dropping the future refunds what was charged, and releases what was acquired, in the background.
    ///
    /// # Errors
    /// The limit never admits the request, or not in time. A rate that cannot admit it in time denies it at once.
    pub async fn acquire(self) -> Result<RedisPermit, Denied> {
        let rule = self.limiter.rule();
        let rule_wait = rule.limit().permit_wait().unwrap_or(Span::MAX);
        let (began, max_wait) = (Instant::now(), self.max_wait.min(rule_wait).as_duration());
        let mut poll_interval = POLL_INTERVAL_MIN;
        loop {
            let time_left = max_wait.saturating_sub(began.elapsed());
            let denied = match self.within(Span::from(time_left)).attempt().await {
                Ok(permit) => return Ok(permit),
                Err(denied) => denied,
            };
            let time_left = max_wait.saturating_sub(began.elapsed());
            let pause = match denied.decision.verdict {
                Verdict::Deny(Retry::Never) => return Err(denied),
                // A permit may be released long before the last lease ends.
                Verdict::Deny(Retry::OnRelease) => polled(&mut poll_interval).min(time_left),
                _ if self.limiter.rule().is_concurrency() => {
                    polled(&mut poll_interval).min(time_left)
                }
                Verdict::Deny(Retry::After(wait)) => wait.as_duration(),
                Verdict::Allow | Verdict::Wait(_) => Duration::ZERO,
            };
            if time_left.is_zero() || pause > time_left {
                return Err(denied);
            }
            sleep(pause).await;
        }
    }

    /// Asks once, and waits for the turn that the rule assigns.
    async fn attempt(self) -> Result<RedisPermit, Denied> {
        let (limiter, key, cost) = (self.limiter.clone(), self.key.to_vec(), self.cost);
        // In a task of its own: if the caller stops waiting, the permit is dropped with the task's output, and given back.
        let task = self.limiter.inner.runtime().spawn(async move {
            if limiter.rule().is_concurrency() {
                return limiter.try_permit(&key, cost).await;
            }
            let sourced = limiter.decide(&key, cost).await;
            sourced.decision.into_result()?;
            let permit = RedisPermit::new(&limiter, &key, sourced.decision);
            Ok(permit.with_refund(cost, sourced.source))
        });
        let permit = task.await.expect("the runtime of the store is running")?;
        if let Some(denied) = self.too_long(&permit.decision()) {
            return Err(denied);
        }
        if let Verdict::Wait(wait) = permit.decision().verdict {
            sleep(wait.as_duration()).await;
        }
        Ok(permit.keep_charge())
    }

    /// Returns the denial of a request that would have to wait longer than it may.
    pub(crate) fn too_long(&self, decision: &Decision) -> Option<Denied> {
        match decision.verdict {
            Verdict::Wait(wait) if wait > self.max_wait => {
                let retry_after = wait.saturating_sub(self.max_wait);
                Some(decision.deny(Retry::After(retry_after)))
            }
            _ => None,
        }
    }
}

/// Returns a random pause up to the interval, and doubles the interval.
fn polled(interval: &mut Duration) -> Duration {
    let pause = random::between(*interval / 2, *interval);
    *interval = (*interval * 2).min(POLL_INTERVAL_MAX);
    pause
}

impl RedisLimiter {
    /// Acquires a permit of a concurrency limit, if one is free.
    async fn try_permit(&self, key: &[u8], cost: u64) -> Result<RedisPermit, Denied> {
        let inner = &*self.inner;
        if let Some(decision) = inner.zero_rule_decision(cost) {
            return decision.into_result().map(|_| RedisPermit::new(self, key, decision));
        }
        let local = inner.fallback.acquire_beside_redis(key, cost);
        // During the outage itself the request fails, and is counted as a failure.
        if let Err(denied) = local.as_ref()
            && inner.remote.is_up(key)
        {
            inner.counters.decided(&denied.decision);
            return Err(*denied);
        }
        let charged = match inner.remote.charge(key, cost, None).await {
            Ok(charged) => charged,
            Err(error) => {
                drop(local);
                return self.permit_without_redis(key, cost, &error);
            }
        };
        let decision = inner.confirm(key, cost, charged.decision);
        decision.into_result()?;
        let ticket = charged.answer.ticket.filter(|_| cost > 0);
        let permit = ticket.map(|ticket| (ticket, charged.answer.now()));
        let permit = RedisPermit::new(self, key, decision).with_permit(permit);
        // If the outage ended between the two, the share's denial counts, and the permit of Redis is released.
        Ok(permit.with_local(local?))
    }

    fn permit_without_redis(
        &self,
        key: &[u8],
        cost: u64,
        error: &RedisStoreError,
    ) -> Result<RedisPermit, Denied> {
        let inner = &*self.inner;
        inner.count_failure(key, error);
        let local = inner.fallback.acquire(key, cost);
        let permit = local.map(|local| RedisPermit::without_redis(self, key, local));
        let decision = permit.as_ref().map_or_else(|denied| denied.decision, RedisPermit::decision);
        inner.counters.decided(&decision);
        permit
    }
}

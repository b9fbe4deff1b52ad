//! [`RedisLimiter`] as a [`LimitStore`]: limits whose state is in Redis.

use super::{RedisLimiter, RedisPermit};
use crate::joint::{JointAsk, decide_all};
use std::any::Any;
use std::sync::Arc;
use tidegate::rule::Window;
use tidegate::store::PermitRecord;
use tidegate::store::{
    CheckRequest, ClientId, IdempotencyKey, LimitStore, Reply, StoreError, StorePermit,
};
use tidegate::{Decision, Denied, Joint, Retry, Rule, Span, Verdict};

impl LimitStore for RedisLimiter {
    fn rule(&self) -> Rule {
        Self::rule(self)
    }

    fn is_shared(&self) -> bool {
        true
    }

    fn check<'a>(&'a self, key: &'a [u8], cost: u64) -> Reply<'a, Decision> {
        Reply::later(self.check_n(key, cost))
    }

    fn check_all<'a>(
        &'a self,
        requests: &'a [CheckRequest<'a>],
    ) -> Reply<'a, Result<Joint, StoreError>> {
        let asks: Option<Vec<JointAsk<'a>>> = requests.iter().map(joint_ask).collect();
        let Some(asks) = asks else { return Reply::now(Err(StoreError::MixedStores)) };
        Reply::later(async move {
            let joint = match &asks[..] {
                // The lease of a single request decides without a round trip.
                [ask] => Joint::of(vec![ask.limiter.check_n(ask.key, ask.cost).await]),
                _ => decide_all(&asks).await,
            };
            Ok(deny_long_waits(requests, &asks, joint).await)
        })
    }

    fn check_once<'a>(
        &'a self,
        key: &'a [u8],
        cost: u64,
        id: IdempotencyKey<'a>,
        _client: ClientId,
    ) -> Reply<'a, Result<Decision, StoreError>> {
        Reply::later(async move { Ok(self.check_once(key, cost, id.as_str()).await) })
    }

    fn peek<'a>(&'a self, key: &'a [u8], cost: u64) -> Reply<'a, Result<Decision, StoreError>> {
        Reply::later(async move { self.peek(key, cost).await.map_err(StoreError::unavailable) })
    }

    fn peek_without_store(&self, key: &[u8], cost: u64) -> Decision {
        self.peek_without_redis(key, cost)
    }

    fn refund<'a>(&'a self, key: &'a [u8], cost: u64) -> Reply<'a, Result<(), StoreError>> {
        Reply::later(async move { self.refund(key, cost).await.map_err(StoreError::unavailable) })
    }

    /// Charges as much of the cost as there is room for: a key in Redis has no debts.
    fn charge<'a>(&'a self, key: &'a [u8], cost: u64) -> Reply<'a, Result<(), StoreError>> {
        if cost == 0 || self.rule().is_concurrency() {
            return Reply::now(Ok(()));
        }
        Reply::later(async move {
            let decision = self.check_n(key, cost).await;
            if decision.is_deny() && decision.remaining > 0 {
                let _ = self.check_n(key, decision.remaining.min(cost)).await;
            }
            Ok(())
        })
    }

    fn refund_in_background(&self, key: &[u8], cost: u64) {
        let (limiter, key) = (self.clone(), key.to_vec());
        let runtime = &self.inner.exact.store().runtime;
        runtime.spawn(async move { limiter.refund(&key, cost).await });
    }

    fn charge_in_background(&self, key: &[u8], cost: u64) {
        let (limiter, key) = (self.clone(), key.to_vec());
        let runtime = &self.inner.exact.store().runtime;
        runtime.spawn(async move { LimitStore::charge(&limiter, &key, cost).await });
    }

    fn reset<'a>(&'a self, key: &'a [u8]) -> Reply<'a, Result<(), StoreError>> {
        Reply::later(async move { self.reset(key).await.map_err(StoreError::unavailable) })
    }

    fn acquire<'a>(
        &'a self,
        key: &'a [u8],
        cost: u64,
        max_wait: Span,
    ) -> Reply<'a, Result<Box<dyn StorePermit>, Denied>> {
        Reply::later(async move {
            let permit = self.acquire_within(key, cost, max_wait).await?;
            Ok(Box::new(permit) as Box<dyn StorePermit>)
        })
    }

    fn window<'a>(&'a self, key: &'a [u8]) -> Reply<'a, Result<Option<Window>, StoreError>> {
        Reply::later(async move { self.window(key).await.map_err(StoreError::unavailable) })
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// Returns the request for Redis, if its limit is in Redis.
fn joint_ask<'a>(request: &CheckRequest<'a>) -> Option<JointAsk<'a>> {
    let limiter = request.limit.as_any().downcast_ref::<RedisLimiter>()?;
    Some(JointAsk { limiter, key: request.key, cost: request.cost })
}

/// Denies the requests if one of them would have to wait for longer than it may, and refunds them: Redis decides without
/// knowing how long a request may wait.
async fn deny_long_waits(
    requests: &[CheckRequest<'_>],
    asks: &[JointAsk<'_>],
    joint: Joint,
) -> Joint {
    let denied = |(request, decision): (&CheckRequest<'_>, &Decision)| match decision.verdict {
        Verdict::Wait(wait) if wait > request.max_wait => {
            Some(decision.deny(Retry::After(wait.saturating_sub(request.max_wait))).decision)
        }
        _ => None,
    };
    let denied: Vec<Option<Decision>> = requests.iter().zip(&joint.each).map(denied).collect();
    if joint.decision.is_deny() || denied.iter().all(Option::is_none) {
        return joint;
    }
    for ask in asks {
        // A charge that cannot be refunded drains.
        let _ = ask.limiter.refund(ask.key, ask.cost).await;
    }
    let each = joint.each.into_iter().zip(denied);
    Joint::of(each.map(|(decision, denied)| denied.unwrap_or(decision)).collect())
}

impl StorePermit for RedisPermit {
    fn decision(&self) -> Decision {
        Self::decision(self)
    }

    fn record(&self) -> Option<PermitRecord> {
        None
    }

    fn release(self: Box<Self>) -> Reply<'static, Result<bool, StoreError>> {
        let release = async move { Self::release(*self).await };
        let pending = |error| StoreError::ReleasePending(Arc::new(error));
        Reply::later(async move { release.await.map_err(pending) })
    }
}

//! [`RedisLimiter`] as a [`LimitStore`]: limits whose state is in Redis.

use crate::joint::check_all;
use crate::limiter::{RedisLimiter, RedisPermit, RedisRequest};
use std::any::Any;
use std::sync::Arc;
use tidegate::rule::Window;
use tidegate::store::PermitRecord;
use tidegate::store::{
    CheckRequest, ClientId, IdempotencyKey, LimitStore, Reply, StoreError, StorePermit,
};
use tidegate::{Decision, Denied, Joint, Rule, Span};

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
        let requests: Option<Vec<RedisRequest<'a>>> = requests.iter().map(redis_request).collect();
        let Some(requests) = requests else { return Reply::now(Err(StoreError::MixedStores)) };
        Reply::later(async move {
            Ok(match requests[..] {
                // The lease of a single request decides without a round trip.
                [request] => Joint::of(vec![request.check().await]),
                _ => check_all(requests).await,
            })
        })
    }

    fn check_once<'a>(
        &'a self,
        key: &'a [u8],
        cost: u64,
        id: IdempotencyKey<'a>,
        _client: ClientId,
    ) -> Reply<'a, Result<Decision, StoreError>> {
        Reply::later(async move { Ok(self.check_once(key, cost, id).await) })
    }

    fn peek<'a>(&'a self, key: &'a [u8], cost: u64) -> Reply<'a, Result<Decision, StoreError>> {
        Reply::later(async move {
            self.request(key).cost(cost).peek().await.map_err(StoreError::unavailable)
        })
    }

    fn peek_without_store(&self, key: &[u8], cost: u64) -> Decision {
        let decision = self.inner.remote.zero_rule_decision(cost);
        decision.unwrap_or_else(|| self.inner.fallback.peek(key, cost))
    }

    fn refund<'a>(&'a self, key: &'a [u8], cost: u64) -> Reply<'a, Result<(), StoreError>> {
        Reply::later(async move { self.refund(key, cost).await.map_err(StoreError::unavailable) })
    }

    fn charge<'a>(&'a self, key: &'a [u8], cost: u64) -> Reply<'a, Result<(), StoreError>> {
        Reply::later(async move {
            self.request(key).cost(cost).charge().await;
            Ok(())
        })
    }

    fn refund_in_background(&self, key: &[u8], cost: u64) {
        let (limiter, key) = (self.clone(), key.to_vec());
        self.inner.runtime().spawn(async move { limiter.refund(&key, cost).await });
    }

    fn charge_in_background(&self, key: &[u8], cost: u64) {
        let (limiter, key) = (self.clone(), key.to_vec());
        self.inner.runtime().spawn(async move { LimitStore::charge(&limiter, &key, cost).await });
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
            let request = self.request(key).cost(cost).within(max_wait);
            // Without waiting, a request needs no task of its own.
            let permit = match max_wait {
                Span::ZERO => request.try_acquire().await?,
                _ => request.acquire().await?,
            };
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

/// Returns the request to Redis, if its limit is in Redis.
fn redis_request<'a>(request: &CheckRequest<'a>) -> Option<RedisRequest<'a>> {
    let limiter = request.limit.as_any().downcast_ref::<RedisLimiter>()?;
    Some(limiter.request(request.key).cost(request.cost).within(request.max_wait))
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

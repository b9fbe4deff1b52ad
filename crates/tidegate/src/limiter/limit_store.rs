//! [`Limiter`] as a [`LimitStore`]: limits whose state is in this process's memory.

use super::Limiter;
use crate::clock::Clock;
use crate::joint::check_all;
use crate::request::Request;
use crate::rule::Rule;
use crate::store::{
    CheckRequest, ClientId, IdempotencyKey, Joint, LimitStore, PermitRecord, Reply, StoreError,
    StorePermit,
};
use crate::wait::Permit;
use std::any::Any;
use tidegate_core::{Decision, Denied, Span, Window};

impl<C: Clock> LimitStore for Limiter<C> {
    fn rule(&self) -> Rule {
        Self::rule(self)
    }

    fn is_shared(&self) -> bool {
        false
    }

    #[inline]
    fn check<'a>(&'a self, key: &'a [u8], cost: u64) -> Reply<'a, Decision> {
        Reply::now(self.check_n(key, cost))
    }

    fn check_all<'a>(
        &'a self,
        requests: &'a [CheckRequest<'a>],
    ) -> Reply<'a, Result<Joint, StoreError>> {
        let requests: Option<Vec<_>> = requests.iter().map(Self::request_of).collect();
        Reply::now(requests.map(check_all).ok_or(StoreError::MixedStores))
    }

    fn check_once<'a>(
        &'a self,
        key: &'a [u8],
        cost: u64,
        id: IdempotencyKey<'a>,
        client: ClientId,
    ) -> Reply<'a, Result<Decision, StoreError>> {
        Reply::now(self.check_once_for(client, key, cost, id))
    }

    fn peek<'a>(&'a self, key: &'a [u8], cost: u64) -> Reply<'a, Result<Decision, StoreError>> {
        Reply::now(Ok(self.peek_without_store(key, cost)))
    }

    fn peek_without_store(&self, key: &[u8], cost: u64) -> Decision {
        self.request(key).cost(cost).peek()
    }

    fn refund<'a>(&'a self, key: &'a [u8], cost: u64) -> Reply<'a, Result<(), StoreError>> {
        Self::refund(self, key, cost);
        Reply::now(Ok(()))
    }

    fn charge<'a>(&'a self, key: &'a [u8], cost: u64) -> Reply<'a, Result<(), StoreError>> {
        self.request(key).cost(cost).charge();
        Reply::now(Ok(()))
    }

    fn refund_in_background(&self, key: &[u8], cost: u64) {
        Self::refund(self, key, cost);
    }

    fn charge_in_background(&self, key: &[u8], cost: u64) {
        self.request(key).cost(cost).charge();
    }

    fn reset<'a>(&'a self, key: &'a [u8]) -> Reply<'a, Result<(), StoreError>> {
        Self::reset(self, key);
        Reply::now(Ok(()))
    }

    fn acquire<'a>(
        &'a self,
        key: &'a [u8],
        cost: u64,
        max_wait: Span,
    ) -> Reply<'a, Result<Box<dyn StorePermit>, Denied>> {
        let request = self.request(key).cost(cost);
        if max_wait.is_zero() {
            return Reply::now(request.try_acquire().map(boxed));
        }
        Reply::later(async move { request.within(max_wait).acquire().await.map(boxed) })
    }

    fn window<'a>(&'a self, key: &'a [u8]) -> Reply<'a, Result<Option<Window>, StoreError>> {
        Reply::now(Ok(Self::window(self, key)))
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl<C: Clock> Limiter<C> {
    /// Converts a request, if its limit is in memory and has the same type of clock.
    fn request_of(request: &CheckRequest<'_>) -> Option<Request<C>> {
        let limiter = request.limit.as_any().downcast_ref::<Self>()?;
        Some(limiter.request(request.key).cost(request.cost).within(request.max_wait))
    }
}

fn boxed<C: Clock>(permit: Permit<C>) -> Box<dyn StorePermit> {
    Box::new(permit)
}

impl<C: Clock> StorePermit for Permit<C> {
    fn decision(&self) -> Decision {
        Self::decision(self)
    }

    fn record(&self) -> Option<PermitRecord> {
        Self::record(self)
    }

    fn release(self: Box<Self>) -> Reply<'static, Result<bool, StoreError>> {
        drop(self);
        Reply::now(Ok(true))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ManualClock;
    use crate::store::IdempotencyKey;

    fn limiter(rule: &str) -> Limiter<ManualClock> {
        Limiter::with_clock(rule.parse().unwrap(), ManualClock::new())
    }

    fn now<T>(reply: Reply<'_, T>) -> T {
        reply.ready().ok().expect("memory replies at once")
    }

    #[test]
    fn a_key_is_the_same_key_through_the_contract_and_by_its_bytes() {
        let limiter = limiter("2/h");
        let limit: &dyn LimitStore = &limiter;
        assert_eq!(now(limit.check(b"alice", 1)).remaining, 1);
        assert_eq!(limiter.check(&b"alice"[..]).remaining, 0);
        assert!(now(limit.peek(b"alice", 1)).unwrap().is_deny());
        now(limit.refund(b"alice", 1)).unwrap();
        assert!(now(limit.check(b"alice", 1)).is_allow());
        now(limit.reset(b"alice")).unwrap();
        now(limit.charge(b"alice", 5)).unwrap();
        assert!(now(limit.check(b"alice", 1)).is_deny(), "the debt has to be repaid first");
    }

    #[test]
    fn several_requests_are_charged_together_or_not_at_all() {
        let (user, site) = (limiter("1/h"), limiter("9/h"));
        let requests = [&user, &site].map(|limit| {
            let limit: &dyn LimitStore = limit;
            CheckRequest { limit, key: b"alice", cost: 1, max_wait: Span::MAX }
        });
        let check = || now(LimitStore::check_all(&user, &requests)).unwrap().decision;
        assert!(check().is_allow());
        assert!(check().is_deny());
        assert_eq!(site.check_n(&b"alice"[..], 0).remaining, 8);
    }

    #[test]
    fn limits_of_different_stores_are_not_decided_together() {
        let (one, other) = (limiter("1/h"), Limiter::new("1/h".parse().unwrap()));
        let limits: [&dyn LimitStore; 2] = [&one, &other];
        let requests =
            limits.map(|limit| CheckRequest { limit, key: b"k", cost: 1, max_wait: Span::MAX });
        let reply = now(LimitStore::check_all(&one, &requests));
        assert!(matches!(reply, Err(StoreError::MixedStores)));
        assert!(one.check(&b"k"[..]).is_allow(), "nothing was charged");
    }

    #[test]
    fn a_repeated_request_is_charged_once() {
        let limiter = limiter("9/h");
        let id = IdempotencyKey::new("order 7").unwrap();
        for _ in 0..3 {
            let decision = limiter.check_once("alice", 1, id).unwrap();
            assert_eq!(decision.remaining, 8);
        }
        assert_eq!(limiter.check_n("alice", 0).remaining, 8);
        assert_eq!(limiter.check_once("bob", 1, id).unwrap().remaining, 8, "another key");
    }

    #[test]
    fn a_permit_comes_back_when_it_is_released_or_dropped() {
        let limiter = limiter("concurrency 1");
        let acquire = || now(LimitStore::acquire(&limiter, b"pool", 1, Span::ZERO));
        let permit = acquire().unwrap();
        assert!(acquire().is_err());
        assert!(now(permit.release()).unwrap());
        drop(acquire().unwrap());
        assert!(acquire().is_ok());
    }
}

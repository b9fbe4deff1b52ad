//! A service whose requests in flight are limited.

use super::future::{Admitted, ConcurrencyFuture, PendingCall, Stage};
use crate::fallback::{Fallback, NoFallback};
use crate::guarded_body::GuardedBody;
use crate::head::Head;
use crate::jitter::Jitter;
use crate::key::{KeyBytes, KeyLookup};
use crate::limit::{Limit, LimitError, OnMissing};
use crate::response_policy::ResponsePolicy;
use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body::Body;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use tidegate::{
    Acquire, Clock, Decision, Denied, Limiter, Permit, Retry, Span, SystemClock, Verdict,
};
use tidegate_http::{LimitStatus, RETRY_ON_RELEASE};
use tower_service::Service;

/// What all clones of a layer's services share.
#[derive(Clone)]
pub(super) struct ConcurrencyLimit<C: Clock> {
    pub(super) limit: Limit<C>,
    limiter: Limiter<C>,
    pub(super) policy: ResponsePolicy,
    pub(super) max_wait: Span,
    pub(super) jitter: Jitter,
}

/// The result of asking for a permit.
pub(super) enum Admission<C: Clock> {
    Admitted(Admitted<C>),
    Denied(Denied),
    Pending(Acquire<C>),
}

impl<C: Clock> ConcurrencyLimit<C> {
    pub(super) fn new(limit: Limit<C>) -> Result<Self, LimitError> {
        let limit = limit.without_after_response("ConcurrencyLayer")?;
        if !limit.rule.is_concurrency() {
            let (name, rule) = (limit.name.to_string(), limit.rule.to_string());
            return Err(LimitError::NotInFlight { name, rule });
        }
        let limiter = limit.limiter_in_memory()?;
        let max_wait = limit.rule.limit().permit_wait().unwrap_or(Span::ZERO);
        let (policy, jitter) = (ResponsePolicy::default(), Jitter::new(Span::ZERO));
        Ok(Self { limit, limiter, policy, max_wait, jitter })
    }

    /// Asks for a permit.
    pub(super) fn acquire(&self, key: &[u8], cost: u64) -> Admission<C> {
        let max_wait = if self.limit.is_shadow() { Span::ZERO } else { self.max_wait };
        let mut acquire = self.limiter.request(key).cost(cost).within(max_wait).acquire();
        // A request that has to wait is polled again, with a waker.
        match Pin::new(&mut acquire).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(acquired) => self.admission(acquired, key, cost),
            Poll::Pending => Admission::Pending(acquire),
        }
    }

    /// Reports the decision to observers.
    pub(super) fn admission(
        &self,
        acquired: Result<Permit<C>, Denied>,
        key: &[u8],
        cost: u64,
    ) -> Admission<C> {
        let decision = match &acquired {
            Ok(permit) => permit.decision(),
            Err(denied) => denied.decision,
        };
        self.policy.observe(&self.limit, decision, Some(key), cost);
        match acquired {
            Ok(permit) => {
                Admission::Admitted(Admitted { permit: Some(permit), decision: Some(decision) })
            }
            Err(_) if self.limit.is_shadow() => {
                let decision = self.limit.mode.apply(decision).decision;
                Admission::Admitted(Admitted { permit: None, decision: Some(decision) })
            }
            Err(mut denied) => {
                denied.decision = self.jitter.spread(decision);
                Admission::Denied(denied)
            }
        }
    }

    pub(super) fn rejection(&self, head: &Head<'_>, denied: Denied) -> Response<Bytes> {
        let mut response = self.with_status(denied.decision, |status| {
            self.policy.denied(head, status, denied.decision)
        });
        self.write_denied(response.headers_mut(), denied);
        response
    }

    pub(super) fn write_fields(&self, headers: &mut HeaderMap, decision: Decision) {
        self.with_status(decision, |status| self.policy.write(headers, status, &decision));
    }

    /// Writes the header fields of a denial, with `Retry-After`.
    pub(super) fn write_denied(&self, headers: &mut HeaderMap, denied: Denied) {
        let mut all = denied.decision;
        if let Verdict::Deny(Retry::OnRelease) = all.verdict {
            // The time of a release is unknown. Jitter keeps the clients from all retrying after a second.
            all.verdict = Verdict::Deny(Retry::After(RETRY_ON_RELEASE));
            all = self.jitter.spread(all);
        }
        self.with_status(denied.decision, |status| self.policy.write(headers, status, &all));
    }

    /// Calls `work` with the status of the limit, if clients see it.
    fn with_status<R>(&self, decision: Decision, work: impl FnOnce(&[LimitStatus<'_>]) -> R) -> R {
        let rule = self.limiter.rule();
        work(self.limit.mode.status(&self.limit.name, &rule, decision).as_slice())
    }
}

/// A service whose requests in flight are limited; made by [`ConcurrencyLayer`](crate::ConcurrencyLayer).
#[derive(Clone)]
pub struct Concurrency<S, C: Clock = SystemClock, F = NoFallback> {
    inner: S,
    shared: Arc<ConcurrencyLimit<C>>,
    fallback: F,
}

impl<S, C: Clock, F> Concurrency<S, C, F> {
    pub(super) fn new(inner: S, shared: Arc<ConcurrencyLimit<C>>, fallback: F) -> Self {
        Self { inner, shared, fallback }
    }

    /// Returns the first stage of a request.
    fn stage<B>(&mut self, request: Request<B>) -> Stage<S, B, C, F>
    where
        S: Service<Request<B>> + Clone,
        F: Fallback<Request<B>, S::Response, S::Error>,
    {
        let shared = Arc::clone(&self.shared);
        let limit = &shared.limit;
        let head = Head::with_source(&request, &shared.policy.address_source);
        if !limit.counts(&head) {
            return self.admit(request, Admitted::UNCOUNTED);
        }
        let cost = limit.cost_of(&head);
        let key = match limit.key_of(&head) {
            KeyLookup::Key(key) => key,
            KeyLookup::Missing(missing) => match limit.without_key(missing) {
                Some(OnMissing::Shared) => KeyBytes::new(),
                Some(OnMissing::Allow) => return self.admit(request, Admitted::UNCOUNTED),
                _ => {
                    let response = shared.policy.without_key(&head, limit, missing);
                    return Stage::Rejected { response: Some(response) };
                }
            },
            KeyLookup::Pending => {
                let key = limit.later_key_of(&head);
                return Stage::FindingKey { key, cost, call: Some(self.pending(request)) };
            }
        };
        match shared.acquire(&key, cost) {
            Admission::Admitted(admitted) => self.admit(request, admitted),
            Admission::Denied(denied) => shared.reject(self.fallback.clone(), request, denied),
            Admission::Pending(acquire) => {
                Stage::Waiting { acquire, key, cost, call: Some(self.pending(request)) }
            }
        }
    }

    fn admit<B>(&mut self, request: Request<B>, admitted: Admitted<C>) -> Stage<S, B, C, F>
    where
        S: Service<Request<B>>,
        F: Fallback<Request<B>, S::Response, S::Error>,
    {
        Stage::Calling { future: self.inner.call(request), admitted: Some(admitted) }
    }

    /// Returns the request with the inner service that is ready. A clone replaces the service.
    fn pending<B>(&mut self, request: Request<B>) -> PendingCall<S, B, F>
    where
        S: Clone,
        F: Clone,
    {
        let clone = self.inner.clone();
        let service = std::mem::replace(&mut self.inner, clone);
        PendingCall { service, request, fallback: self.fallback.clone() }
    }
}

impl<S, B, R, C, F> Service<Request<B>> for Concurrency<S, C, F>
where
    S: Service<Request<B>, Response = Response<R>> + Clone,
    R: Body<Data = Bytes>,
    C: Clock,
    F: Fallback<Request<B>, S::Response, S::Error>,
{
    type Response = Response<GuardedBody<R, Permit<C>>>;
    type Error = S::Error;
    type Future = ConcurrencyFuture<S, B, C, F>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let stage = self.stage(request);
        ConcurrencyFuture { stage, shared: Arc::clone(&self.shared) }
    }
}

impl<S, C: Clock, F> fmt::Debug for Concurrency<S, C, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Concurrency").field("limit", &self.shared.limit).finish_non_exhaustive()
    }
}

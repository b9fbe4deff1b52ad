//! A service of which only so many requests are in flight.

use super::future::{Admitted, ConcurrencyFuture, Pending, Stage};
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
pub(super) struct InFlight<C: Clock> {
    pub(super) limit: Limit<C>,
    limiter: Limiter<C>,
    pub(super) policy: ResponsePolicy,
    pub(super) patience: Span,
    pub(super) jitter: Jitter,
}

/// How somebody came in.
pub(super) enum Entry<C: Clock> {
    In(Admitted<C>),
    Full(Denied),
    Waits(Acquire<C>),
}

impl<C: Clock> InFlight<C> {
    pub(super) fn new(limit: Limit<C>) -> Result<Self, LimitError> {
        let limit = limit.done_at_once("ConcurrencyLayer")?;
        let name = || limit.name.to_string();
        if !limit.rule.is_concurrency() {
            let rule = limit.rule.to_string();
            return Err(LimitError::NotInFlight { name: name(), rule });
        }
        let Some(limiter) = limit.store.memory().cloned() else {
            return Err(LimitError::Shared { name: name() });
        };
        // A rule that has a wait is to be waited for, as long as it says.
        let patience = limit.rule.limit().permit_wait().unwrap_or(Span::ZERO);
        let (policy, jitter) = (ResponsePolicy::default(), Jitter::new(Span::ZERO));
        Ok(Self { limit, limiter, policy, patience, jitter })
    }

    pub(super) fn enter(&self, key: &[u8], cost: u64) -> Entry<C> {
        let patience = if self.limit.is_shadow() { Span::ZERO } else { self.patience };
        let mut acquire = self.limiter.request(key).cost(cost).within(patience).acquire();
        // Whoever has to wait is polled again, with a waker that wakes.
        let mut nobody = Context::from_waker(Waker::noop());
        match Pin::new(&mut acquire).poll(&mut nobody) {
            Poll::Ready(answer) => self.entered(answer, key, cost),
            Poll::Pending => Entry::Waits(acquire),
        }
    }

    pub(super) fn entered(
        &self,
        answer: Result<Permit<C>, Denied>,
        key: &[u8],
        cost: u64,
    ) -> Entry<C> {
        let decision = match &answer {
            Ok(permit) => permit.decision(),
            Err(denied) => denied.decision,
        };
        self.policy.observe(&self.limit, decision, Some(key), cost);
        match answer {
            Ok(permit) => Entry::In(Admitted { permit: Some(permit), decision: Some(decision) }),
            Err(_) if self.limit.is_shadow() => {
                let decision = self.limit.mode.apply(decision).decision;
                Entry::In(Admitted { permit: None, decision: Some(decision) })
            }
            Err(mut denied) => {
                denied.decision = self.jitter.spread(decision);
                Entry::Full(denied)
            }
        }
    }

    pub(super) fn refusal(&self, head: &Head<'_>, denied: Denied) -> Response<Bytes> {
        let mut response =
            self.with_told(denied.decision, |told| self.policy.denied(head, told, denied.decision));
        self.write_denied(response.headers_mut(), denied);
        response
    }

    pub(super) fn write_fields(&self, headers: &mut HeaderMap, decision: Decision) {
        self.with_told(decision, |told| self.policy.write(headers, told, &decision));
    }

    /// Tells who finds no place when to come back.
    pub(super) fn write_denied(&self, headers: &mut HeaderMap, denied: Denied) {
        let mut all = denied.decision;
        if let Verdict::Deny(Retry::OnRelease) = all.verdict {
            // Nobody knows; a time that is told to all of them is one at which all come.
            all.verdict = Verdict::Deny(Retry::After(RETRY_ON_RELEASE));
            all = self.jitter.spread(all);
        }
        self.with_told(denied.decision, |told| {
            self.policy.write(headers, told, &all);
        });
    }

    fn with_told<R>(&self, decision: Decision, work: impl FnOnce(&[LimitStatus<'_>]) -> R) -> R {
        let rule = self.limiter.rule();
        work(self.limit.mode.status(&self.limit.name, &rule, decision).as_slice())
    }
}

/// A service of which only so many requests are in flight; made by
/// [`ConcurrencyLayer`](crate::ConcurrencyLayer).
///
/// ```
/// use tidegate_tower::{Concurrency, ConcurrencyLayer};
/// use tower_layer::Layer;
///
/// let limited: Concurrency<axum::Router> =
///     ConcurrencyLayer::for_all("concurrency 100")?.layer(axum::Router::new());
/// # Ok::<(), tidegate_tower::LimitError>(())
/// ```
#[derive(Clone)]
pub struct Concurrency<S, C: Clock = SystemClock, F = NoFallback> {
    inner: S,
    shared: Arc<InFlight<C>>,
    fallback: F,
}

impl<S, C: Clock, F> Concurrency<S, C, F> {
    pub(super) fn new(inner: S, shared: Arc<InFlight<C>>, fallback: F) -> Self {
        Self { inner, shared, fallback }
    }

    /// Where a request that came now stands.
    fn stage<B>(&mut self, request: Request<B>) -> Stage<S, B, C, F>
    where
        S: Service<Request<B>> + Clone,
        F: Fallback<Request<B>, S::Response, S::Error>,
    {
        let shared = Arc::clone(&self.shared);
        let limit = &shared.limit;
        let head = Head::with_source(&request, &shared.policy.address_source);
        if !limit.counts(&head) {
            return self.pass(request, Admitted::UNCOUNTED);
        }
        let cost = limit.cost_of(&head);
        let key = match limit.key_of(&head) {
            KeyLookup::Key(key) => key,
            KeyLookup::Missing(missing) => match limit.without_key(missing) {
                Some(OnMissing::Shared) => KeyBytes::new(),
                Some(OnMissing::Allow) => return self.pass(request, Admitted::UNCOUNTED),
                _ => {
                    let response = shared.policy.without_key(&head, limit, missing);
                    return Stage::Refused { response: Some(response) };
                }
            },
            KeyLookup::Pending => {
                let key = limit.later_key_of(&head);
                return Stage::Finding { key, cost, pending: Some(self.pending(request)) };
            }
        };
        match shared.enter(&key, cost) {
            Entry::In(admitted) => self.pass(request, admitted),
            Entry::Full(denied) => shared.refuse(self.fallback.clone(), request, denied),
            Entry::Waits(acquire) => {
                Stage::Waiting { acquire, key, cost, pending: Some(self.pending(request)) }
            }
        }
    }

    fn pass<B>(&mut self, request: Request<B>, admitted: Admitted<C>) -> Stage<S, B, C, F>
    where
        S: Service<Request<B>>,
        F: Fallback<Request<B>, S::Response, S::Error>,
    {
        Stage::Calling { future: self.inner.call(request), admitted: Some(admitted) }
    }

    /// The request, with the inner service that is ready; a clone takes its place.
    fn pending<B>(&mut self, request: Request<B>) -> Pending<S, B, F>
    where
        S: Clone,
        F: Clone,
    {
        let clone = self.inner.clone();
        let service = std::mem::replace(&mut self.inner, clone);
        Pending { service, request, fallback: self.fallback.clone() }
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

//! A service behind limits.
//!
//! Always   The inner service that was ready serves the request. A request that has to wait takes this service along and leaves
//!          a clone of it: readiness is never used twice, and a clone is never called before it is ready.

use super::admission::Admission;
use super::future::{PendingCall, RateLimitFuture, Stage};
use super::limit_set::LimitSet;
use crate::fallback::{Fallback, NoFallback};
use crate::head::Head;
use crate::limited_body::LimitedBody;
use http::{Request, Response};
use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};
use tidegate::{Clock, SystemClock};
use tower_service::Service;

/// A service behind limits; made by [`RateLimitLayer`](crate::RateLimitLayer).
#[derive(Clone)]
pub struct RateLimit<S, C: Clock = SystemClock, F = NoFallback> {
    inner: S,
    set: Arc<LimitSet<C>>,
    fallback: F,
}

impl<S, C: Clock, F> RateLimit<S, C, F> {
    pub(super) fn new(inner: S, set: Arc<LimitSet<C>>, fallback: F) -> Self {
        Self { inner, set, fallback }
    }
}

impl<S, B, R, C, F> Service<Request<B>> for RateLimit<S, C, F>
where
    S: Service<Request<B>, Response = Response<R>> + Clone,
    C: Clock,
    F: Fallback<Request<B>, S::Response, S::Error>,
{
    type Response = Response<LimitedBody<R>>;
    type Error = S::Error;
    type Future = RateLimitFuture<S, B, C, F>;

    #[inline]
    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    #[inline]
    fn call(&mut self, request: Request<B>) -> Self::Future {
        let head = Head::with_source(&request, &self.set.policy.address_source);
        let stage = match self.set.decide(&head) {
            Admission::Admitted(rest) => {
                Stage::Calling { future: self.inner.call(request), rest: Some(rest) }
            }
            Admission::Rejected(rejection) => {
                Stage::rejected(&self.set, self.fallback.clone(), request, &rejection)
            }
            Admission::Pending(admission) => {
                let clone = self.inner.clone();
                let service = std::mem::replace(&mut self.inner, clone);
                let (fallback, set) = (self.fallback.clone(), Arc::clone(&self.set));
                let call = Some(Box::new(PendingCall { service, request, fallback, set }));
                Stage::Deciding { admission, call }
            }
        };
        RateLimitFuture { stage }
    }
}

impl<S, C: Clock, F> fmt::Debug for RateLimit<S, C, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimit").field("limits", &self.set.limits).finish_non_exhaustive()
    }
}

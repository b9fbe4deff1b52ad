//! A service behind limits.
//!
//! Always   Who is admitted at once is handed to the inner service that was ready. Who has to wait takes that one
//!          along, and a clone stays here: readiness is never used twice, and a clone is never called unready.

use super::admission::Admission;
use super::future::{Pending, RateLimitFuture, Stage};
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
///
/// ```
/// use tidegate_tower::{RateLimit, RateLimitLayer};
/// use tower_layer::Layer;
///
/// let limited: RateLimit<axum::Router> = RateLimitLayer::for_all("100/s")?.layer(axum::Router::new());
/// # Ok::<(), tidegate_tower::LimitError>(())
/// ```
#[derive(Clone)]
pub struct RateLimit<S, C: Clock = SystemClock, F = NoFallback> {
    inner: S,
    shared: Arc<LimitSet<C>>,
    fallback: F,
}

impl<S, C: Clock, F> RateLimit<S, C, F> {
    pub(super) fn new(inner: S, shared: Arc<LimitSet<C>>, fallback: F) -> Self {
        Self { inner, shared, fallback }
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
        let outcome =
            self.shared.decide(&Head::with_source(&request, &self.shared.policy.address_source));
        match outcome {
            Admission::Admitted(rest) => {
                let future = self.inner.call(request);
                RateLimitFuture { stage: Stage::Calling { future, rest: Some(rest) } }
            }
            Admission::Rejected(refused) => {
                let fallback = self.fallback.clone();
                RateLimitFuture { stage: Stage::refuse(&self.shared, fallback, request, refused) }
            }
            Admission::Pending(outcome) => {
                let clone = self.inner.clone();
                let service = std::mem::replace(&mut self.inner, clone);
                let (fallback, shared) = (self.fallback.clone(), Arc::clone(&self.shared));
                let pending = Some(Box::new(Pending { service, request, fallback, shared }));
                RateLimitFuture { stage: Stage::Deciding { outcome, pending } }
            }
        }
    }
}

impl<S, C: Clock, F> fmt::Debug for RateLimit<S, C, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimit").field("limits", &self.shared.limits).finish_non_exhaustive()
    }
}

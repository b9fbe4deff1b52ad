//! A service behind a layer that admits or rejects requests.
//!
//! Always   The inner service that was ready serves the request. A request that has to wait takes this service with it, and a
//!          clone replaces it: readiness is never used twice, and a clone is never called before it is ready.

use super::control::{Admission, AdmissionControl, AfterAdmission};
use super::future::{LimitedFuture, PendingCall, Stage};
use crate::head::Head;
use crate::response::body::LimitedBody;
use crate::response::fallback::{Fallback, NoFallback};
use http::{Request, Response};
use std::sync::Arc;
use std::task::{Context, Poll};
use tower_service::Service;

/// A service behind a layer that admits or rejects requests. [`RateLimit`](crate::service::RateLimit),
/// [`Concurrency`](crate::service::Concurrency) and [`LoadService`](crate::service::LoadService) are such services.
#[derive(Clone, Debug)]
pub struct LimitedService<S, A, F = NoFallback> {
    inner: S,
    control: Arc<A>,
    fallback: F,
}

impl<S, A, F> LimitedService<S, A, F> {
    pub(crate) fn new(inner: S, control: Arc<A>, fallback: F) -> Self {
        Self { inner, control, fallback }
    }
}

impl<S, B, R, A, F> Service<Request<B>> for LimitedService<S, A, F>
where
    S: Service<Request<B>, Response = Response<R>> + Clone,
    A: AdmissionControl<AfterAdmission: AfterAdmission<R>>,
    F: Fallback<Request<B>, S::Response, S::Error>,
{
    type Response = Response<LimitedBody<R>>;
    type Error = S::Error;
    type Future = LimitedFuture<S, B, A, F>;

    #[inline]
    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    #[inline]
    fn call(&mut self, request: Request<B>) -> Self::Future {
        let head = Head::with_source(&request, self.control.address_source());
        let stage = match self.control.decide(&head) {
            Admission::Admitted(rest) => {
                Stage::Calling { future: self.inner.call(request), rest: Some(rest) }
            }
            Admission::Rejected(why) => {
                Stage::rejected(&*self.control, self.fallback.clone(), request, &why)
            }
            Admission::Pending(admission) => {
                let clone = self.inner.clone();
                let service = std::mem::replace(&mut self.inner, clone);
                let (fallback, control) = (self.fallback.clone(), Arc::clone(&self.control));
                let call = Some(Box::new(PendingCall { service, request, fallback, control }));
                Stage::Deciding { admission, call }
            }
        };
        LimitedFuture { stage }
    }
}

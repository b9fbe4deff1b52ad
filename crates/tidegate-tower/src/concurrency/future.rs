//! The future of a request: it gets a permit, perhaps after a wait, and holds it until the response has ended.

use super::service::{Admission, ConcurrencyLimit};
use crate::fallback::Fallback;
use crate::guarded_body::GuardedBody;
use crate::head::Head;
use crate::key::{KeyBytes, MissingKey, PendingKey};
use crate::limit::OnMissing;
use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use pin_project_lite::pin_project;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tidegate::{Acquire, Clock, Decision, Denied, Permit};
use tower_service::Service;

/// An admitted request: its permit, and the decision that the response reports.
pub(super) struct Admitted<C: Clock> {
    pub(super) permit: Option<Permit<C>>,
    pub(super) decision: Option<Decision>,
}

impl<C: Clock> Admitted<C> {
    pub(super) const UNCOUNTED: Self = Self { permit: None, decision: None };
}

pin_project! {
    /// The future of a response of a service whose requests in flight are limited.
    pub struct ConcurrencyFuture<S, B, C, F>
    where
        S: Service<Request<B>>,
        C: Clock,
        F: Fallback<Request<B>, S::Response, S::Error>,
    {
        #[pin]
        pub(super) stage: Stage<S, B, C, F>,
        pub(super) shared: Arc<ConcurrencyLimit<C>>,
    }
}

pin_project! {
    #[project = StageProjection]
    pub(super) enum Stage<S, B, C, F>
    where
        S: Service<Request<B>>,
        C: Clock,
        F: Fallback<Request<B>, S::Response, S::Error>,
    {
        /// The service has been called. The future is dropped before the permit is.
        Calling {
            #[pin]
            future: S::Future,
            admitted: Option<Admitted<C>>,
        },
        Rejected { response: Option<Response<Bytes>> },
        /// The fallback service has been called, which needs no permit.
        Fallback {
            #[pin]
            future: F::Future,
            denied: Denied,
        },
        Waiting {
            acquire: Acquire<C>,
            key: KeyBytes,
            cost: u64,
            call: Option<PendingCall<S, B, F>>,
        },
        /// The key has to be waited for.
        FindingKey {
            key: PendingKey,
            cost: u64,
            call: Option<PendingCall<S, B, F>>,
        },
    }
}

/// A request that waits, and the service that was ready for it.
pub(super) struct PendingCall<S, B, F> {
    pub(super) service: S,
    pub(super) request: Request<B>,
    pub(super) fallback: F,
}

impl<C: Clock> ConcurrencyLimit<C> {
    /// Calls the fallback service if there is one, and otherwise makes the response.
    pub(super) fn reject<S, B, F>(
        &self,
        fallback: F,
        mut request: Request<B>,
        denied: Denied,
    ) -> Stage<S, B, C, F>
    where
        S: Service<Request<B>>,
        F: Fallback<Request<B>, S::Response, S::Error>,
    {
        if F::HAS_SERVICE {
            request.extensions_mut().insert(denied);
            match fallback.call(request) {
                Ok(future) => return Stage::Fallback { future, denied },
                Err(back) => request = back,
            }
        }
        let head = Head::with_source(&request, &self.policy.address_source);
        Stage::Rejected { response: Some(self.rejection(&head, denied)) }
    }

    /// Returns the next stage of a request whose key was waited for.
    fn with_key<S, B, F>(
        &self,
        key: Option<KeyBytes>,
        cost: u64,
        mut call: PendingCall<S, B, F>,
    ) -> Stage<S, B, C, F>
    where
        S: Service<Request<B>>,
        F: Fallback<Request<B>, S::Response, S::Error>,
    {
        let key = match (key, self.limit.without_key(MissingKey::Part)) {
            (Some(key), _) => key,
            (None, Some(OnMissing::Shared)) => KeyBytes::new(),
            (None, Some(OnMissing::Allow)) => {
                let future = call.service.call(call.request);
                return Stage::Calling { future, admitted: Some(Admitted::UNCOUNTED) };
            }
            (None, _) => {
                let head = Head::with_source(&call.request, &self.policy.address_source);
                let response = self.policy.without_key(&head, &self.limit, MissingKey::Part);
                return Stage::Rejected { response: Some(response) };
            }
        };
        self.next_stage(self.acquire(&key, cost), key, cost, call)
    }

    fn next_stage<S, B, F>(
        &self,
        admission: Admission<C>,
        key: KeyBytes,
        cost: u64,
        mut call: PendingCall<S, B, F>,
    ) -> Stage<S, B, C, F>
    where
        S: Service<Request<B>>,
        F: Fallback<Request<B>, S::Response, S::Error>,
    {
        match admission {
            Admission::Admitted(admitted) => {
                let future = call.service.call(call.request);
                Stage::Calling { future, admitted: Some(admitted) }
            }
            Admission::Denied(denied) => self.reject(call.fallback, call.request, denied),
            Admission::Pending(acquire) => Stage::Waiting { acquire, key, cost, call: Some(call) },
        }
    }
}

impl<S, B, R, C, F> Future for ConcurrencyFuture<S, B, C, F>
where
    S: Service<Request<B>, Response = Response<R>>,
    R: Body<Data = Bytes>,
    C: Clock,
    F: Fallback<Request<B>, S::Response, S::Error>,
{
    type Output = Result<Response<GuardedBody<R, Permit<C>>>, S::Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        const TWICE: &str = "polled after it was ready";
        let mut this = self.project();
        loop {
            let next = match this.stage.as_mut().project() {
                StageProjection::Calling { future, admitted } => {
                    let result = ready!(future.poll(context));
                    let Admitted { permit, decision } = admitted.take().expect(TWICE);
                    let mut response = result?;
                    if let Some(decision) = decision {
                        this.shared.write_fields(response.headers_mut(), decision);
                    }
                    return Poll::Ready(Ok(response.map(|body| GuardedBody::new(body, permit))));
                }
                StageProjection::Rejected { response } => {
                    return Poll::Ready(Ok(response.take().expect(TWICE).map(GuardedBody::ours)));
                }
                StageProjection::Fallback { future, denied } => {
                    let mut response = ready!(future.poll(context))?;
                    this.shared.write_denied(response.headers_mut(), *denied);
                    return Poll::Ready(Ok(response.map(|body| GuardedBody::new(body, None))));
                }
                StageProjection::Waiting { acquire, key, cost, call } => {
                    let acquired = ready!(Pin::new(acquire).poll(context));
                    let admission = this.shared.admission(acquired, key, *cost);
                    let (key, call) = (key.clone(), call.take().expect(TWICE));
                    this.shared.next_stage(admission, key, *cost, call)
                }
                StageProjection::FindingKey { key, cost, call } => {
                    let key = ready!(key.as_mut().poll(context));
                    this.shared.with_key(key, *cost, call.take().expect(TWICE))
                }
            };
            this.stage.set(next);
        }
    }
}

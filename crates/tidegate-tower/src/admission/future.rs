//! The future of a request: decided, then called or rejected, then completed.

use super::control::{Admission, AdmissionControl, AfterAdmission, PendingAdmission};
use crate::head::Head;
use crate::response::body::LimitedBody;
use crate::response::fallback::Fallback;
use bytes::Bytes;
use http::{Request, Response};
use pin_project_lite::pin_project;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tidegate_http::PreparedFields;
use tower_service::Service;

pin_project! {
    /// The future of a response of a [`LimitedService`](crate::service::LimitedService).
    pub struct LimitedFuture<S, B, A, F>
    where
        S: Service<Request<B>>,
        A: AdmissionControl,
        F: Fallback<Request<B>, S::Response, S::Error>,
    {
        #[pin]
        pub(super) stage: Stage<S, B, A, F>,
    }
}

pin_project! {
    #[project = StageProjection]
    pub(super) enum Stage<S, B, A, F>
    where
        S: Service<Request<B>>,
        A: AdmissionControl,
        F: Fallback<Request<B>, S::Response, S::Error>,
    {
        /// The service has been called. Its future is dropped before `rest`, which may hold a permit.
        Calling {
            #[pin]
            future: S::Future,
            rest: Option<A::AfterAdmission>,
        },
        /// The request was rejected by this response.
        Rejected { response: Option<Response<Bytes>> },
        /// The fallback service has been called.
        Fallback {
            #[pin]
            future: F::Future,
            fields: PreparedFields,
        },
        /// The request waits for its turn, for a key or for Redis.
        Deciding {
            admission: PendingAdmission<A>,
            // In a box, so that the futures of other requests are smaller.
            call: Option<Box<PendingCall<S, B, A, F>>>,
        },
    }
}

impl<S, B, A, F> Stage<S, B, A, F>
where
    S: Service<Request<B>>,
    A: AdmissionControl,
    F: Fallback<Request<B>, S::Response, S::Error>,
{
    /// Calls the fallback service if there is one, and otherwise makes the response.
    #[cold]
    pub(super) fn rejected(
        control: &A,
        fallback: F,
        mut request: Request<B>,
        why: &A::Rejection,
    ) -> Self {
        if F::HAS_SERVICE
            && let Some((denied, fields)) = control.denial(why)
        {
            request.extensions_mut().insert(denied);
            match fallback.call(request) {
                Ok(future) => return Self::Fallback { future, fields },
                Err(back) => request = back,
            }
        }
        let head = Head::with_source(&request, control.address_source());
        Self::Rejected { response: Some(control.rejection(&head, why)) }
    }
}

impl<S, B, R, A, F> Future for LimitedFuture<S, B, A, F>
where
    S: Service<Request<B>, Response = Response<R>>,
    A: AdmissionControl<AfterAdmission: AfterAdmission<R>>,
    F: Fallback<Request<B>, S::Response, S::Error>,
{
    type Output = Result<Response<LimitedBody<R>>, S::Error>;

    #[inline]
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut stage = self.project().stage;
        loop {
            let next = match stage.as_mut().project() {
                StageProjection::Calling { future, rest } => {
                    let result = ready!(future.poll(context));
                    let rest = rest.take().expect(POLLED_TWICE);
                    return Poll::Ready(rest.complete(result));
                }
                StageProjection::Rejected { response } => {
                    let response = response.take().expect(POLLED_TWICE);
                    return Poll::Ready(Ok(response.map(LimitedBody::of_rejection)));
                }
                StageProjection::Fallback { future, fields } => {
                    let mut response = ready!(future.poll(context))?;
                    std::mem::take(fields).add_to(response.headers_mut());
                    return Poll::Ready(Ok(response.map(LimitedBody::of_service)));
                }
                StageProjection::Deciding { admission, call } => {
                    let admission = ready!(admission.as_mut().poll(context));
                    call.take().expect(POLLED_TWICE).decided(admission)
                }
            };
            stage.set(next);
        }
    }
}

const POLLED_TWICE: &str = "polled after it was ready";

/// A request that waits, and the service that was ready for it.
pub(super) struct PendingCall<S, B, A, F> {
    pub(super) service: S,
    pub(super) request: Request<B>,
    pub(super) fallback: F,
    pub(super) control: Arc<A>,
}

impl<S, B, A, F> PendingCall<S, B, A, F>
where
    S: Service<Request<B>>,
    A: AdmissionControl,
    F: Fallback<Request<B>, S::Response, S::Error>,
{
    fn decided(self: Box<Self>, admission: Admission<A>) -> Stage<S, B, A, F> {
        match admission {
            Admission::Admitted(rest) => {
                let Self { mut service, request, .. } = *self;
                Stage::Calling { future: service.call(request), rest: Some(rest) }
            }
            Admission::Rejected(why) => {
                let Self { request, fallback, control, .. } = *self;
                Stage::rejected(&*control, fallback, request, &why)
            }
            Admission::Pending(admission) => Stage::Deciding { admission, call: Some(self) },
        }
    }
}

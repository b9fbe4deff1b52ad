//! The future of a request: decided, then called or rejected, then settled.

use super::admission::{Admission, AfterAdmission, PendingAdmission, Rejection};
use super::checks::NoKey;
use super::limit_set::LimitSet;
use crate::fallback::Fallback;
use crate::head::Head;
use crate::limited_body::LimitedBody;
use bytes::Bytes;
use http::{Request, Response};
use pin_project_lite::pin_project;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tidegate::Clock;
use tidegate_http::PreparedFields;
use tower_service::Service;

pin_project! {
    /// The future of a response of a service behind limits.
    pub struct RateLimitFuture<S, B, C, F>
    where
        S: Service<Request<B>>,
        C: Clock,
        F: Fallback<Request<B>, S::Response, S::Error>,
    {
        #[pin]
        pub(super) stage: Stage<S, B, C, F>,
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
        /// The service has been called.
        Calling {
            #[pin]
            future: S::Future,
            rest: Option<AfterAdmission<C>>,
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
            admission: PendingAdmission<C>,
            // In a box, so that the futures of other requests are smaller.
            call: Option<Box<PendingCall<S, B, C, F>>>,
        },
    }
}

impl<S, B, C, F> Stage<S, B, C, F>
where
    S: Service<Request<B>>,
    C: Clock,
    F: Fallback<Request<B>, S::Response, S::Error>,
{
    /// Calls the fallback service if there is one, and otherwise makes the response.
    #[cold]
    pub(super) fn rejected(
        set: &LimitSet<C>,
        fallback: F,
        mut request: Request<B>,
        rejection: &Rejection,
    ) -> Self {
        if F::HAS_SERVICE
            && let Rejection::Denied(decisions) = rejection
            && let Err(denied) = decisions.joint.into_result()
        {
            request.extensions_mut().insert(denied);
            match fallback.call(request) {
                Ok(future) => return Self::Fallback { future, fields: set.fields(decisions) },
                Err(back) => request = back,
            }
        }
        let head = Head::with_source(&request, &set.policy.address_source);
        Self::Rejected { response: Some(set.rejection(&head, rejection)) }
    }
}

impl<C: Clock> LimitSet<C> {
    fn rejection(&self, head: &Head<'_>, rejection: &Rejection) -> Response<Bytes> {
        let decisions = match rejection {
            Rejection::Denied(decisions) => decisions,
            Rejection::NoKey(NoKey { limit, missing }) => {
                return self.policy.without_key(head, &self.limits[*limit], *missing);
            }
        };
        let mut response = self.with_statuses(decisions, |statuses| {
            self.policy.denied(head, statuses, decisions.joint)
        });
        self.fields(decisions).add_to(response.headers_mut());
        response
    }
}

impl<S, B, R, C, F> Future for RateLimitFuture<S, B, C, F>
where
    S: Service<Request<B>, Response = Response<R>>,
    C: Clock,
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
                    return Poll::Ready(rest.answered(result));
                }
                StageProjection::Rejected { response } => {
                    let response = response.take().expect(POLLED_TWICE);
                    return Poll::Ready(Ok(response.map(LimitedBody::ours)));
                }
                StageProjection::Fallback { future, fields } => {
                    let mut response = ready!(future.poll(context))?;
                    std::mem::take(fields).add_to(response.headers_mut());
                    return Poll::Ready(Ok(response.map(LimitedBody::theirs)));
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
pub(super) struct PendingCall<S, B, C: Clock, F> {
    pub(super) service: S,
    pub(super) request: Request<B>,
    pub(super) fallback: F,
    pub(super) set: Arc<LimitSet<C>>,
}

impl<S, B, C, F> PendingCall<S, B, C, F>
where
    S: Service<Request<B>>,
    C: Clock,
    F: Fallback<Request<B>, S::Response, S::Error>,
{
    fn decided(self: Box<Self>, admission: Admission<C>) -> Stage<S, B, C, F> {
        match admission {
            Admission::Admitted(rest) => {
                let Self { mut service, request, .. } = *self;
                Stage::Calling { future: service.call(request), rest: Some(rest) }
            }
            Admission::Rejected(rejection) => {
                let Self { request, fallback, set, .. } = *self;
                Stage::rejected(&set, fallback, request, &rejection)
            }
            Admission::Pending(admission) => Stage::Deciding { admission, call: Some(self) },
        }
    }
}

impl<C: Clock> AfterAdmission<C> {
    /// Settles the costs, and adds the header fields to the response.
    fn answered<R, E>(self, result: Result<Response<R>, E>) -> Result<Response<LimitedBody<R>>, E> {
        let Self { fields, settlement } = self;
        let mut response = match result {
            Ok(response) => response,
            Err(error) => {
                if let Some(settlement) = settlement {
                    settlement.failed();
                }
                return Err(error);
            }
        };
        fields.add_to(response.headers_mut());
        let meter = settlement
            .and_then(|settlement| settlement.answered(response.status(), response.headers()));
        Ok(response.map(|body| match meter {
            Some(meter) => LimitedBody::metered(body, meter),
            None => LimitedBody::theirs(body),
        }))
    }
}

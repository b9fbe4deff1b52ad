//! A request on its way through the limits: decided, called, answered.

use super::admission::{Admission, AfterAdmission, RejectReason, Rejection};
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
    /// The answer of a service behind limits, to come.
    ///
    /// ```
    /// use tidegate_tower::RateLimitLayer;
    /// use tower::{Layer, ServiceExt};
    ///
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// let limited = RateLimitLayer::for_all("100/s")?.layer(axum::Router::<()>::new());
    /// let response = limited.oneshot(http::Request::new(axum::body::Body::empty())).await?;
    /// assert_eq!(response.headers()["ratelimit"], r#""all";r=99;t=1"#);
    /// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
    /// ```
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
        /// The service has it.
        Calling {
            #[pin]
            future: S::Future,
            rest: Option<AfterAdmission<C>>,
        },
        /// It goes no further.
        Rejection { response: Option<Response<Bytes>> },
        /// Another service has it.
        Fallback {
            #[pin]
            future: F::Future,
            fields: PreparedFields,
        },
        /// It waits for its turn, or for what has to be found out first.
        Deciding {
            outcome: Pin<Box<dyn Future<Output = Admission<C>> + Send>>,
            // In a box, so that who need not wait has less to carry.
            pending: Option<Box<Pending<S, B, C, F>>>,
        },
    }
}

impl<S, B, C, F> Stage<S, B, C, F>
where
    S: Service<Request<B>>,
    C: Clock,
    F: Fallback<Request<B>, S::Response, S::Error>,
{
    #[cold]
    pub(super) fn refuse(
        shared: &Arc<LimitSet<C>>,
        fallback: F,
        mut request: Request<B>,
        refused: Rejection,
    ) -> Self {
        if F::HAS_SERVICE
            && let RejectReason::Denied(decision) = refused.why
            && let Err(denied) = decision.into_result()
        {
            request.extensions_mut().insert(denied);
            match fallback.call(request) {
                Ok(future) => {
                    let fields = shared.fields(&refused.decisions, &decision);
                    return Self::Fallback { future, fields };
                }
                Err(back) => request = back,
            }
        }
        let head = Head::with_source(&request, &shared.policy.address_source);
        let response = shared.refusal(&head, &refused);
        Self::Rejection { response: Some(response) }
    }
}

impl<C: Clock> LimitSet<C> {
    fn refusal(&self, head: &Head<'_>, refused: &Rejection) -> Response<Bytes> {
        let decision = match refused.why {
            RejectReason::Denied(decision) => decision,
            RejectReason::NoKey { limit, missing } => {
                return self.policy.without_key(head, &self.limits[limit], missing);
            }
        };
        let mut response =
            self.with_statuses(&refused.decisions, |told| self.policy.denied(head, told, decision));
        self.fields(&refused.decisions, &decision).add_to(response.headers_mut());
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
                    let rest = rest.take().expect("polled after it was ready");
                    return Poll::Ready(rest.answered(result));
                }
                StageProjection::Rejection { response } => {
                    let response = response.take().expect("polled after it was ready");
                    return Poll::Ready(Ok(response.map(LimitedBody::ours)));
                }
                StageProjection::Fallback { future, fields } => {
                    let mut response = ready!(future.poll(context))?;
                    std::mem::take(fields).add_to(response.headers_mut());
                    return Poll::Ready(Ok(response.map(LimitedBody::theirs)));
                }
                StageProjection::Deciding { outcome, pending } => {
                    let outcome = ready!(outcome.as_mut().poll(context));
                    pending.take().expect("polled after it was ready").decided(outcome)
                }
            };
            stage.set(next);
        }
    }
}

/// A request that waits, and the service that was ready for it.
pub(super) struct Pending<S, B, C: Clock, F> {
    pub(super) service: S,
    pub(super) request: Request<B>,
    pub(super) fallback: F,
    pub(super) shared: Arc<LimitSet<C>>,
}

impl<S, B, C, F> Pending<S, B, C, F>
where
    S: Service<Request<B>>,
    C: Clock,
    F: Fallback<Request<B>, S::Response, S::Error>,
{
    fn decided(self: Box<Self>, outcome: Admission<C>) -> Stage<S, B, C, F> {
        match outcome {
            Admission::Admitted(rest) => {
                let Pending { mut service, request, .. } = *self;
                Stage::Calling { future: service.call(request), rest: Some(rest) }
            }
            Admission::Rejected(refused) => {
                let Pending { request, fallback, shared, .. } = *self;
                Stage::refuse(&shared, fallback, request, refused)
            }
            Admission::Pending(outcome) => Stage::Deciding { outcome, pending: Some(self) },
        }
    }
}

impl<C: Clock> AfterAdmission<C> {
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

//! A request on its way through the limits: decided, called, answered.

use super::outcome::{Answers, Outcome, Passed, Refused, Rest, Why};
use super::shared::Shared;
use crate::answer::Answer;
use crate::body::LimitedBody;
use crate::head::Head;
use crate::instead::Instead;
use bytes::Bytes;
use http::{Request, Response};
use pin_project_lite::pin_project;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tidegate::{Clock, Decision};
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
        F: Instead<Request<B>, S::Response, S::Error>,
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
        F: Instead<Request<B>, S::Response, S::Error>,
    {
        /// The service has it.
        Calling {
            #[pin]
            future: S::Future,
            passed: Passed<C>,
        },
        /// It goes no further.
        Refused { response: Option<Response<Bytes>> },
        /// Another service has it.
        Instead {
            #[pin]
            future: F::Future,
            // In a box, so that who is admitted has less to carry.
            refused: Box<(Arc<Shared<C>>, Answers, Decision)>,
        },
        /// It waits for its turn, or for what has to be found out first.
        Deciding {
            outcome: Pin<Box<dyn Future<Output = Outcome<C>> + Send>>,
            // In a box, so that who need not wait has less to carry.
            pending: Option<Box<Pending<S, B, C, F>>>,
        },
    }
}

impl<S, B, C, F> Stage<S, B, C, F>
where
    S: Service<Request<B>>,
    C: Clock,
    F: Instead<Request<B>, S::Response, S::Error>,
{
    #[cold]
    pub(super) fn refuse(
        shared: &Arc<Shared<C>>,
        fallback: F,
        mut request: Request<B>,
        refused: Refused,
    ) -> Self {
        if F::IS_ANOTHER
            && let Why::Denied(decision) = refused.why
            && let Err(denied) = decision.ok()
        {
            request.extensions_mut().insert(denied);
            match fallback.instead(request) {
                Ok(future) => {
                    let refused = Box::new((Arc::clone(shared), refused.answers, decision));
                    return Self::Instead { future, refused };
                }
                Err(back) => request = back,
            }
        }
        let head = Head::within(&request, &shared.manners.surroundings);
        let response = shared.refusal(&head, &refused);
        Self::Refused { response: Some(response) }
    }
}

impl<C: Clock> Shared<C> {
    fn refusal(&self, head: &Head<'_>, refused: &Refused) -> Response<Bytes> {
        let decision = match refused.why {
            Why::Denied(decision) => decision,
            Why::NoKey { limit, missing } => {
                return self.manners.without_key(head, &self.limits[limit], missing);
            }
        };
        if let Some(response) = self.refusal_alone(head, &refused.answers, decision) {
            return response;
        }
        let mut response =
            self.with_told(&refused.answers, |told| self.manners.denied(head, told, decision));
        let all = Answer::obeyed(decision);
        self.write_fields(response.headers_mut(), &refused.answers, &all);
        response
    }

    /// The quick way, if there is one.
    #[inline]
    fn refusal_alone(
        &self,
        head: &Head<'_>,
        answers: &Answers,
        decision: Decision,
    ) -> Option<Response<Bytes>> {
        if self.manners.maker.is_some() || head.is_grpc() {
            return None;
        }
        Some(self.say(answers)?.refusal(self.manners.status, &Answer::obeyed(decision)))
    }
}

impl<S, B, R, C, F> Future for RateLimitFuture<S, B, C, F>
where
    S: Service<Request<B>, Response = Response<R>>,
    C: Clock,
    F: Instead<Request<B>, S::Response, S::Error>,
{
    type Output = Result<Response<LimitedBody<R>>, S::Error>;

    #[inline]
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut stage = self.project().stage;
        if let StageProjection::Calling { future, passed: Passed::Told(said) } =
            stage.as_mut().project()
        {
            let mut response = ready!(future.poll(context))?.map(LimitedBody::theirs);
            said.add(response.headers_mut());
            return Poll::Ready(Ok(response));
        }
        stage.poll_other(context)
    }
}

impl<S, B, R, C, F> Stage<S, B, C, F>
where
    S: Service<Request<B>, Response = Response<R>>,
    C: Clock,
    F: Instead<Request<B>, S::Response, S::Error>,
{
    /// All other ways, in a function of their own: then the usual one is short enough to be inlined.
    #[inline(never)]
    fn poll_other(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Result<Response<LimitedBody<R>>, S::Error>> {
        loop {
            let next = match self.as_mut().project() {
                StageProjection::Calling { future, passed } => {
                    let result = ready!(future.poll(context));
                    return Poll::Ready(passed.answered(result));
                }
                StageProjection::Refused { response } => {
                    let response = response.take().expect("polled after it was ready");
                    return Poll::Ready(Ok(response.map(LimitedBody::ours)));
                }
                StageProjection::Instead { future, refused } => {
                    let mut response = ready!(future.poll(context))?;
                    let (shared, answers, decision) = &**refused;
                    let all = Answer::obeyed(*decision);
                    shared.write_fields(response.headers_mut(), answers, &all);
                    return Poll::Ready(Ok(response.map(LimitedBody::theirs)));
                }
                StageProjection::Deciding { outcome, pending } => {
                    let outcome = ready!(outcome.as_mut().poll(context));
                    pending.take().expect("polled after it was ready").decided(outcome)
                }
            };
            self.set(next);
        }
    }
}

/// A request that waits, and the service that was ready for it.
pub(super) struct Pending<S, B, C: Clock, F> {
    pub(super) service: S,
    pub(super) request: Request<B>,
    pub(super) fallback: F,
    pub(super) shared: Arc<Shared<C>>,
}

impl<S, B, C, F> Pending<S, B, C, F>
where
    S: Service<Request<B>>,
    C: Clock,
    F: Instead<Request<B>, S::Response, S::Error>,
{
    fn decided(self: Box<Self>, outcome: Outcome<C>) -> Stage<S, B, C, F> {
        match outcome {
            Outcome::Pass(passed) => {
                let Pending { mut service, request, .. } = *self;
                Stage::Calling { future: service.call(request), passed }
            }
            Outcome::Refuse(refused) => {
                let Pending { request, fallback, shared, .. } = *self;
                Stage::refuse(&shared, fallback, request, refused)
            }
            Outcome::Later(outcome) => Stage::Deciding { outcome, pending: Some(self) },
        }
    }
}

impl<C: Clock> Passed<C> {
    fn answered<R, E>(
        &mut self,
        result: Result<Response<R>, E>,
    ) -> Result<Response<LimitedBody<R>>, E> {
        let rest = match self {
            Self::Told(said) => {
                let mut response = result?.map(LimitedBody::theirs);
                said.add(response.headers_mut());
                return Ok(response);
            }
            Self::Later(rest) => rest.take(),
        };
        let Some(rest) = rest else { return Ok(result?.map(LimitedBody::theirs)) };
        let Rest { shared, answers, said, settlement } = *rest;
        let mut response = match result {
            Ok(response) => response,
            Err(error) => {
                if let Some(settlement) = settlement {
                    settlement.failed();
                }
                return Err(error);
            }
        };
        match said {
            Some(said) => said.add(response.headers_mut()),
            None => shared.write_fields(response.headers_mut(), &answers, &Answer::UNLIMITED),
        }
        let meter = settlement
            .and_then(|settlement| settlement.answered(response.status(), response.headers()));
        Ok(response.map(|body| match meter {
            Some(meter) => LimitedBody::metered(body, meter),
            None => LimitedBody::theirs(body),
        }))
    }
}

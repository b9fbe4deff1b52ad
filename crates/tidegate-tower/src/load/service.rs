//! A service that is called as far as the load allows, and its future.

use super::Load;
use super::layer::LoadSettings;
use crate::guarded_body::GuardedBody;
use crate::head::Head;
use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use pin_project_lite::pin_project;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use tower_service::Service;

/// A service that is called as far as the load allows; made by [`LoadLayer`](crate::service::LoadLayer).
pub struct LoadService<S, L: Load> {
    inner: S,
    settings: Arc<LoadSettings<L>>,
}

impl<S, L: Load> LoadService<S, L> {
    pub(super) fn new(inner: S, settings: Arc<LoadSettings<L>>) -> Self {
        Self { inner, settings }
    }

    /// Returns the first stage of a request.
    fn stage<B>(&mut self, request: Request<B>) -> Stage<S, B, L>
    where
        S: Service<Request<B>> + Clone,
    {
        let head = Head::with_source(&request, &self.settings.address_source);
        let mut entering = (self.settings.enter)(&head);
        // A request that has to wait is polled again, with a waker.
        match Pin::new(&mut entering).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(entered) => self.settings.entered(entered, &mut self.inner, request),
            Poll::Pending => {
                // The service that is ready waits. A clone replaces it.
                let clone = self.inner.clone();
                let ready = std::mem::replace(&mut self.inner, clone);
                Stage::Waiting { entering, pending: Some((ready, request)) }
            }
        }
    }
}

impl<L: Load> LoadSettings<L> {
    /// Calls the service or makes the response, and reports the decision to observers.
    fn entered<S, B>(
        &self,
        entered: Result<L::Permit, L::Refusal>,
        service: &mut S,
        request: Request<B>,
    ) -> Stage<S, B, L>
    where
        S: Service<Request<B>>,
    {
        self.observe(entered.as_ref());
        match entered {
            Ok(permit) => Stage::Calling { future: service.call(request), permit: Some(permit) },
            Err(refusal) => {
                let head = Head::with_source(&request, &self.address_source);
                Stage::Rejected { response: Some(self.rejection.response(&head, &refusal)) }
            }
        }
    }
}

impl<S, B, R, L> Service<Request<B>> for LoadService<S, L>
where
    S: Service<Request<B>, Response = Response<R>> + Clone,
    R: Body<Data = Bytes>,
    L: Load,
{
    type Response = Response<GuardedBody<R, L::Permit>>;
    type Error = S::Error;
    type Future = LoadFuture<S, B, L>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let stage = self.stage(request);
        LoadFuture { stage, settings: Arc::clone(&self.settings) }
    }
}

impl<S: Clone, L: Load> Clone for LoadService<S, L> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), settings: Arc::clone(&self.settings) }
    }
}

impl<S: fmt::Debug, L: Load> fmt::Debug for LoadService<S, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoadService").field("inner", &self.inner).finish_non_exhaustive()
    }
}

pin_project! {
    /// The future of a response of a service that is called as far as the load allows.
    pub struct LoadFuture<S, B, L>
    where
        S: Service<Request<B>>,
        L: Load,
    {
        #[pin]
        stage: Stage<S, B, L>,
        settings: Arc<LoadSettings<L>>,
    }
}

pin_project! {
    #[project = StageProjection]
    enum Stage<S, B, L>
    where
        S: Service<Request<B>>,
        L: Load,
    {
        /// The service has been called. The future is dropped before the permit is.
        Calling {
            #[pin]
            future: S::Future,
            permit: Option<L::Permit>,
        },
        Rejected { response: Option<Response<Bytes>> },
        Waiting {
            entering: L::Entering,
            pending: Option<(S, Request<B>)>,
        },
    }
}

impl<S, B, R, L> Future for LoadFuture<S, B, L>
where
    S: Service<Request<B>, Response = Response<R>>,
    R: Body<Data = Bytes>,
    L: Load,
{
    type Output = Result<Response<GuardedBody<R, L::Permit>>, S::Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        const TWICE: &str = "polled after it was ready";
        let mut this = self.project();
        loop {
            let next = match this.stage.as_mut().project() {
                StageProjection::Calling { future, permit } => {
                    let result = ready!(future.poll(context));
                    let permit = permit.take().expect(TWICE);
                    let response = result?;
                    let (status, headers) = (response.status(), response.headers());
                    let permit = (this.settings.answered)(permit, status, headers);
                    return Poll::Ready(Ok(response.map(|body| GuardedBody::new(body, permit))));
                }
                StageProjection::Rejected { response } => {
                    return Poll::Ready(Ok(response.take().expect(TWICE).map(GuardedBody::ours)));
                }
                StageProjection::Waiting { entering, pending } => {
                    let entered = ready!(Pin::new(entering).poll(context));
                    let (mut service, request) = pending.take().expect(TWICE);
                    this.settings.entered(entered, &mut service, request)
                }
            };
            this.stage.set(next);
        }
    }
}

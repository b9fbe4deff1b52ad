//! A request on its way: let in, at once or after a wait, or turned rejection.

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

/// A service that is called as often as can be borne; made by [`LoadLayer`](crate::LoadLayer).
///
/// ```
/// use tidegate::load::Shedder;
/// use tidegate_tower::{LoadService, ShedLayer};
/// use tower_layer::Layer;
///
/// let service: LoadService<axum::Router, Shedder> =
///     ShedLayer::new(Shedder::new()).layer(axum::Router::new());
/// ```
pub struct LoadService<S, L: Load> {
    inner: S,
    settings: Arc<LoadSettings<L>>,
}

impl<S, L: Load> LoadService<S, L> {
    pub(super) fn new(inner: S, settings: Arc<LoadSettings<L>>) -> Self {
        Self { inner, settings }
    }

    /// Where a request that came now stands.
    fn stage<B>(&mut self, request: Request<B>) -> Stage<S, B, L>
    where
        S: Service<Request<B>> + Clone,
    {
        let head = Head::with_source(&request, &self.settings.address_source);
        let mut entering = (self.settings.enter)(&head);
        // Whoever has to wait is polled again, with a waker that wakes.
        let mut nobody = Context::from_waker(Waker::noop());
        match Pin::new(&mut entering).poll(&mut nobody) {
            Poll::Ready(entered) => self.settings.stand(entered, &mut self.inner, request),
            Poll::Pending => {
                // The one that is ready waits; a clone takes its place.
                let clone = self.inner.clone();
                let ready = std::mem::replace(&mut self.inner, clone);
                Stage::Waiting { entering, pending: Some((ready, request)) }
            }
        }
    }
}

impl<L: Load> LoadSettings<L> {
    fn stand<S, B>(
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
                Stage::Refused { response: Some(self.rejection.response(&head, &refusal)) }
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
    /// The answer of a service that is called as often as can be borne, to come.
    ///
    /// ```
    /// use tidegate::load::Shedder;
    /// use tidegate_tower::ShedLayer;
    /// use tower::{Layer, ServiceExt};
    ///
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// let shedder = Shedder::builder().in_flight_max(0).build();
    /// let service = ShedLayer::new(shedder).layer(axum::Router::<()>::new());
    /// let response = service.oneshot(http::Request::new(axum::body::Body::empty())).await?;
    /// assert_eq!(response.status(), 503);
    /// assert_eq!(response.headers()["retry-after"], "1");
    /// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
    /// ```
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
        /// The service has it. The future is dropped before the permit is.
        Calling {
            #[pin]
            future: S::Future,
            permit: Option<L::Permit>,
        },
        Refused { response: Option<Response<Bytes>> },
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
                StageProjection::Refused { response } => {
                    return Poll::Ready(Ok(response.take().expect(TWICE).map(GuardedBody::ours)));
                }
                StageProjection::Waiting { entering, pending } => {
                    let entered = ready!(Pin::new(entering).poll(context));
                    let (mut service, request) = pending.take().expect(TWICE);
                    this.settings.stand(entered, &mut service, request)
                }
            };
            this.stage.set(next);
        }
    }
}

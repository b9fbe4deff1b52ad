//! A request on its way: it finds a place, or waits for one, and holds it until its response is done.

use super::service::{Entry, InFlight};
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

/// What an admitted request holds, and is told.
pub(super) struct Admitted<C: Clock> {
    pub(super) permit: Option<Permit<C>>,
    pub(super) decision: Option<Decision>,
}

impl<C: Clock> Admitted<C> {
    pub(super) const UNCOUNTED: Self = Self { permit: None, decision: None };
}

pin_project! {
    /// The decision of a service of which only so many requests are in flight, to come.
    ///
    /// ```
    /// use tidegate_tower::ConcurrencyLayer;
    /// use tower::{Layer, ServiceExt};
    ///
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// let limited = ConcurrencyLayer::for_all("concurrency 5")?.layer(axum::Router::<()>::new());
    /// let response = limited.oneshot(http::Request::new(axum::body::Body::empty())).await?;
    /// assert_eq!(response.headers()["ratelimit"], r#""in-flight";r=4"#);
    /// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
    /// ```
    pub struct ConcurrencyFuture<S, B, C, F>
    where
        S: Service<Request<B>>,
        C: Clock,
        F: Fallback<Request<B>, S::Response, S::Error>,
    {
        #[pin]
        pub(super) stage: Stage<S, B, C, F>,
        pub(super) shared: Arc<InFlight<C>>,
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
        /// The service has it. The future is dropped before the permit is.
        Calling {
            #[pin]
            future: S::Future,
            admitted: Option<Admitted<C>>,
        },
        Refused { response: Option<Response<Bytes>> },
        /// Another service has it, which holds no place.
        Fallback {
            #[pin]
            future: F::Future,
            denied: Denied,
        },
        Waiting {
            acquire: Acquire<C>,
            key: KeyBytes,
            cost: u64,
            pending: Option<Pending<S, B, F>>,
        },
        /// CallKey to count has to be found out.
        Finding {
            key: PendingKey,
            cost: u64,
            pending: Option<Pending<S, B, F>>,
        },
    }
}

/// A request that waits, and the service that was ready for it.
pub(super) struct Pending<S, B, F> {
    pub(super) service: S,
    pub(super) request: Request<B>,
    pub(super) fallback: F,
}

impl<C: Clock> InFlight<C> {
    /// There is no place for it: another service has it, or it goes no further.
    pub(super) fn refuse<S, B, F>(
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
        Stage::Refused { response: Some(self.refusal(&head, denied)) }
    }

    /// Where a request stands whose key was waited for.
    fn found<S, B, F>(
        &self,
        key: Option<KeyBytes>,
        cost: u64,
        mut pending: Pending<S, B, F>,
    ) -> Stage<S, B, C, F>
    where
        S: Service<Request<B>>,
        F: Fallback<Request<B>, S::Response, S::Error>,
    {
        let key = match (key, self.limit.without_key(MissingKey::Part)) {
            (Some(key), _) => key,
            (None, Some(OnMissing::Shared)) => KeyBytes::new(),
            (None, Some(OnMissing::Allow)) => {
                let future = pending.service.call(pending.request);
                return Stage::Calling { future, admitted: Some(Admitted::UNCOUNTED) };
            }
            (None, _) => {
                let head = Head::with_source(&pending.request, &self.policy.address_source);
                let response = self.policy.without_key(&head, &self.limit, MissingKey::Part);
                return Stage::Refused { response: Some(response) };
            }
        };
        self.stand(self.enter(&key, cost), key, cost, pending)
    }

    fn stand<S, B, F>(
        &self,
        entry: Entry<C>,
        key: KeyBytes,
        cost: u64,
        mut pending: Pending<S, B, F>,
    ) -> Stage<S, B, C, F>
    where
        S: Service<Request<B>>,
        F: Fallback<Request<B>, S::Response, S::Error>,
    {
        match entry {
            Entry::In(admitted) => {
                let future = pending.service.call(pending.request);
                Stage::Calling { future, admitted: Some(admitted) }
            }
            Entry::Full(denied) => self.refuse(pending.fallback, pending.request, denied),
            Entry::Waits(acquire) => Stage::Waiting { acquire, key, cost, pending: Some(pending) },
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
                StageProjection::Refused { response } => {
                    return Poll::Ready(Ok(response.take().expect(TWICE).map(GuardedBody::ours)));
                }
                StageProjection::Fallback { future, denied } => {
                    let mut response = ready!(future.poll(context))?;
                    this.shared.write_denied(response.headers_mut(), *denied);
                    return Poll::Ready(Ok(response.map(|body| GuardedBody::new(body, None))));
                }
                StageProjection::Waiting { acquire, key, cost, pending } => {
                    let decision = ready!(Pin::new(acquire).poll(context));
                    let entry = this.shared.entered(decision, key, *cost);
                    let (key, pending) = (key.clone(), pending.take().expect(TWICE));
                    this.shared.stand(entry, key, *cost, pending)
                }
                StageProjection::Finding { key, cost, pending } => {
                    let key = ready!(key.as_mut().poll(context));
                    this.shared.found(key, *cost, pending.take().expect(TWICE))
                }
            };
            this.stage.set(next);
        }
    }
}

//! What a layer does with a request that a limit denies: it responds, or calls another service.

use pin_project_lite::pin_project;
use std::future::Ready;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tower_service::Service;

/// What a layer does with a request that it denies: [`NoFallback`] or [`FallbackService`].
pub trait Fallback<Q, P, E>: sealed::Sealed + Clone {
    /// The future of the response.
    type Future: Future<Output = Result<P, E>>;

    /// Whether there is a service: only then is `Denied` added to the extensions of the request.
    #[doc(hidden)]
    const HAS_SERVICE: bool;

    /// Calls the service, or returns the request.
    #[doc(hidden)]
    fn call(self, request: Q) -> Result<Self::Future, Q>;
}

mod sealed {
    #[doc(hidden)]
    pub trait Sealed {}
    impl Sealed for super::NoFallback {}
    impl<V> Sealed for super::FallbackService<V> {}
}

/// Responds with a problem document that says when to retry.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoFallback;

impl<Q, P, E> Fallback<Q, P, E> for NoFallback {
    type Future = Ready<Result<P, E>>;

    const HAS_SERVICE: bool = false;

    fn call(self, request: Q) -> Result<Self::Future, Q> {
        Err(request)
    }
}

/// Calls another service, which has a cheaper response: made by `fallback_service` of a
/// [`RateLimitLayer`](crate::RateLimitLayer::fallback_service) or a
/// [`ConcurrencyLayer`](crate::ConcurrencyLayer::fallback_service).
#[derive(Clone, Debug)]
pub struct FallbackService<V> {
    pub(crate) service: V,
}

impl<Q, V> Fallback<Q, V::Response, V::Error> for FallbackService<V>
where
    V: Service<Q> + Clone,
{
    type Future = FallbackFuture<V, Q>;

    const HAS_SERVICE: bool = true;

    fn call(self, request: Q) -> Result<Self::Future, Q> {
        Ok(FallbackFuture::Ready { service: self.service, request: Some(request) })
    }
}

pin_project! {
    /// Waits until a service is ready, and calls it once.
    #[doc(hidden)]
    #[project = FallbackFutureProjection]
    pub enum FallbackFuture<V, Q>
    where
        V: Service<Q>,
    {
        Ready { service: V, request: Option<Q> },
        Called { #[pin] future: V::Future },
    }
}

impl<V: Service<Q>, Q> Future for FallbackFuture<V, Q> {
    type Output = Result<V::Response, V::Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            let future = match self.as_mut().project() {
                FallbackFutureProjection::Ready { service, request } => {
                    ready!(service.poll_ready(context))?;
                    let request = request.take().expect("it is called once");
                    service.call(request)
                }
                FallbackFutureProjection::Called { future } => return future.poll(context),
            };
            self.set(Self::Called { future });
        }
    }
}

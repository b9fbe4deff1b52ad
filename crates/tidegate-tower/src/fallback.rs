//! What is called when a limit denies: nothing, or another service.

use pin_project_lite::pin_project;
use std::fmt;
use std::future::Ready;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tower_service::Service;

/// What a layer does with whom it denies: [`NoFallback`], or ask an [`FallbackService`] service.
///
/// ```
/// use tidegate_tower::{RateLimitLayer, NoFallback};
///
/// let refusing: RateLimitLayer<tidegate::SystemClock, NoFallback> = RateLimitLayer::per_ip("100/s")?;
/// # Ok::<(), tidegate_tower::LimitError>(())
/// ```
pub trait Fallback<Q, P, E>: sealed::Sealed + Clone {
    /// The answer to come.
    type Future: Future<Output = Result<P, E>>;

    /// Whether there is a service to ask: only then is the request told why it was denied.
    #[doc(hidden)]
    const HAS_SERVICE: bool;

    /// Takes the request, or hands it back.
    #[doc(hidden)]
    fn call(self, request: Q) -> Result<Self::Future, Q>;
}

mod sealed {
    #[doc(hidden)]
    pub trait Sealed {}
    impl Sealed for super::NoFallback {}
    impl<V> Sealed for super::FallbackService<V> {}
}

/// Refuses, with a problem that says when to come back.
///
/// ```
/// let layer: tidegate_tower::RateLimitLayer = tidegate_tower::RateLimitLayer::per_ip("100/s")?;
/// # Ok::<(), tidegate_tower::LimitError>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct NoFallback;

impl<Q, P, E> Fallback<Q, P, E> for NoFallback {
    type Future = Ready<Result<P, E>>;

    const HAS_SERVICE: bool = false;

    fn call(self, request: Q) -> Result<Self::Future, Q> {
        Err(request)
    }
}

/// Asks another service, which has something cheaper: made by `fallback_service` of a
/// [`RateLimitLayer`](crate::RateLimitLayer::fallback_service) or a
/// [`ConcurrencyLayer`](crate::ConcurrencyLayer::fallback_service).
///
/// ```
/// use tidegate_tower::{FallbackService, RateLimitLayer};
///
/// let layer: RateLimitLayer<_, FallbackService<axum::Router>> =
///     RateLimitLayer::per_ip("100/s")?.fallback_service(axum::Router::new());
/// # Ok::<(), tidegate_tower::LimitError>(())
/// ```
#[derive(Clone)]
pub struct FallbackService<V> {
    pub(crate) service: V,
}

impl<V> fmt::Debug for FallbackService<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FallbackService").finish_non_exhaustive()
    }
}

impl<Q, V> Fallback<Q, V::Response, V::Error> for FallbackService<V>
where
    V: Service<Q> + Clone,
{
    type Future = Asking<V, Q>;

    const HAS_SERVICE: bool = true;

    fn call(self, request: Q) -> Result<Self::Future, Q> {
        Ok(Asking::Ready { service: self.service, request: Some(request) })
    }
}

pin_project! {
    /// Waits until a service is ready, and calls it once.
    #[doc(hidden)]
    #[project = AskingProjection]
    pub enum Asking<V, Q>
    where
        V: Service<Q>,
    {
        Ready { service: V, request: Option<Q> },
        Called { #[pin] future: V::Future },
    }
}

impl<V: Service<Q>, Q> Future for Asking<V, Q> {
    type Output = Result<V::Response, V::Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            let future = match self.as_mut().project() {
                AskingProjection::Ready { service, request } => {
                    ready!(service.poll_ready(context))?;
                    let request = request.take().expect("it is called once");
                    service.call(request)
                }
                AskingProjection::Called { future } => return future.poll(context),
            };
            self.set(Self::Called { future });
        }
    }
}

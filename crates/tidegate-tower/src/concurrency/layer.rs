//! The layer that limits requests in flight, and its builder methods.

use super::limit::ConcurrencyLimit;
use crate::admission::LimitedService;
use crate::key::Key;
use crate::limit::{Limit, LimitError};
use crate::response::fallback::{FallbackService, NoFallback};
use crate::response::jitter::Jitter;
use crate::response::policy::{address_methods, observe_method, response_methods};
use http::StatusCode;
use std::sync::Arc;
use std::time::Duration;
use tidegate::{Clock, Span, SystemClock};
use tower_layer::Layer;

/// Limits how many requests are in flight, for each key or for all together. A request is in flight until the body of its
/// response has ended. The response of an upgraded connection (101: a WebSocket) has no body, so its permit is released as soon
/// as it is sent: to limit such connections, take a permit of a `Limiter` where they are served.
///
/// ```
/// use axum::{Router, routing::get};
/// use std::time::Duration;
/// use tidegate_tower::ConcurrencyLayer;
///
/// let app: Router = Router::new()
///     .route("/report", get(|| async { "long" }))
///     .layer(ConcurrencyLayer::for_all("concurrency 100")?.wait(Duration::from_millis(200)));
/// # Ok::<(), tidegate_tower::LimitError>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "a layer does nothing until it is around a service"]
pub struct ConcurrencyLayer<C: Clock = SystemClock, F = NoFallback> {
    shared: Arc<ConcurrencyLimit<C>>,
    fallback: F,
}

impl ConcurrencyLayer {
    /// Limits all requests together. A denied request gets status 503, since the client is not to blame.
    pub fn for_all(rule: &str) -> Result<Self, LimitError> {
        let layer = Self::new(Limit::new("in-flight", rule)?)?;
        Ok(layer.status(StatusCode::SERVICE_UNAVAILABLE))
    }

    /// Limits the requests of each client address.
    pub fn per_ip(rule: &str) -> Result<Self, LimitError> {
        Self::new(Limit::new("in-flight-per-ip", rule)?.key(Key::ip()))
    }
}

impl<C: Clock> ConcurrencyLayer<C> {
    /// Makes a layer of this limit, whose rule is a `concurrency`.
    pub fn new(limit: Limit<C>) -> Result<Self, LimitError> {
        Ok(Self { shared: Arc::new(ConcurrencyLimit::new(limit)?), fallback: NoFallback })
    }
}

impl<C: Clock, F> ConcurrencyLayer<C, F> {
    /// Lets requests wait at most this long for a permit, in the order of arrival. Default: as long as the rule says, and not at
    /// all if it does not say so.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tidegate_tower::ConcurrencyLayer;
    /// let layer = ConcurrencyLayer::for_all("concurrency 10")?.wait(Duration::from_millis(500));
    /// // The same, in the rule.
    /// let layer = ConcurrencyLayer::for_all("concurrency 10 wait 500ms")?;
    /// # Ok::<(), tidegate_tower::LimitError>(())
    /// ```
    pub fn wait(self, max_wait: Duration) -> Self {
        self.with(|shared| shared.max_wait = Span::from_duration_floor(max_wait))
    }

    /// Adds a random span of at most `most` to `Retry-After`: see
    /// [`RateLimitLayer`](crate::RateLimitLayer::retry_jitter). Default: every denied client gets `Retry-After: 1`, since it is
    /// unknown when a permit will be released.
    pub fn retry_jitter(self, most: Duration) -> Self {
        self.with(|shared| shared.jitter = Jitter::new(Span::from_duration_floor(most)))
    }

    /// Passes denied requests to another service, which has a cheaper response. It finds [`Denied`](tidegate::Denied) in the
    /// extensions of the request, and its requests need no permit.
    pub fn fallback_service<V>(self, service: V) -> ConcurrencyLayer<C, FallbackService<V>> {
        ConcurrencyLayer { shared: self.shared, fallback: FallbackService { service } }
    }

    address_methods!(policy.address_source);
    response_methods!("429, and 503 for a layer made by [`for_all`](Self::for_all)");

    fn with(mut self, change: impl FnOnce(&mut ConcurrencyLimit<C>)) -> Self {
        change(Arc::make_mut(&mut self.shared));
        self
    }
}

impl<S, C: Clock, F: Clone> Layer<S> for ConcurrencyLayer<C, F> {
    type Service = LimitedService<S, ConcurrencyLimit<C>, F>;

    fn layer(&self, inner: S) -> Self::Service {
        LimitedService::new(inner, Arc::clone(&self.shared), self.fallback.clone())
    }
}

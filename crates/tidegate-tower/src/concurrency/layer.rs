//! How a layer of places in flight is told what to do.

use super::service::{Concurrency, InFlight};
use crate::fallback::{FallbackService, NoFallback};
use crate::jitter::Jitter;
use crate::key::Key;
use crate::limit::{Limit, LimitError};
use crate::response_policy::{address_methods, observe_method, response_methods};
use http::StatusCode;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tidegate::{Clock, Span, SystemClock};
use tower_layer::Layer;

/// Limits how many requests are in flight, for each key or for all together. A request is in flight until the body of
/// its response is done. A connection that is upgraded (101: a WebSocket) has a response without a body, and its place is free
/// as soon as that is sent: to count such connections, take a permit of a `Limiter` where they are served.
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
#[must_use = "a layer does nothing until it is around a service"]
pub struct ConcurrencyLayer<C: Clock = SystemClock, F = NoFallback> {
    shared: Arc<InFlight<C>>,
    fallback: F,
}

impl ConcurrencyLayer {
    /// Places for all requests together. Who finds none is answered with 503: it is not the client's doing.
    ///
    /// ```
    /// # use tidegate_tower::ConcurrencyLayer;
    /// let layer = ConcurrencyLayer::for_all("concurrency 100")?;
    /// assert!(ConcurrencyLayer::for_all("100/s").is_err());
    /// # Ok::<(), tidegate_tower::LimitError>(())
    /// ```
    pub fn for_all(rule: &str) -> Result<Self, LimitError> {
        let layer = Self::new(Limit::new("in-flight", rule)?)?;
        Ok(layer.status(StatusCode::SERVICE_UNAVAILABLE))
    }

    /// Places for each client address.
    ///
    /// ```
    /// # use tidegate_tower::ConcurrencyLayer;
    /// let layer = ConcurrencyLayer::per_ip("concurrency 10")?;
    /// # Ok::<(), tidegate_tower::LimitError>(())
    /// ```
    pub fn per_ip(rule: &str) -> Result<Self, LimitError> {
        Self::new(Limit::new("in-flight-per-ip", rule)?.key(Key::ip()))
    }
}

impl<C: Clock> ConcurrencyLayer<C> {
    /// Places under this limit, whose rule is a `concurrency`.
    ///
    /// ```
    /// # use tidegate_tower::{ConcurrencyLayer, Key, Limit};
    /// let user = Key::extension(|user: &u64| *user);
    /// let layer = ConcurrencyLayer::new(Limit::new("user", "concurrency 3")?.key(user))?;
    /// # Ok::<(), tidegate_tower::LimitError>(())
    /// ```
    pub fn new(limit: Limit<C>) -> Result<Self, LimitError> {
        Ok(Self { shared: Arc::new(InFlight::new(limit)?), fallback: NoFallback })
    }
}

impl<C: Clock, F> ConcurrencyLayer<C, F> {
    /// Lets requests wait so long for a place; not at all unless the rule or this says so. First come, first
    /// served.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tidegate_tower::ConcurrencyLayer;
    /// let layer = ConcurrencyLayer::for_all("concurrency 10")?.wait(Duration::from_millis(500));
    /// // The same, in the rule.
    /// let layer = ConcurrencyLayer::for_all("concurrency 10 wait 500ms")?;
    /// # Ok::<(), tidegate_tower::LimitError>(())
    /// ```
    pub fn wait(self, patience: Duration) -> Self {
        self.with(|shared| shared.patience = Span::from_duration_floor(patience))
    }

    /// Tells those who find no place to come back up to so much later than in a second, each at another time: see
    /// [`RateLimitLayer`](crate::RateLimitLayer::retry_jitter). Nobody knows when a place comes free, so unless told, all of them
    /// are told a second.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tidegate_tower::ConcurrencyLayer;
    /// let layer = ConcurrencyLayer::for_all("concurrency 9")?.retry_jitter(Duration::from_secs(10));
    /// # Ok::<(), tidegate_tower::LimitError>(())
    /// ```
    pub fn retry_jitter(self, most: Duration) -> Self {
        self.with(|shared| shared.jitter = Jitter::new(Span::from_duration_floor(most)))
    }

    /// Sends those who find no place to another service, which has something cheaper. It finds
    /// [`Denied`](tidegate::Denied) in the request's extensions, and what it has at work takes no place.
    ///
    /// ```
    /// # use axum::{Router, routing::get};
    /// # use tidegate_tower::ConcurrencyLayer;
    /// let cached: Router = Router::new().route("/report", get(|| async { "yesterday's report" }));
    /// let app: Router = Router::new()
    ///     .route("/report", get(|| async { "today's report" }))
    ///     .layer(ConcurrencyLayer::for_all("concurrency 100")?.fallback_service(cached));
    /// # Ok::<(), tidegate_tower::LimitError>(())
    /// ```
    pub fn fallback_service<V>(self, service: V) -> ConcurrencyLayer<C, FallbackService<V>> {
        ConcurrencyLayer { shared: self.shared, fallback: FallbackService { service } }
    }

    address_methods!(
        ConcurrencyLayer,
        r#"ConcurrencyLayer::per_ip("concurrency 9")?"#,
        policy.address_source
    );
    response_methods!(
        ConcurrencyLayer,
        r#"ConcurrencyLayer::per_ip("concurrency 9")?"#,
        "429 unless told, and 503 if it is [for all together](Self::for_all)"
    );

    fn with(mut self, change: impl FnOnce(&mut InFlight<C>)) -> Self {
        change(Arc::make_mut(&mut self.shared));
        self
    }
}

impl<S, C: Clock, F: Clone> Layer<S> for ConcurrencyLayer<C, F> {
    type Service = Concurrency<S, C, F>;

    fn layer(&self, inner: S) -> Self::Service {
        Concurrency::new(inner, Arc::clone(&self.shared), self.fallback.clone())
    }
}

impl<C: Clock, F: Clone> Clone for ConcurrencyLayer<C, F> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared), fallback: self.fallback.clone() }
    }
}

impl<C: Clock, F> fmt::Debug for ConcurrencyLayer<C, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConcurrencyLayer")
            .field("limit", &self.shared.limit)
            .finish_non_exhaustive()
    }
}

//! The layer that limits how often requests are made, and its builder methods.

use super::limit_set::LimitSet;
use crate::admission::LimitedService;
use crate::key::Key;
use crate::limit::{Limit, LimitError};
use crate::response::fallback::{FallbackService, NoFallback};
use crate::response::jitter::Jitter;
use crate::response::policy::{address_methods, observe_method, response_methods};
use std::sync::Arc;
use std::time::Duration;
use tidegate::{Clock, Span, SystemClock};
use tower_layer::Layer;

/// Limits how often requests are made, in axum, tonic, hyper and everything else that is made of tower.
///
/// All services that a layer makes, and all their clones, share its limits. A denial is a response; the errors of the inner
/// service are passed on unchanged.
///
/// ```
/// use axum::{Router, routing::get};
/// use tidegate_tower::RateLimitLayer;
///
/// let app: Router = Router::new()
///     .route("/", get(|| async { "hello" }))
///     .layer(RateLimitLayer::per_ip("100/s burst 20")?);
/// # Ok::<(), tidegate_tower::LimitError>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "a layer does nothing until it is around a service"]
pub struct RateLimitLayer<C: Clock = SystemClock, F = NoFallback> {
    set: Arc<LimitSet<C>>,
    fallback: F,
}

impl RateLimitLayer {
    /// Limits the requests of each client address: the peer's, or the one that
    /// [trusted proxies](Self::trusted_proxies) report.
    pub fn per_ip(rule: &str) -> Result<Self, LimitError> {
        Self::new(Limit::new("per-ip", rule)?.key(Key::ip()))
    }

    /// Limits all requests together.
    pub fn for_all(rule: &str) -> Result<Self, LimitError> {
        Self::new(Limit::new("all", rule)?)
    }
}

impl<C: Clock> RateLimitLayer<C> {
    /// Makes a layer of this limit.
    ///
    /// # Errors
    /// If the limit counts requests in flight.
    pub fn new(limit: Limit<C>) -> Result<Self, LimitError> {
        Ok(Self { set: Arc::new(LimitSet::new(limit.not_in_flight()?)), fallback: NoFallback })
    }
}

impl<C: Clock, F> RateLimitLayer<C, F> {
    /// Adds a limit. All limits of a layer are decided together: a request that one of them denies is charged by none.
    ///
    /// ```
    /// # use tidegate_tower::{Key, Limit, RateLimitLayer};
    /// let layer = RateLimitLayer::per_ip("100/s")?.and(Limit::new("site", "1000/s")?)?;
    /// # Ok::<(), tidegate_tower::LimitError>(())
    /// ```
    ///
    /// # Errors
    /// If the limit counts requests in flight.
    pub fn and(self, limit: Limit<C>) -> Result<Self, LimitError> {
        let limit = limit.not_in_flight()?;
        Ok(self.with(|set| set.limits.push(limit)))
    }

    /// Lets requests wait at most this long for their turn instead of denying them. A request that would wait longer is denied at
    /// once, and a request that is given up gives its turn back. One limit in memory serves requests in the order of arrival;
    /// with several limits, or one in Redis, a waiting request asks again after its retry time.
    pub fn wait(self, max_wait: Duration) -> Self {
        self.with(|set| set.max_wait = Span::from_duration_floor(max_wait))
    }

    /// Adds a random span of at most `most` to the retry time of each denial, so that clients that were denied together do not
    /// retry together. `Retry-After` has whole seconds, so a span of less than a few seconds has little effect.
    pub fn retry_jitter(self, most: Duration) -> Self {
        self.with(|set| set.jitter = Jitter::new(Span::from_duration_floor(most)))
    }

    /// Passes denied requests to another service, which has a cheaper response. It finds [`Denied`](tidegate::Denied) in the
    /// extensions of the request.
    ///
    /// ```
    /// # use axum::{Router, routing::get};
    /// # use tidegate_tower::RateLimitLayer;
    /// let cached: Router = Router::new().route("/", get(|| async { "yesterday's news" }));
    /// let app: Router = Router::new()
    ///     .route("/", get(|| async { "today's news" }))
    ///     .layer(RateLimitLayer::per_ip("10/s")?.fallback_service(cached));
    /// # Ok::<(), tidegate_tower::LimitError>(())
    /// ```
    pub fn fallback_service<V>(self, service: V) -> RateLimitLayer<C, FallbackService<V>> {
        RateLimitLayer { set: self.set, fallback: FallbackService { service } }
    }

    address_methods!(policy.address_source);
    response_methods!("429");

    fn with(mut self, change: impl FnOnce(&mut LimitSet<C>)) -> Self {
        change(Arc::make_mut(&mut self.set));
        self
    }
}

impl<S, C: Clock, F: Clone> Layer<S> for RateLimitLayer<C, F> {
    type Service = LimitedService<S, LimitSet<C>, F>;

    fn layer(&self, inner: S) -> Self::Service {
        LimitedService::new(inner, Arc::clone(&self.set), self.fallback.clone())
    }
}

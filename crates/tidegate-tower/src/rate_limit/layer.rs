//! How a layer of limits is told what to do.

use super::limit_set::LimitSet;
use super::service::RateLimit;
use crate::fallback::{FallbackService, NoFallback};
use crate::jitter::Jitter;
use crate::key::Key;
use crate::limit::{Limit, LimitError};
use crate::response_policy::{address_methods, observe_method, response_methods};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tidegate::{Clock, Span, SystemClock};
use tower_layer::Layer;

/// Limits how often: for axum, tonic, hyper and whatever else is made of tower.
///
/// All services that a layer makes, and all their clones, share its limits. The inner service's errors stay as they
/// are: a denial is a response.
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
#[must_use = "a layer does nothing until it is around a service"]
pub struct RateLimitLayer<C: Clock = SystemClock, F = NoFallback> {
    shared: Arc<LimitSet<C>>,
    fallback: F,
}

impl RateLimitLayer {
    /// One limit for each client address: the peer's, until there are
    /// [trusted proxies](Self::trusted_proxies).
    ///
    /// ```
    /// # use tidegate_tower::RateLimitLayer;
    /// let layer = RateLimitLayer::per_ip("100/s burst 20")?;
    /// assert!(RateLimitLayer::per_ip("100 a second").is_err());
    /// # Ok::<(), tidegate_tower::LimitError>(())
    /// ```
    pub fn per_ip(rule: &str) -> Result<Self, LimitError> {
        Self::new(Limit::new("per-ip", rule)?.key(Key::ip()))
    }

    /// One limit for all requests together.
    ///
    /// ```
    /// # use tidegate_tower::RateLimitLayer;
    /// let layer = RateLimitLayer::for_all("1000/s")?;
    /// # Ok::<(), tidegate_tower::LimitError>(())
    /// ```
    pub fn for_all(rule: &str) -> Result<Self, LimitError> {
        Self::new(Limit::new("all", rule)?)
    }
}

impl<C: Clock> RateLimitLayer<C> {
    /// A layer of this limit.
    ///
    /// ```
    /// # use tidegate_tower::{Key, Limit, RateLimitLayer};
    /// let layer = RateLimitLayer::new(Limit::new("api", "100/s")?.key(Key::ip()))?;
    /// # Ok::<(), tidegate_tower::LimitError>(())
    /// ```
    pub fn new(limit: Limit<C>) -> Result<Self, LimitError> {
        Ok(Self { shared: Arc::new(LimitSet::new(counting(limit)?)), fallback: NoFallback })
    }
}

impl<C: Clock, F> RateLimitLayer<C, F> {
    /// And this limit: all are decided as one, so that who is denied by one is not charged by another.
    ///
    /// ```
    /// # use tidegate_tower::{Key, Limit, RateLimitLayer};
    /// let layer = RateLimitLayer::per_ip("100/s")?.and(Limit::new("site", "1000/s")?)?;
    /// # Ok::<(), tidegate_tower::LimitError>(())
    /// ```
    pub fn and(self, limit: Limit<C>) -> Result<Self, LimitError> {
        let limit = counting(limit)?;
        Ok(self.with(|shared| shared.limits.push(limit)))
    }

    /// Lets requests wait so long for their turn, instead of refusing them. Who would wait longer is refused at
    /// once; who gives up gives the turn back. One limit serves in the order of arrival; several as one serve who
    /// asks at the right time.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tidegate_tower::RateLimitLayer;
    /// let layer = RateLimitLayer::per_ip("10/s")?.wait(Duration::from_millis(500));
    /// # Ok::<(), tidegate_tower::LimitError>(())
    /// ```
    pub fn wait(self, patience: Duration) -> Self {
        self.with(|shared| shared.patience = Span::from_duration_floor(patience))
    }

    /// Tells those who are denied to come back up to so much later than they could, each at another time, so that
    /// they do not come back together. Clients are told whole seconds: less than a few of them spreads nobody.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tidegate_tower::RateLimitLayer;
    /// let layer = RateLimitLayer::per_ip("100/min fixed")?.retry_jitter(Duration::from_secs(10));
    /// # Ok::<(), tidegate_tower::LimitError>(())
    /// ```
    pub fn retry_jitter(self, most: Duration) -> Self {
        self.with(|shared| shared.jitter = Jitter::new(Span::from_duration_floor(most)))
    }

    /// Sends those who are denied to another service, which has something cheaper. It finds
    /// [`Denied`](tidegate::Denied) in the request's extensions.
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
        RateLimitLayer { shared: self.shared, fallback: FallbackService { service } }
    }

    address_methods!(RateLimitLayer, r#"RateLimitLayer::per_ip("100/s")?"#, policy.address_source);
    response_methods!(RateLimitLayer, r#"RateLimitLayer::per_ip("100/s")?"#, "429 unless told");

    fn with(mut self, change: impl FnOnce(&mut LimitSet<C>)) -> Self {
        change(Arc::make_mut(&mut self.shared));
        self
    }
}

fn counting<C: Clock>(limit: Limit<C>) -> Result<Limit<C>, LimitError> {
    if limit.rule.is_concurrency() {
        let (name, rule) = (limit.name.to_string(), limit.rule.to_string());
        return Err(LimitError::InFlight { name, rule });
    }
    Ok(limit)
}

impl<S, C: Clock, F: Clone> Layer<S> for RateLimitLayer<C, F> {
    type Service = RateLimit<S, C, F>;

    fn layer(&self, inner: S) -> Self::Service {
        RateLimit::new(inner, Arc::clone(&self.shared), self.fallback.clone())
    }
}

impl<C: Clock, F: Clone> Clone for RateLimitLayer<C, F> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared), fallback: self.fallback.clone() }
    }
}

impl<C: Clock, F> fmt::Debug for RateLimitLayer<C, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimitLayer")
            .field("limits", &self.shared.limits)
            .finish_non_exhaustive()
    }
}

//! What layers by load have in common, and are told alike.

use super::Load;
use super::rejection::LoadRejection;
use super::service::LoadService;
use crate::head::{AddressSource, Head};
use crate::jitter::Jitter;
use crate::observer::{Event, Observer};
use crate::response_policy::address_methods;
use bytes::Bytes;
use http::{HeaderMap, Response, StatusCode};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tidegate::Span;
use tower_layer::Layer;

/// A layer that lets in what can be borne: a [`ShedLayer`](crate::ShedLayer) or an
/// [`AdaptiveLayer`](crate::AdaptiveLayer). Who is turned rejection is answered with 503, a problem of the type
/// `temporary-reduced-capacity` and `Retry-After`; for gRPC with the status `UNAVAILABLE`.
///
/// ```
/// use axum::{Router, routing::get};
/// use std::time::Duration;
/// use tidegate::load::Shedder;
/// use tidegate_tower::ShedLayer;
///
/// let shed = ShedLayer::new(Shedder::new()).retry_jitter(Duration::from_secs(10));
/// let app: Router = Router::new().route("/", get(|| async { "hello" })).layer(shed);
/// ```
#[must_use = "a layer does nothing until it is around a service"]
pub struct LoadLayer<L: Load> {
    pub(crate) load: L,
    settings: Arc<LoadSettings<L>>,
}

pub(crate) type Enter<L> = Arc<dyn Fn(&Head<'_>) -> <L as Load>::Entering + Send + Sync>;
pub(crate) type Answered<P> = Arc<dyn Fn(P, StatusCode, &HeaderMap) -> Option<P> + Send + Sync>;

/// What all clones of a layer's services share.
pub(crate) struct LoadSettings<L: Load> {
    /// Asks for a permit.
    pub(crate) enter: Enter<L>,
    /// Hears of the head of a response; what it gives back is held until the body is done.
    pub(crate) answered: Answered<L::Permit>,
    pub(super) rejection: LoadRejection<L::Refusal>,
    pub(crate) address_source: AddressSource,
    pub(crate) name: Arc<str>,
    pub(crate) observers: Vec<Arc<dyn Observer>>,
}

impl<L: Load> LoadSettings<L> {
    /// Tells the observers.
    pub(crate) fn observe(&self, entered: Result<&L::Permit, &L::Refusal>) {
        if self.observers.is_empty() {
            return;
        }
        let (decision, priority) = L::decision(entered);
        let (limit, is_shadow, cost, key) = (&*self.name, false, 1, None);
        let has_key = true;
        let event = Event { limit, decision, is_shadow, cost, key, has_key, priority };
        self.observers.iter().for_each(|observer| observer.decided(&event));
    }
}

impl<L: Load> LoadLayer<L> {
    pub(crate) fn over(load: L, enter: Enter<L>, answered: Answered<L::Permit>) -> Self {
        let settings = LoadSettings {
            enter,
            answered,
            rejection: LoadRejection::default(),
            address_source: AddressSource::default(),
            name: L::NAME.into(),
            observers: Vec::new(),
        };
        Self { load, settings: Arc::new(settings) }
    }

    /// What observers are told that it is called; `shed` and `adaptive` unless told.
    ///
    /// ```
    /// # use tidegate::load::{Adaptive, AdaptiveGate};
    /// # use tidegate_tower::{AdaptiveLayer, Event};
    /// let database = AdaptiveLayer::new(AdaptiveGate::new(Adaptive::vegas()))
    ///     .name("database")
    ///     .observe(|event: &Event<'_>| assert_eq!(event.limit, "database"));
    /// ```
    pub fn name(self, name: impl Into<Arc<str>>) -> Self {
        let name = name.into();
        self.with(|settings| settings.name = name)
    }

    /// Tells this one of everybody who is let in or turned rejection. A `ShedLayer` tells the
    /// [priority](crate::Event::priority) and no numbers; an `AdaptiveLayer` tells the limit of that moment and what
    /// was left of it. Who gives up while waiting is not heard of.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use std::sync::atomic::{AtomicU64, Ordering};
    /// use tidegate::load::{Priority, Shedder};
    /// use tidegate_tower::{Event, ShedLayer};
    /// use tower::{Layer, ServiceExt};
    ///
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// let shed = Arc::new(AtomicU64::new(0));
    /// let counter = Arc::clone(&shed);
    /// let shedder = Shedder::builder().in_flight_max(0).build();
    /// let layer = ShedLayer::new(shedder).observe(move |event: &Event<'_>| {
    ///     if event.decision.is_deny() && event.priority == Some(Priority::Normal) {
    ///         counter.fetch_add(1, Ordering::Relaxed);
    ///     }
    /// });
    /// let service = layer.layer(axum::Router::<()>::new());
    /// service.oneshot(http::Request::new(axum::body::Body::empty())).await?;
    /// assert_eq!(shed.load(Ordering::Relaxed), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
    /// ```
    pub fn observe(self, observer: impl Observer) -> Self {
        self.with(|settings| settings.observers.push(Arc::new(observer)))
    }

    /// After how long those who are turned rejection are told to come back; a second unless told. Clients are told whole
    /// seconds, rounded up and never 0.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tidegate::load::Shedder;
    /// # use tidegate_tower::ShedLayer;
    /// let layer = ShedLayer::new(Shedder::new()).retry_after(Duration::from_secs(5));
    /// ```
    pub fn retry_after(self, after: Duration) -> Self {
        self.with(|settings| settings.rejection.retry_after = Span::from(after))
    }

    /// Tells them to come back up to so much later, each at another time: see
    /// [`RateLimitLayer`](crate::RateLimitLayer::retry_jitter).
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tidegate::load::Shedder;
    /// # use tidegate_tower::ShedLayer;
    /// let layer = ShedLayer::new(Shedder::new()).retry_jitter(Duration::from_secs(10));
    /// ```
    pub fn retry_jitter(self, most: Duration) -> Self {
        self.with(|settings| {
            settings.rejection.jitter = Jitter::new(Span::from_duration_floor(most))
        })
    }

    /// Answers those who are turned rejection with this, instead of a problem. `Retry-After` is added.
    ///
    /// ```
    /// # use http::Response;
    /// # use tidegate::load::Shedder;
    /// # use tidegate_tower::ShedLayer;
    /// let layer = ShedLayer::new(Shedder::new())
    ///     .fallback(|_, shed| Response::new(format!("yesterday's news, because {shed}")));
    /// ```
    pub fn fallback<T: Into<Bytes>>(
        self,
        fallback: impl Fn(&Head<'_>, &L::Refusal) -> Response<T> + Send + Sync + 'static,
    ) -> Self {
        let make_rejection =
            move |head: &Head<'_>, refusal: &L::Refusal| fallback(head, refusal).map(Into::into);
        self.with(|settings| settings.rejection.make_rejection = Some(Arc::new(make_rejection)))
    }

    address_methods!(ShedLayer, "ShedLayer::new(tidegate::load::Shedder::new())", address_source);

    pub(crate) fn with(mut self, change: impl FnOnce(&mut LoadSettings<L>)) -> Self {
        change(Arc::make_mut(&mut self.settings));
        self
    }
}

impl<S, L: Load> Layer<S> for LoadLayer<L> {
    type Service = LoadService<S, L>;

    fn layer(&self, inner: S) -> Self::Service {
        LoadService::new(inner, Arc::clone(&self.settings))
    }
}

impl<L: Load> Clone for LoadLayer<L> {
    fn clone(&self) -> Self {
        Self { load: self.load.clone(), settings: Arc::clone(&self.settings) }
    }
}

impl<L: Load> fmt::Debug for LoadLayer<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoadLayer").field("load", &self.load).finish_non_exhaustive()
    }
}

impl<L: Load> Clone for LoadSettings<L> {
    fn clone(&self) -> Self {
        Self {
            enter: Arc::clone(&self.enter),
            answered: Arc::clone(&self.answered),
            rejection: self.rejection.clone(),
            address_source: self.address_source.clone(),
            name: Arc::clone(&self.name),
            observers: self.observers.clone(),
        }
    }
}

//! The layer that limits requests by load, and its builder methods.

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

/// A layer that limits requests by load: a [`ShedLayer`](crate::ShedLayer) or an [`AdaptiveLayer`](crate::AdaptiveLayer). A
/// rejected request gets status 503, a problem document of the type `temporary-reduced-capacity` and `Retry-After`; a gRPC call
/// gets the status `UNAVAILABLE`.
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
    /// Is called with the permit and the head of the response. A permit that it returns is held until the body has ended.
    pub(crate) answered: Answered<L::Permit>,
    pub(super) rejection: LoadRejection<L::Refusal>,
    pub(crate) address_source: AddressSource,
    pub(crate) name: Arc<str>,
    pub(crate) observers: Vec<Arc<dyn Observer>>,
}

impl<L: Load> LoadSettings<L> {
    /// Calls the observers.
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

    /// Sets the name of the layer in [events](crate::Event::limit). Default: `shed` or `adaptive`.
    pub fn name(self, name: impl Into<Arc<str>>) -> Self {
        let name = name.into();
        self.with(|settings| settings.name = name)
    }

    /// Calls this with every decision. The events of a `ShedLayer` have the [priority](crate::Event::priority) and no numbers;
    /// those of an `AdaptiveLayer` have the current limit and what is left of it. A request that is given up while it waits is not
    /// reported.
    pub fn observe(self, observer: impl Observer) -> Self {
        self.with(|settings| settings.observers.push(Arc::new(observer)))
    }

    /// Sets `Retry-After` of rejected requests, which is rounded up to whole seconds and never 0. Default: 1 second.
    pub fn retry_after(self, after: Duration) -> Self {
        self.with(|settings| settings.rejection.retry_after = Span::from(after))
    }

    /// Adds a random span of at most `most` to `Retry-After`: see [`RateLimitLayer`](crate::RateLimitLayer::retry_jitter).
    pub fn retry_jitter(self, most: Duration) -> Self {
        self.with(|settings| {
            settings.rejection.jitter = Jitter::new(Span::from_duration_floor(most));
        })
    }

    /// Responds to rejected requests with this instead of a problem document. `Retry-After` is added to it.
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

    address_methods!(address_source);

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

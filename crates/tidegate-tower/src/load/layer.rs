//! The layer that limits requests by load, and its builder methods.

use super::settings::{Enter, Load, LoadSettings, OnResponse};
use crate::admission::LimitedService;
use crate::head::Head;
use crate::observer::Observer;
use crate::response::fallback::NoFallback;
use crate::response::jitter::Jitter;
use crate::response::policy::address_methods;
use bytes::Bytes;
use http::Response;
use std::sync::Arc;
use std::time::Duration;
use tidegate::Span;
use tower_layer::Layer;

/// A layer that limits requests by load: a [`ShedLayer`](crate::ShedLayer) or an [`AdaptiveLayer`](crate::AdaptiveLayer). A
/// rejected request gets status 503, a problem document of the type `temporary-reduced-capacity` and `Retry-After`; a gRPC call
/// gets the status `UNAVAILABLE`.
#[derive(Clone, Debug)]
#[must_use = "a layer does nothing until it is around a service"]
pub struct LoadLayer<L: Load> {
    pub(super) load: L,
    settings: Arc<LoadSettings<L>>,
}

impl<L: Load> LoadLayer<L> {
    pub(super) fn over(load: L, enter: Enter<L>, on_response: OnResponse<L>) -> Self {
        let settings = LoadSettings::new(enter, on_response);
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
        self.with(|settings| settings.retry_after = Span::from(after))
    }

    /// Adds a random span of at most `most` to `Retry-After`: see [`RateLimitLayer`](crate::RateLimitLayer::retry_jitter).
    pub fn retry_jitter(self, most: Duration) -> Self {
        self.with(|settings| settings.jitter = Jitter::new(Span::from_duration_floor(most)))
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
        self.with(|settings| settings.make_rejection = Some(Arc::new(make_rejection)))
    }

    address_methods!(address_source);

    pub(super) fn with(mut self, change: impl FnOnce(&mut LoadSettings<L>)) -> Self {
        change(Arc::make_mut(&mut self.settings));
        self
    }
}

impl<S, L: Load> Layer<S> for LoadLayer<L> {
    type Service = LimitedService<S, LoadSettings<L>>;

    fn layer(&self, inner: S) -> Self::Service {
        LimitedService::new(inner, Arc::clone(&self.settings), NoFallback)
    }
}

//! What layers by load have in common, and are told alike.

use super::Load;
use super::away::Away;
use super::passage::Loaded;
use crate::head::Head;
use crate::jitter::Jitter;
use bytes::Bytes;
use http::{HeaderMap, Response, StatusCode};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tidegate::Span;
use tower_layer::Layer;

/// A layer that lets in what can be borne: a [`ShedLayer`](crate::ShedLayer) or an
/// [`AdaptiveLayer`](crate::AdaptiveLayer). Who is turned away is answered with 503, a problem of the type
/// `temporary-reduced-capacity` and `Retry-After`; for gRPC with the status `UNAVAILABLE`.
///
/// ```
/// use axum::{Router, routing::get};
/// use std::time::Duration;
/// use tidegate::Shedder;
/// use tidegate_tower::ShedLayer;
///
/// let shed = ShedLayer::new(Shedder::new()).retry_jitter(Duration::from_secs(10));
/// let app: Router = Router::new().route("/", get(|| async { "hello" })).layer(shed);
/// ```
#[must_use = "a layer does nothing until it is around a service"]
pub struct LoadLayer<L: Load> {
    pub(super) load: L,
    shared: Arc<Shared<L>>,
}

pub(super) type Enter<L> = Arc<dyn Fn(&Head<'_>) -> <L as Load>::Entering + Send + Sync>;
pub(super) type Answered<P> = Arc<dyn Fn(P, StatusCode, &HeaderMap) -> Option<P> + Send + Sync>;

/// What all clones of a layer's services share.
pub(super) struct Shared<L: Load> {
    /// Asks for a permit.
    pub(super) enter: Enter<L>,
    /// Hears of the head of a response; what it gives back is held until the body is done.
    pub(super) answered: Answered<L::Permit>,
    pub(super) away: Away<L::Refusal>,
}

impl<L: Load> LoadLayer<L> {
    pub(super) fn over(load: L, enter: Enter<L>, answered: Answered<L::Permit>) -> Self {
        Self { load, shared: Arc::new(Shared { enter, answered, away: Away::default() }) }
    }

    /// After how long those who are turned away are told to come back; a second unless told. Clients are told whole
    /// seconds, rounded up and never 0.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tidegate::Shedder;
    /// # use tidegate_tower::ShedLayer;
    /// let layer = ShedLayer::new(Shedder::new()).retry_after(Duration::from_secs(5));
    /// ```
    pub fn retry_after(self, after: Duration) -> Self {
        self.with(|shared| shared.away.retry_after = Span::from(after))
    }

    /// Tells them to come back up to so much later, each at another time: see
    /// [`RateLimitLayer`](crate::RateLimitLayer::retry_jitter).
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tidegate::Shedder;
    /// # use tidegate_tower::ShedLayer;
    /// let layer = ShedLayer::new(Shedder::new()).retry_jitter(Duration::from_secs(10));
    /// ```
    pub fn retry_jitter(self, most: Duration) -> Self {
        self.with(|shared| shared.away.jitter = Jitter::new(Span::from_duration_floor(most)))
    }

    /// Answers those who are turned away with this, instead of a problem. `Retry-After` is added.
    ///
    /// ```
    /// # use http::Response;
    /// # use tidegate::Shedder;
    /// # use tidegate_tower::ShedLayer;
    /// let layer = ShedLayer::new(Shedder::new())
    ///     .fallback(|_, shed| Response::new(format!("yesterday's news, because {shed}")));
    /// ```
    pub fn fallback<T: Into<Bytes>>(
        self,
        fallback: impl Fn(&Head<'_>, &L::Refusal) -> Response<T> + Send + Sync + 'static,
    ) -> Self {
        let maker =
            move |head: &Head<'_>, refusal: &L::Refusal| fallback(head, refusal).map(Into::into);
        self.with(|shared| shared.away.maker = Some(Arc::new(maker)))
    }

    pub(super) fn with(mut self, change: impl FnOnce(&mut Shared<L>)) -> Self {
        change(Arc::make_mut(&mut self.shared));
        self
    }
}

impl<S, L: Load> Layer<S> for LoadLayer<L> {
    type Service = Loaded<S, L>;

    fn layer(&self, inner: S) -> Self::Service {
        Loaded::new(inner, Arc::clone(&self.shared))
    }
}

impl<L: Load> Clone for LoadLayer<L> {
    fn clone(&self) -> Self {
        Self { load: self.load.clone(), shared: Arc::clone(&self.shared) }
    }
}

impl<L: Load> fmt::Debug for LoadLayer<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoadLayer").field("load", &self.load).finish_non_exhaustive()
    }
}

impl<L: Load> Clone for Shared<L> {
    fn clone(&self) -> Self {
        let (enter, answered) = (Arc::clone(&self.enter), Arc::clone(&self.answered));
        Self { enter, answered, away: self.away.clone() }
    }
}

//! The layer that finds out how many requests in flight the service behind it can handle.

use super::layer::LoadLayer;
use super::settings::{Enter, Load, OnResponse};
use crate::response::body::BodyGuard;
use http::{HeaderMap, StatusCode};
use std::sync::Arc;
use std::time::Duration;
use tidegate::load::{AdaptiveAcquire, AdaptiveGate, AdaptivePermit, Priority};
use tidegate::{Clock, Decision, Denied, Span, SystemClock};

/// Limits the requests in flight to what the service behind the layer can handle, which it finds out from how long the service
/// takes to respond.
///
/// A request is in flight until the head of its response is there. The body is not counted: its duration often depends on how
/// fast the client reads, and slow clients would look like a slow service. If sending bodies is the main work, add a
/// [`ConcurrencyLayer`](crate::ConcurrencyLayer).
///
/// ```
/// use axum::{Router, routing::get};
/// use std::time::Duration;
/// use tidegate::load::{Adaptive, AdaptiveGate};
/// use tidegate_tower::AdaptiveLayer;
///
/// let gate = AdaptiveGate::new(Adaptive::vegas().between(4..=400));
/// let app: Router = Router::new()
///     .route("/", get(|| async { "hello" }))
///     .layer(AdaptiveLayer::new(gate).wait(Duration::from_millis(100)));
/// ```
pub type AdaptiveLayer<C = SystemClock> = LoadLayer<AdaptiveGate<C>>;

/// What a response says about the load of its service.
///
/// ```
/// use tidegate_tower::LoadSignal;
///
/// assert_eq!(LoadSignal::of(http::StatusCode::OK, &http::HeaderMap::new()), LoadSignal::Served);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LoadSignal {
    /// The request was served: its duration counts.
    Served,
    /// The service lacked capacity or exceeded a deadline: the limit is reduced.
    Overload,
    /// The response says nothing about load.
    Ignore,
}

impl LoadSignal {
    /// Classifies a response by default: 429, 503 and 504 are an overload, and so are gRPC's `RESOURCE_EXHAUSTED`, `UNAVAILABLE`
    /// and `DEADLINE_EXCEEDED` if they are in the head. All other requests were served.
    pub fn of(status: StatusCode, headers: &HeaderMap) -> Self {
        let grpc = headers.get("grpc-status").map(http::HeaderValue::as_bytes);
        match (status.as_u16(), grpc) {
            (429 | 503 | 504, _) | (_, Some(b"8" | b"14" | b"4")) => Self::Overload,
            _ => Self::Served,
        }
    }
}

impl<C: Clock> Load for AdaptiveGate<C> {
    type Permit = AdaptivePermit<C>;
    type Refusal = Denied;
    type Entering = AdaptiveAcquire<C>;

    const NAME: &'static str = "adaptive";

    fn decision(entered: Result<&AdaptivePermit<C>, &Denied>) -> (Decision, Option<Priority>) {
        (entered.map_or_else(|denied| denied.decision, AdaptivePermit::decision), None)
    }
}

impl<C: Clock> BodyGuard for AdaptivePermit<C> {}

impl<C: Clock> LoadLayer<AdaptiveGate<C>> {
    /// Makes a layer that is limited by this gate. A request over the limit is rejected at once, and responses count as
    /// [`LoadSignal::of`] says. An error of the service, a panic, and a request that its client gives up say nothing about load.
    pub fn new(gate: AdaptiveGate<C>) -> Self {
        let enter = enter(gate.clone(), Span::ZERO);
        Self::over(gate, enter, on_response(LoadSignal::of))
    }

    /// Lets requests wait at most this long, in the order of arrival. The wait is not part of the measured duration.
    pub fn wait(self, max_wait: Duration) -> Self {
        let enter = enter(self.load.clone(), Span::from_duration_floor(max_wait));
        self.with(|settings| settings.enter = enter)
    }

    /// Sets how responses are classified.
    ///
    /// ```
    /// # use tidegate::load::{Adaptive, AdaptiveGate};
    /// # use tidegate_tower::{AdaptiveLayer, LoadSignal};
    /// let gate = AdaptiveGate::new(Adaptive::vegas());
    /// // A response 404 is too fast to say anything about load.
    /// let layer = AdaptiveLayer::new(gate).classify(|status, headers| match status.as_u16() {
    ///     404 => LoadSignal::Ignore,
    ///     _ => LoadSignal::of(status, headers),
    /// });
    /// ```
    pub fn classify(
        self,
        classify: impl Fn(StatusCode, &HeaderMap) -> LoadSignal + Send + Sync + 'static,
    ) -> Self {
        self.with(|settings| settings.on_response = on_response(classify))
    }
}

fn enter<C: Clock>(gate: AdaptiveGate<C>, max_wait: Span) -> Enter<AdaptiveGate<C>> {
    Arc::new(move |_| gate.acquire_within(max_wait))
}

fn on_response<C: Clock>(
    classify: impl Fn(StatusCode, &HeaderMap) -> LoadSignal + Send + Sync + 'static,
) -> OnResponse<AdaptiveGate<C>> {
    Arc::new(move |permit, status, headers| {
        match classify(status, headers) {
            LoadSignal::Served => permit.succeed(),
            LoadSignal::Overload => permit.overload(),
            LoadSignal::Ignore => drop(permit),
        }
        None
    })
}

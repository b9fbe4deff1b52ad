//! The layer that finds out how many requests the service behind it can bear.

use crate::load::Load;
use crate::load::{Answered, Enter, LoadLayer};
use http::{HeaderMap, StatusCode};
use std::sync::Arc;
use std::time::Duration;
use tidegate::load::{AdaptiveAcquire, AdaptiveGate, AdaptivePermit, Priority};
use tidegate::{Clock, Decision, Denied, Span, SystemClock};

/// Lets as many requests be in flight as the service behind it can bear, and finds that out from how long it takes to
/// answer.
///
/// A request is in flight until the head of its response is there, and how long that takes is what the gate goes by.
/// The body is not part of it: how long that flows is often up to the client, who may read slowly, and a gate that
/// counted it would take slow clients for a slow service. Where bodies are the work, put a
/// [`ConcurrencyLayer`](crate::ConcurrencyLayer) around it as well.
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

/// What a response says about the load of the service.
///
/// ```
/// use tidegate_tower::LoadSignal;
///
/// assert_eq!(LoadSignal::of(http::StatusCode::OK, &http::HeaderMap::new()), LoadSignal::Served);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LoadSignal {
    /// It was served: how long that took counts.
    Served,
    /// The service refused it for lack of capacity, or was too late: the limit comes down.
    Overload,
    /// Nothing.
    Ignore,
}

impl LoadSignal {
    /// What is made of a response unless told: 429, 503 and 504 are an overload, and so are gRPC's
    /// `RESOURCE_EXHAUSTED`, `UNAVAILABLE` and `DEADLINE_EXCEEDED` where they come in the head; all others were
    /// served.
    ///
    /// ```
    /// # use http::{HeaderMap, StatusCode};
    /// # use tidegate_tower::LoadSignal;
    /// let none = HeaderMap::new();
    /// assert_eq!(LoadSignal::of(StatusCode::SERVICE_UNAVAILABLE, &none), LoadSignal::Overload);
    /// assert_eq!(LoadSignal::of(StatusCode::NOT_FOUND, &none), LoadSignal::Served);
    /// ```
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

impl<C: Clock> LoadLayer<AdaptiveGate<C>> {
    /// A layer that asks this gate. Who finds no room is refused at once, and responses count as
    /// [`LoadSignal::of`] says. An error of the service, a panic and a request that is given up say nothing about load.
    ///
    /// ```
    /// # use tidegate::load::{Adaptive, AdaptiveGate};
    /// # use tidegate_tower::AdaptiveLayer;
    /// let gate = AdaptiveGate::new(Adaptive::vegas());
    /// let layer = AdaptiveLayer::new(gate.clone());
    /// // Clones of a gate are the same: this one tells what it has found.
    /// assert_eq!(gate.limit(), 20);
    /// ```
    pub fn new(gate: AdaptiveGate<C>) -> Self {
        let enter = enter(gate.clone(), Span::ZERO);
        Self::over(gate, enter, answered(LoadSignal::of))
    }

    /// Lets requests wait so long for room. First come, first served. The wait is no part of what is measured.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tidegate::load::{Adaptive, AdaptiveGate};
    /// # use tidegate_tower::AdaptiveLayer;
    /// let gate = AdaptiveGate::new(Adaptive::vegas());
    /// let layer = AdaptiveLayer::new(gate).wait(Duration::from_millis(100));
    /// ```
    pub fn wait(self, patience: Duration) -> Self {
        let enter = enter(self.load.clone(), Span::from_duration_floor(patience));
        self.with(|settings| settings.enter = enter)
    }

    /// What a response says about load, by its status and fields.
    ///
    /// ```
    /// # use tidegate::load::{Adaptive, AdaptiveGate};
    /// # use tidegate_tower::{AdaptiveLayer, LoadSignal};
    /// let gate = AdaptiveGate::new(Adaptive::vegas());
    /// // What is not found is found out too quickly to tell anything.
    /// let layer = AdaptiveLayer::new(gate).classify(|status, headers| match status.as_u16() {
    ///     404 => LoadSignal::Ignore,
    ///     _ => LoadSignal::of(status, headers),
    /// });
    /// ```
    pub fn classify(
        self,
        classify: impl Fn(StatusCode, &HeaderMap) -> LoadSignal + Send + Sync + 'static,
    ) -> Self {
        self.with(|settings| settings.answered = answered(classify))
    }
}

fn enter<C: Clock>(gate: AdaptiveGate<C>, patience: Span) -> Enter<AdaptiveGate<C>> {
    Arc::new(move |_| gate.acquire_within(patience))
}

fn answered<C: Clock>(
    classify: impl Fn(StatusCode, &HeaderMap) -> LoadSignal + Send + Sync + 'static,
) -> Answered<AdaptivePermit<C>> {
    Arc::new(move |permit, status, headers| {
        match classify(status, headers) {
            LoadSignal::Served => permit.succeed(),
            LoadSignal::Overload => permit.overload(),
            LoadSignal::Ignore => drop(permit),
        }
        None
    })
}

//! Limits for outgoing calls: any request, any client that is a tower service.
//!
//! Always   A call waits for its turn at most as long as its layer allows, and a call that is given up gives its turn back. Under
//!          a `concurrency` rule it holds its permit until the client has responded.

use crate::key::KeyBytes;
use crate::limit::LimitError;
use crate::observer::{Event, Observer};
use crate::response::policy::observe_method;
use pin_project_lite::pin_project;
use std::fmt::{self, Display};
use std::io::Write;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tidegate::{Acquire, Clock, Decision, Denied, Limiter, Permit, SystemClock, Verdict};
use tower_layer::Layer;
use tower_service::Service;

/// Limits outgoing calls: each waits for its turn up to a deadline, and fails if the turn would come later.
///
/// The requests may have any type: reqwest's, hyper's, or your own.
///
/// ```
/// use std::time::Duration;
/// use tidegate_tower::OutgoingLayer;
/// use tower::{ServiceBuilder, ServiceExt, service_fn};
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// let client = service_fn(|url: &'static str| async move { Ok::<_, std::io::Error>(url.len()) });
/// // The server allows 10 requests a second. For a limit per host: `OutgoingLayer::by(…)`.
/// let limit = OutgoingLayer::new("10/s burst 1", Duration::from_secs(1))?;
/// let client = ServiceBuilder::new().layer(limit).service(client);
/// assert_eq!(client.oneshot("http://a.example/").await?, 17);
/// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
/// ```
#[derive(Clone, Debug)]
#[must_use = "a layer does nothing until it is around a client"]
pub struct OutgoingLayer<K = Unkeyed, C: Clock = SystemClock> {
    limit: OutgoingLimit<K, C>,
}

#[derive(Clone)]
struct OutgoingLimit<K, C: Clock> {
    limiter: Limiter<C>,
    key: K,
    max_wait: Duration,
    observers: Vec<Arc<dyn Observer>>,
}

impl<K, C: Clock> OutgoingLimit<K, C> {
    fn new(limiter: Limiter<C>, key: K, max_wait: Duration) -> Self {
        Self { limiter, key, max_wait, observers: Vec::new() }
    }
}

impl<K, C: Clock> fmt::Debug for OutgoingLimit<K, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OutgoingLimit")
            .field("limiter", &self.limiter)
            .field("max_wait", &self.max_wait)
            .finish_non_exhaustive()
    }
}

/// The name of the limit in events.
const NAME: &str = "outgoing";

/// The key that a call is counted by: [`Unkeyed`] or [`Keyed`].
pub trait CallKey<Q>: sealed::Sealed {
    #[doc(hidden)]
    fn put(&self, request: &Q, out: &mut dyn Write);
}

mod sealed {
    #[doc(hidden)]
    pub trait Sealed {}
    impl Sealed for super::Unkeyed {}
    impl<K> Sealed for super::Keyed<K> {}
}

/// Counts all calls together.
#[derive(Clone, Copy, Debug)]
pub struct Unkeyed;

impl<Q> CallKey<Q> for Unkeyed {
    fn put(&self, _: &Q, _: &mut dyn Write) {}
}

/// Counts calls by the result of a function.
#[derive(Clone, Copy)]
pub struct Keyed<K>(K);

impl<K> fmt::Debug for Keyed<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Keyed(…)")
    }
}

impl<Q, V: Display, K: Fn(&Q) -> V> CallKey<Q> for Keyed<K> {
    fn put(&self, request: &Q, out: &mut dyn Write) {
        // Calls whose key cannot be formatted share one key.
        let _ = write!(out, "{}", self.0(request));
    }
}

/// Why a call was not made, or has failed.
///
/// ```
/// use tidegate_tower::OutgoingError;
///
/// fn is_by_the_limit(error: &OutgoingError<std::io::Error>) -> bool {
///     matches!(error, OutgoingError::Denied(_))
/// }
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OutgoingError<E> {
    /// Its turn would come too late. The call was not made, and nothing was charged.
    #[error("the call was not made")]
    Denied(#[source] Denied),
    /// The call was made, and failed.
    #[error(transparent)]
    Failed(E),
}

impl OutgoingLayer {
    /// Counts all calls together. A call waits at most `max_wait` for its turn; a call that would wait longer fails at once.
    pub fn new(rule: &str, max_wait: Duration) -> Result<Self, LimitError> {
        Ok(Self::over(limiter(rule)?, max_wait))
    }
}

impl<K> OutgoingLayer<Keyed<K>> {
    /// Counts calls by the result of `key`, such as the host.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tidegate_tower::OutgoingLayer;
    /// let layer = OutgoingLayer::by("10/s", Duration::from_secs(1), |request: &http::Request<()>| {
    ///     request.uri().host().unwrap_or_default().to_owned()
    /// })?;
    /// # Ok::<(), tidegate_tower::LimitError>(())
    /// ```
    pub fn by<Q, V: Display>(rule: &str, max_wait: Duration, key: K) -> Result<Self, LimitError>
    where
        K: Fn(&Q) -> V,
    {
        Ok(Self { limit: OutgoingLimit::new(limiter(rule)?, Keyed(key), max_wait) })
    }
}

impl<C: Clock> OutgoingLayer<Unkeyed, C> {
    /// Counts all calls together, by an existing limiter.
    pub fn over(limiter: Limiter<C>, max_wait: Duration) -> Self {
        Self { limit: OutgoingLimit::new(limiter, Unkeyed, max_wait) }
    }
}

impl<K, C: Clock> OutgoingLayer<K, C> {
    observe_method!(
        "Calls this with the decision about every call; the limit is called `outgoing`. A call that is given up while it waits is not reported.",
        observers
    );

    fn with(mut self, change: impl FnOnce(&mut OutgoingLimit<K, C>)) -> Self {
        change(&mut self.limit);
        self
    }
}

fn limiter(rule: &str) -> Result<Limiter, LimitError> {
    let rule = rule.parse().map_err(|source| LimitError::bad(NAME, source))?;
    Ok(Limiter::new(rule))
}

impl<S, K: Clone, C: Clock> Layer<S> for OutgoingLayer<K, C> {
    type Service = Outgoing<S, K, C>;

    fn layer(&self, inner: S) -> Self::Service {
        Outgoing { inner, limit: Arc::new(self.limit.clone()) }
    }
}

/// A client whose calls are limited; made by [`OutgoingLayer`].
#[derive(Clone, Debug)]
pub struct Outgoing<S, K = Unkeyed, C: Clock = SystemClock> {
    inner: S,
    limit: Arc<OutgoingLimit<K, C>>,
}

impl<S, Q, K, C> Service<Q> for Outgoing<S, K, C>
where
    S: Service<Q> + Clone,
    K: CallKey<Q>,
    C: Clock,
{
    type Response = S::Response;
    type Error = OutgoingError<S::Error>;
    type Future = OutgoingFuture<S, Q, C>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(context).map_err(OutgoingError::Failed)
    }

    fn call(&mut self, request: Q) -> Self::Future {
        let OutgoingLimit { limiter, key, max_wait, observers } = &*self.limit;
        let mut key_bytes = KeyBytes::new();
        key.put(&request, &mut key_bytes);
        let acquire = limiter.request(&key_bytes[..]).within(*max_wait).acquire();
        let clone = self.inner.clone();
        let ready = std::mem::replace(&mut self.inner, clone);
        let pending = Some((ready, request));
        let observed = (!observers.is_empty())
            .then(|| Box::new(ObservedCall { observers: observers.clone(), key: key_bytes }));
        OutgoingFuture { stage: Stage::Waiting { acquire, pending, observed } }
    }
}

pin_project! {
    /// A call that waits for its turn, and is then made.
    pub struct OutgoingFuture<S, Q, C>
    where
        S: Service<Q>,
        C: Clock,
    {
        #[pin]
        stage: Stage<S, Q, C>,
    }
}

pin_project! {
    #[project = StageProjection]
    enum Stage<S, Q, C>
    where
        S: Service<Q>,
        C: Clock,
    {
        Waiting {
            acquire: Acquire<C>,
            pending: Option<(S, Q)>,
            // In a box, so that calls without observers are smaller.
            observed: Option<Box<ObservedCall>>,
        },
        /// The permit is released when the client has responded, and when this future is dropped.
        Calling { #[pin] future: S::Future, permit: Option<Permit<C>> },
    }
}

/// The observers of a call, and its key.
struct ObservedCall {
    observers: Vec<Arc<dyn Observer>>,
    key: KeyBytes,
}

impl ObservedCall {
    fn observe(&self, mut decision: Decision) {
        // A call whose decision is not a denial has waited for its turn.
        if !decision.is_deny() {
            decision.verdict = Verdict::Allow;
        }
        for observer in &self.observers {
            observer.decided(&Event {
                limit: NAME,
                decision,
                is_shadow: false,
                cost: 1,
                key: observer.wants_keys().then_some(&self.key[..]),
                has_key: true,
                priority: None,
            });
        }
    }
}

impl<S: Service<Q>, Q, C: Clock> Future for OutgoingFuture<S, Q, C> {
    type Output = Result<S::Response, OutgoingError<S::Error>>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        loop {
            let next = match this.stage.as_mut().project() {
                StageProjection::Waiting { acquire, pending, observed } => {
                    let permit = ready!(Pin::new(acquire).poll(context));
                    if let Some(observed) = observed {
                        observed.observe(match &permit {
                            Ok(permit) => permit.decision(),
                            Err(denied) => denied.decision,
                        });
                    }
                    let permit = permit.map_err(OutgoingError::Denied)?;
                    let (mut service, request) = pending.take().expect("polled after it was ready");
                    Stage::Calling { future: service.call(request), permit: Some(permit) }
                }
                StageProjection::Calling { future, permit } => {
                    let result = ready!(future.poll(context));
                    *permit = None;
                    return Poll::Ready(result.map_err(OutgoingError::Failed));
                }
            };
            this.stage.set(next);
        }
    }
}

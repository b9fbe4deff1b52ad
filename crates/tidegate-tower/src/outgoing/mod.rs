//! Limits for calls that go out: any request, any client that is a tower service.
//!
//! Always   A call waits for its turn no longer than it was told, and who gives up gives the turn back. Under a
//!          `concurrency` rule its place is held until the client has answered.

use crate::key::KeyBytes;
use crate::limit::LimitError;
use crate::observer::{Event, Observer};
use crate::response_policy::observe_method;
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

/// Limits calls that go out: each waits for its turn, up to a deadline, and fails if that would be too late.
///
/// It does not care what a request is: reqwest's, hyper's, or your own.
///
/// ```
/// use std::time::Duration;
/// use tidegate_tower::OutgoingLayer;
/// use tower::{ServiceBuilder, ServiceExt, service_fn};
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// let client = service_fn(|url: &'static str| async move { Ok::<_, std::io::Error>(url.len()) });
/// // The far side lets us ask 10 times a second. For each host: `OutgoingLayer::by(…)`.
/// let polite = OutgoingLayer::new("10/s burst 1", Duration::from_secs(1))?;
/// let client = ServiceBuilder::new().layer(polite).service(client);
/// assert_eq!(client.oneshot("http://a.example/").await?, 17);
/// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
/// ```
#[must_use = "a layer does nothing until it is around a client"]
pub struct OutgoingLayer<K = Unkeyed, C: Clock = SystemClock> {
    terms: Terms<K, C>,
}

#[derive(Clone)]
struct Terms<K, C: Clock> {
    limiter: Limiter<C>,
    key: K,
    patience: Duration,
    observers: Vec<Arc<dyn Observer>>,
}

impl<K, C: Clock> Terms<K, C> {
    fn new(limiter: Limiter<C>, key: K, patience: Duration) -> Self {
        Self { limiter, key, patience, observers: Vec::new() }
    }
}

/// What observers are told that such a limit is called.
const NAME: &str = "outgoing";

/// CallKey a call is counted for.
///
/// ```
/// use tidegate_tower::CallKey;
///
/// fn takes(whom: impl CallKey<String>) {}
/// takes(tidegate_tower::Unkeyed);
/// ```
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

/// All calls are counted together.
///
/// ```
/// use tidegate_tower::{OutgoingLayer, Unkeyed};
/// # use std::time::Duration;
/// let layer: OutgoingLayer<Unkeyed> = OutgoingLayer::new("10/s", Duration::ZERO)?;
/// # Ok::<(), tidegate_tower::LimitError>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Unkeyed;

impl<Q> CallKey<Q> for Unkeyed {
    fn put(&self, _: &Q, _: &mut dyn Write) {}
}

/// Calls are counted by what a function says.
///
/// ```
/// use tidegate_tower::OutgoingLayer;
/// # use std::time::Duration;
/// let layer = OutgoingLayer::by("10/s", Duration::from_secs(1), |url: &&str| url.len())?;
/// # Ok::<(), tidegate_tower::LimitError>(())
/// ```
#[derive(Clone, Copy)]
pub struct Keyed<K>(K);

impl<K> fmt::Debug for Keyed<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Keyed(…)")
    }
}

impl<Q, V: Display, K: Fn(&Q) -> V> CallKey<Q> for Keyed<K> {
    fn put(&self, request: &Q, out: &mut dyn Write) {
        // Who cannot say what it is, is counted with all others who cannot.
        let _ = write!(out, "{}", self.0(request));
    }
}

/// Why a call has not been made, or has failed.
///
/// ```
/// use tidegate_tower::OutgoingError;
///
/// fn is_ours(error: &OutgoingError<std::io::Error>) -> bool {
///     matches!(error, OutgoingError::Denied(_))
/// }
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OutgoingError<E> {
    /// Its turn would come too late. It has not been made, and cost nothing.
    #[error("the call was not made")]
    Denied(#[source] Denied),
    /// It was made, and failed.
    #[error(transparent)]
    Failed(E),
}

impl OutgoingLayer {
    /// Counts all calls together. A call waits at most `patience` for its turn; one that would wait longer fails at
    /// once.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tidegate_tower::OutgoingLayer;
    /// let layer = OutgoingLayer::new("10/s", Duration::from_secs(1))?;
    /// # Ok::<(), tidegate_tower::LimitError>(())
    /// ```
    pub fn new(rule: &str, patience: Duration) -> Result<Self, LimitError> {
        Ok(Self::over(limiter(rule)?, patience))
    }
}

impl<K> OutgoingLayer<Keyed<K>> {
    /// Counts calls by what `key` says of them, such as the host.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tidegate_tower::OutgoingLayer;
    /// let layer = OutgoingLayer::by("10/s", Duration::from_secs(1), |request: &http::Request<()>| {
    ///     request.uri().host().unwrap_or_default().to_owned()
    /// })?;
    /// # Ok::<(), tidegate_tower::LimitError>(())
    /// ```
    pub fn by<Q, V: Display>(rule: &str, patience: Duration, key: K) -> Result<Self, LimitError>
    where
        K: Fn(&Q) -> V,
    {
        Ok(Self { terms: Terms::new(limiter(rule)?, Keyed(key), patience) })
    }
}

impl<C: Clock> OutgoingLayer<Unkeyed, C> {
    /// The same over a limiter that you have made.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tidegate_tower::OutgoingLayer;
    /// let limiter = tidegate::Limiter::new("concurrency 5".parse()?);
    /// let layer = OutgoingLayer::over(limiter, Duration::from_secs(1));
    /// # Ok::<(), tidegate::RuleError>(())
    /// ```
    pub fn over(limiter: Limiter<C>, patience: Duration) -> Self {
        Self { terms: Terms::new(limiter, Unkeyed, patience) }
    }
}

impl<K, C: Clock> OutgoingLayer<K, C> {
    observe_method!(
        OutgoingLayer,
        r#"OutgoingLayer::new("10/s", std::time::Duration::from_secs(1))?"#,
        "Tells this one of every call that is made or not, when that is known; the limit is called `outgoing`. Who gives up while waiting is not heard of.",
        observers
    );

    fn with(mut self, change: impl FnOnce(&mut Terms<K, C>)) -> Self {
        change(&mut self.terms);
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
        Outgoing { inner, terms: Arc::new(self.terms.clone()) }
    }
}

impl<K: Clone, C: Clock> Clone for OutgoingLayer<K, C> {
    fn clone(&self) -> Self {
        Self { terms: self.terms.clone() }
    }
}

impl<K, C: Clock> fmt::Debug for OutgoingLayer<K, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OutgoingLayer")
            .field("limiter", &self.terms.limiter)
            .field("patience", &self.terms.patience)
            .finish_non_exhaustive()
    }
}

/// A client that is called only so often; made by [`OutgoingLayer`].
///
/// ```
/// use tidegate_tower::{Outgoing, OutgoingLayer};
/// # use std::time::Duration;
/// # use tower_layer::Layer;
/// let client: Outgoing<&str> = OutgoingLayer::new("10/s", Duration::ZERO)?.layer("a client");
/// # Ok::<(), tidegate_tower::LimitError>(())
/// ```
pub struct Outgoing<S, K = Unkeyed, C: Clock = SystemClock> {
    inner: S,
    terms: Arc<Terms<K, C>>,
}

impl<S: Clone, K, C: Clock> Clone for Outgoing<S, K, C> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), terms: Arc::clone(&self.terms) }
    }
}

impl<S, K, C: Clock> fmt::Debug for Outgoing<S, K, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outgoing").field("limiter", &self.terms.limiter).finish_non_exhaustive()
    }
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
        let Terms { limiter, key, patience, observers } = &*self.terms;
        let mut short = KeyBytes::new();
        key.put(&request, &mut short);
        let acquire = limiter.request(&short[..]).within(*patience).acquire();
        let clone = self.inner.clone();
        let ready = std::mem::replace(&mut self.inner, clone);
        let pending = Some((ready, request));
        let hearing = (!observers.is_empty())
            .then(|| Box::new(Hearing { observers: observers.clone(), key: short }));
        OutgoingFuture { stage: Stage::Waiting { acquire, pending, hearing } }
    }
}

pin_project! {
    /// A call that waits for its turn, and is then made.
    ///
    /// ```
    /// use tidegate_tower::OutgoingLayer;
    /// use tower::{Layer, Service, service_fn};
    /// # use std::time::Duration;
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
    /// let echo = service_fn(|text: String| async move { Ok::<_, std::convert::Infallible>(text) });
    /// let mut client = OutgoingLayer::new("1/h", Duration::from_secs(1))?.layer(echo);
    /// assert_eq!(client.call("first".to_owned()).await?, "first");
    /// let denied = client.call("second".to_owned()).await.unwrap_err();
    /// assert_eq!(denied.to_string(), "the call was not made");
    /// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
    /// ```
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
            // In a box, so that who is not heard of has less to carry.
            hearing: Option<Box<Hearing>>,
        },
        /// Its place is free when the client has answered, whatever becomes of this future.
        Calling { #[pin] future: S::Future, permit: Option<Permit<C>> },
    }
}

/// Who hears what becomes of a call, and whose it is.
struct Hearing {
    observers: Vec<Arc<dyn Observer>>,
    key: KeyBytes,
}

impl Hearing {
    fn tell(&self, mut decision: Decision) {
        // The turn has come.
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
                StageProjection::Waiting { acquire, pending, hearing } => {
                    let permit = ready!(Pin::new(acquire).poll(context));
                    if let Some(hearing) = hearing {
                        hearing.tell(match &permit {
                            Ok(permit) => permit.decision(),
                            Err(denied) => denied.decision,
                        });
                    }
                    let permit = permit.map_err(OutgoingError::Denied)?;
                    let (mut service, request) = pending.take().expect("polled after it was ready");
                    Stage::Calling { future: service.call(request), permit: Some(permit) }
                }
                StageProjection::Calling { future, permit } => {
                    let answer = ready!(future.poll(context));
                    *permit = None;
                    return Poll::Ready(answer.map_err(OutgoingError::Failed));
                }
            };
            this.stage.set(next);
        }
    }
}

//! Bodies that flow only so fast, on their way in and on their way out.

use super::body::ThrottledBody;
use crate::head::Head;
use crate::key::{Key, KeyBytes, KeyLookup, PendingKey};
use crate::limit::{Limit, LimitError, OnMissing};
use crate::limited_body::LimitedBody;
use crate::response_policy::{ResponsePolicy, address_methods, observe_method};
use bytes::Bytes;
use http::{Request, Response};
use pin_project_lite::pin_project;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tidegate::{Clock, Limiter, SystemClock};
use tower_layer::Layer;
use tower_service::Service;

/// What all clones of a layer's services share.
#[derive(Clone)]
struct Shared<C: Clock> {
    limit: Limit<C>,
    limiter: Limiter<C>,
    policy: ResponsePolicy,
}

/// Whose bytes these are.
enum Whose {
    Nobody,
    Key(KeyBytes),
    Later(PendingKey),
}

impl<C: Clock> Shared<C> {
    fn new(limit: Limit<C>, layer: &'static str) -> Result<Self, LimitError> {
        let limit = limit.done_at_once(layer)?;
        if limit.is_shadow() {
            // A body that is let flow as it likes says nothing of when it would have.
            return Err(LimitError::unsuited(&limit.name, "shadow", layer));
        }
        let name = || limit.name.to_string();
        if limit.rule.is_concurrency() {
            let rule = limit.rule.to_string();
            return Err(LimitError::InFlight { name: name(), rule });
        }
        let Some(limiter) = limit.store.memory().cloned() else {
            return Err(LimitError::Shared { name: name() });
        };
        Ok(Self { limit, limiter, policy: ResponsePolicy::default() })
    }

    /// Whose bytes, or the answer to who cannot be counted.
    fn whose<B>(&self, request: &Request<B>) -> Result<Whose, Box<Response<Bytes>>> {
        let head = Head::with_source(request, &self.policy.address_source);
        if !self.limit.counts(&head) {
            return Ok(Whose::Nobody);
        }
        match self.limit.key_of(&head) {
            KeyLookup::Key(key) => Ok(Whose::Key(key)),
            KeyLookup::Pending => Ok(Whose::Later(self.limit.later_key_of(&head))),
            KeyLookup::Missing(missing) => match self.limit.without_key(missing) {
                Some(OnMissing::Shared) => Ok(Whose::Key(KeyBytes::new())),
                Some(OnMissing::Allow) => Ok(Whose::Nobody),
                _ => Err(Box::new(self.policy.without_key(&head, &self.limit, missing))),
            },
        }
    }

    fn paced<B>(&self, body: B, whose: Whose) -> ThrottledBody<B, C> {
        match whose {
            Whose::Nobody => ThrottledBody::unpaced(body),
            Whose::Key(key) => ThrottledBody::keyed(body, self.limiter.clone(), key),
            Whose::Later(key) => ThrottledBody::keyed_later(body, self.limiter.clone(), key),
        }
    }
}

macro_rules! pace_layer {
    ($layer:ident, $service:ident, $what:literal, $rule:literal) => {
        #[doc = concat!("Lets the bodies of ", $what, " flow only so fast, in bytes.")]
        ///
        /// ```
        #[doc = concat!("use tidegate_tower::", stringify!($layer), ";")]
        ///
        #[doc = concat!("let layer = ", stringify!($layer), "::per_ip(\"", $rule, "\")?;")]
        /// # Ok::<(), tidegate_tower::LimitError>(())
        /// ```
        #[must_use = "a layer does nothing until it is around a service"]
        pub struct $layer<C: Clock = SystemClock> {
            shared: Arc<Shared<C>>,
        }

        impl $layer {
            /// So many bytes for each client address.
            ///
            /// ```
            #[doc = concat!("# use tidegate_tower::", stringify!($layer), ";")]
            #[doc = concat!("let layer = ", stringify!($layer), "::per_ip(\"", $rule, "\")?;")]
            /// # Ok::<(), tidegate_tower::LimitError>(())
            /// ```
            pub fn per_ip(rule: &str) -> Result<Self, LimitError> {
                Self::new(Limit::new("bytes-per-ip", rule)?.key(Key::ip()))
            }

            /// So many bytes for all together.
            ///
            /// ```
            #[doc = concat!("# use tidegate_tower::", stringify!($layer), ";")]
            #[doc = concat!("let layer = ", stringify!($layer), "::for_all(\"", $rule, "\")?;")]
            /// # Ok::<(), tidegate_tower::LimitError>(())
            /// ```
            pub fn for_all(rule: &str) -> Result<Self, LimitError> {
                Self::new(Limit::new("bytes", rule)?)
            }
        }

        impl<C: Clock> $layer<C> {
            /// As many bytes as this limit admits. Its costs do not count here: a byte costs 1. A limit in the shadow is
            /// refused, and so is one that gives back or charges when the response is known.
            ///
            /// ```
            #[doc = concat!("# use tidegate_tower::{Key, Limit, ", stringify!($layer), "};")]
            #[doc = concat!("let limit = Limit::new(\"bytes\", \"", $rule, "\")?.key(Key::host());")]
            #[doc = concat!("let layer = ", stringify!($layer), "::new(limit)?;")]
            /// # Ok::<(), tidegate_tower::LimitError>(())
            /// ```
            pub fn new(limit: Limit<C>) -> Result<Self, LimitError> {
                Ok(Self { shared: Arc::new(Shared::new(limit, stringify!($layer))?) })
            }

            address_methods!(
                $layer,
                concat!(stringify!($layer), "::per_ip(\"", $rule, "\")?"),
                policy.address_source
            );
            observe_method!(
                $layer,
                concat!(stringify!($layer), "::per_ip(\"", $rule, "\")?"),
                "Tells this one of who is refused because there is nobody to count. Nobody else is: bodies wait.",
                policy.observers
            );

            fn with(mut self, change: impl FnOnce(&mut Shared<C>)) -> Self {
                change(Arc::make_mut(&mut self.shared));
                self
            }
        }

        impl<S, C: Clock> Layer<S> for $layer<C> {
            type Service = $service<S, C>;

            fn layer(&self, inner: S) -> Self::Service {
                $service { inner, shared: Arc::clone(&self.shared) }
            }
        }

        impl<C: Clock> Clone for $layer<C> {
            fn clone(&self) -> Self {
                Self { shared: Arc::clone(&self.shared) }
            }
        }

        impl<C: Clock> fmt::Debug for $layer<C> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($layer))
                    .field("limit", &self.shared.limit)
                    .finish_non_exhaustive()
            }
        }

        #[doc = concat!("A service behind a [`", stringify!($layer), "`].")]
        ///
        /// ```
        #[doc = concat!("use tidegate_tower::{", stringify!($layer), ", ", stringify!($service), "};")]
        /// use tower_layer::Layer;
        ///
        #[doc = concat!("let slow: ", stringify!($service), "<axum::Router> =")]
        #[doc = concat!("    ", stringify!($layer), "::for_all(\"", $rule, "\")?.layer(axum::Router::new());")]
        /// # Ok::<(), tidegate_tower::LimitError>(())
        /// ```
        #[derive(Clone)]
        pub struct $service<S, C: Clock = SystemClock> {
            inner: S,
            shared: Arc<Shared<C>>,
        }

        impl<S, C: Clock> fmt::Debug for $service<S, C> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($service))
                    .field("limit", &self.shared.limit)
                    .finish_non_exhaustive()
            }
        }
    };
}

pace_layer!(UploadRateLayer, UploadRate, "requests", "1000000/s burst 65536");
pace_layer!(DownloadRateLayer, DownloadRate, "responses", "5000000/s burst 65536");

impl<S, B, R, C> Service<Request<B>> for UploadRate<S, C>
where
    S: Service<Request<ThrottledBody<B, C>>, Response = Response<R>>,
    C: Clock,
{
    type Response = Response<ThrottledBody<LimitedBody<R>, C>>;
    type Error = S::Error;
    type Future = BodyRateFuture<S::Future, C>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let shared = Arc::clone(&self.shared);
        match shared.whose(&request) {
            Ok(whose) => {
                let request = request.map(|body| shared.paced(body, whose));
                let (future, whose) = (self.inner.call(request), Some(Whose::Nobody));
                BodyRateFuture { stage: Stage::Calling { future, whose }, shared }
            }
            Err(response) => {
                BodyRateFuture { stage: Stage::Refused { response: Some(*response) }, shared }
            }
        }
    }
}

impl<S, B, R, C> Service<Request<B>> for DownloadRate<S, C>
where
    S: Service<Request<B>, Response = Response<R>>,
    C: Clock,
{
    type Response = Response<ThrottledBody<LimitedBody<R>, C>>;
    type Error = S::Error;
    type Future = BodyRateFuture<S::Future, C>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let shared = Arc::clone(&self.shared);
        match shared.whose(&request) {
            Ok(whose) => {
                let (future, whose) = (self.inner.call(request), Some(whose));
                BodyRateFuture { stage: Stage::Calling { future, whose }, shared }
            }
            Err(response) => {
                BodyRateFuture { stage: Stage::Refused { response: Some(*response) }, shared }
            }
        }
    }
}

pin_project! {
    /// The answer of a service whose bodies flow only so fast, to come.
    ///
    /// ```
    /// use tidegate_tower::DownloadRateLayer;
    /// use tower::{Layer, ServiceExt};
    ///
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// let slow = DownloadRateLayer::for_all("1000000/s")?.layer(axum::Router::<()>::new());
    /// let response = slow.oneshot(http::Request::new(axum::body::Body::empty())).await?;
    /// assert_eq!(response.status(), 404);
    /// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
    /// ```
    pub struct BodyRateFuture<T, C: Clock> {
        #[pin]
        stage: Stage<T>,
        shared: Arc<Shared<C>>,
    }
}

pin_project! {
    #[project = StageProjection]
    enum Stage<T> {
        Calling { #[pin] future: T, whose: Option<Whose> },
        Refused { response: Option<Response<Bytes>> },
    }
}

impl<T, R, E, C> Future for BodyRateFuture<T, C>
where
    T: Future<Output = Result<Response<R>, E>>,
    C: Clock,
{
    type Output = Result<Response<ThrottledBody<LimitedBody<R>, C>>, E>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        const TWICE: &str = "polled after it was ready";
        let this = self.project();
        Poll::Ready(match this.stage.project() {
            StageProjection::Calling { future, whose } => {
                let result = ready!(future.poll(context));
                let whose = whose.take().expect(TWICE);
                result.map(|response| {
                    response.map(|body| this.shared.paced(LimitedBody::theirs(body), whose))
                })
            }
            StageProjection::Refused { response } => {
                let response = response.take().expect(TWICE);
                Ok(response.map(|bytes| ThrottledBody::unpaced(LimitedBody::ours(bytes))))
            }
        })
    }
}

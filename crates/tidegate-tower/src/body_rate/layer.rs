//! The layers that limit the bytes of request and response bodies per second.

use super::body::ThrottledBody;
use crate::head::Head;
use crate::key::Key;
use crate::limit::{Limit, LimitError, RequestKey};
use crate::response::body::LimitedBody;
use crate::response::policy::{ResponsePolicy, address_methods, observe_method};
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
struct ByteRate<C: Clock> {
    limit: Limit<C>,
    limiter: Limiter<C>,
    policy: ResponsePolicy,
}

impl<C: Clock> ByteRate<C> {
    fn new(limit: Limit<C>, layer: &'static str) -> Result<Self, LimitError> {
        let limit = limit.without_after_response(layer)?.not_in_flight()?;
        if limit.is_shadow() {
            // An unlimited body does not show when its bytes would have been admitted.
            return Err(LimitError::unsuited(&limit.name, "shadow", layer));
        }
        let limiter = limit.limiter_in_memory()?;
        Ok(Self { limit, limiter, policy: ResponsePolicy::default() })
    }

    fn throttled<B>(&self, body: B, key: RequestKey) -> ThrottledBody<B, C> {
        match key {
            RequestKey::Uncounted => ThrottledBody::unlimited(body),
            RequestKey::Key(key) => ThrottledBody::keyed(body, self.limiter.clone(), key),
            RequestKey::Pending(key) => ThrottledBody::keyed_later(body, self.limiter.clone(), key),
        }
    }
}

impl<C: Clock> fmt::Debug for ByteRate<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ByteRate").field("limit", &self.limit).finish_non_exhaustive()
    }
}

macro_rules! byte_rate_layer {
    ($layer:ident, $service:ident, $what:literal, $rule:literal) => {
        #[doc = concat!("Limits the bytes per second of the bodies of ", $what, ".")]
        ///
        /// ```
        #[doc = concat!("use tidegate_tower::", stringify!($layer), ";")]
        ///
        #[doc = concat!("let layer = ", stringify!($layer), "::per_ip(\"", $rule, "\")?;")]
        /// # Ok::<(), tidegate_tower::LimitError>(())
        /// ```
        #[derive(Clone, Debug)]
        #[must_use = "a layer does nothing until it is around a service"]
        pub struct $layer<C: Clock = SystemClock> {
            shared: Arc<ByteRate<C>>,
        }

        impl $layer {
            /// Limits the bytes of each client address.
            pub fn per_ip(rule: &str) -> Result<Self, LimitError> {
                Self::new(Limit::new("bytes-per-ip", rule)?.key(Key::ip()))
            }

            /// Limits the bytes of all clients together.
            pub fn for_all(rule: &str) -> Result<Self, LimitError> {
                Self::new(Limit::new("bytes", rule)?)
            }
        }

        impl<C: Clock> $layer<C> {
            /// Makes a layer of this limit. A byte costs 1, and the limit's own cost is ignored.
            ///
            /// # Errors
            /// If the limit is in shadow mode or in Redis, counts requests in flight, or looks at the response.
            pub fn new(limit: Limit<C>) -> Result<Self, LimitError> {
                Ok(Self { shared: Arc::new(ByteRate::new(limit, stringify!($layer))?) })
            }

            address_methods!(policy.address_source);
            observe_method!(
                "Calls this with every request that is rejected because it has no key. No other request is rejected: bodies wait.",
                policy.observers
            );

            fn with(mut self, change: impl FnOnce(&mut ByteRate<C>)) -> Self {
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

        #[doc = concat!("A service behind a [`", stringify!($layer), "`](crate::", stringify!($layer), ").")]
        #[derive(Clone, Debug)]
        pub struct $service<S, C: Clock = SystemClock> {
            inner: S,
            shared: Arc<ByteRate<C>>,
        }
    };
}

byte_rate_layer!(UploadRateLayer, UploadRate, "requests", "1000000/s burst 65536");
byte_rate_layer!(DownloadRateLayer, DownloadRate, "responses", "5000000/s burst 65536");

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
        let Self { inner, shared } = self;
        BodyRateFuture::new(shared, request, |request, key| {
            let request = request.map(|body| shared.throttled(body, key));
            (inner.call(request), RequestKey::Uncounted)
        })
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
        let Self { inner, shared } = self;
        BodyRateFuture::new(shared, request, |request, key| (inner.call(request), key))
    }
}

pin_project! {
    /// The future of a response of a service whose bodies are limited.
    pub struct BodyRateFuture<T, C: Clock> {
        #[pin]
        stage: Stage<T>,
        shared: Arc<ByteRate<C>>,
    }
}

pin_project! {
    #[project = StageProjection]
    enum Stage<T> {
        Calling { #[pin] future: T, key: Option<RequestKey> },
        Rejected { response: Option<Response<Bytes>> },
    }
}

impl<T, C: Clock> BodyRateFuture<T, C> {
    /// Finds the key of a request, and calls the service with it. `call` returns the service's future, and the key for the
    /// body of its response.
    fn new<B>(
        shared: &Arc<ByteRate<C>>,
        request: Request<B>,
        call: impl FnOnce(Request<B>, RequestKey) -> (T, RequestKey),
    ) -> Self {
        let head = Head::with_source(&request, &shared.policy.address_source);
        let stage = if let Ok(key) = shared.limit.request_key(&head) {
            let (future, key) = call(request, key);
            Stage::Calling { future, key: Some(key) }
        } else {
            let response = shared.policy.without_key(&head, &shared.limit);
            Stage::Rejected { response: Some(response) }
        };
        Self { stage, shared: Arc::clone(shared) }
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
            StageProjection::Calling { future, key } => {
                let result = ready!(future.poll(context));
                let key = key.take().expect(TWICE);
                result.map(|response| {
                    response.map(|body| this.shared.throttled(LimitedBody::of_service(body), key))
                })
            }
            StageProjection::Rejected { response } => {
                let response = response.take().expect(TWICE);
                Ok(response.map(|bytes| ThrottledBody::unlimited(LimitedBody::of_rejection(bytes))))
            }
        })
    }
}

//! How a layer responds and which observers it calls, whatever it limits, and the builder methods that layers share.
//!
//! The builder methods are macros and not a trait: a program needs no import to set up a layer, and each layer documents all its
//! methods.

use crate::head::{AddressSource, Head};
use crate::limit::Limit;
use crate::observer::{Event, Observer};
use crate::response::rejection::{self, Denial, MakeRejection};
use bytes::Bytes;
use http::{Response, StatusCode};
use std::sync::Arc;
use tidegate::{Clock, Decision, Retry, Verdict};
use tidegate_http::{HeaderStyle, LimitStatus, PreparedFields};

#[derive(Clone)]
pub(crate) struct ResponsePolicy {
    pub(crate) address_source: AddressSource,
    pub(crate) style: Option<HeaderStyle>,
    pub(crate) status: StatusCode,
    pub(crate) make_rejection: Option<MakeRejection>,
    pub(crate) observers: Vec<Arc<dyn Observer>>,
}

impl Default for ResponsePolicy {
    fn default() -> Self {
        Self {
            address_source: AddressSource::default(),
            style: Some(HeaderStyle::default()),
            status: StatusCode::TOO_MANY_REQUESTS,
            make_rejection: None,
            observers: Vec::new(),
        }
    }
}

impl ResponsePolicy {
    /// Calls the observers. A request that is rejected because it has no key has no `key`.
    #[inline]
    pub(crate) fn observe<C: Clock>(
        &self,
        limit: &Limit<C>,
        decision: Decision,
        key: Option<&[u8]>,
        cost: u64,
    ) {
        for observer in &self.observers {
            observer.decided(&Event {
                limit: &limit.name,
                decision,
                is_shadow: limit.is_shadow(),
                cost,
                key: key.filter(|_| observer.wants_keys()),
                has_key: key.is_some(),
                priority: None,
            });
        }
    }

    /// Returns the response to a denied request, without the header fields of the limits.
    pub(crate) fn denied(
        &self,
        head: &Head<'_>,
        statuses: &[LimitStatus<'_>],
        decision: Decision,
    ) -> Response<Bytes> {
        match &self.make_rejection {
            Some(make) => make(head, &Denial::new(statuses, decision)),
            None => rejection::denied(head, self.status, statuses, decision),
        }
    }

    /// Returns the response to a request without a key, and calls the observers.
    pub(crate) fn without_key<C: Clock>(
        &self,
        head: &Head<'_>,
        limit: &Limit<C>,
    ) -> Response<Bytes> {
        let denied = Decision::without_state(Verdict::Deny(Retry::Never));
        self.observe(limit, denied, None, limit.cost_of(head));
        // Without `on_missing`, a request is rejected only because the server does not provide its address.
        if limit.on_missing.is_some() {
            let key = format!("{:?}", limit.key);
            return rejection::without_key(head, self.status, &limit.name, &key);
        }
        #[cfg(feature = "tracing")]
        tracing::error!(target: "tidegate", "limit `{}` {}", limit.name, rejection::NO_PEER);
        rejection::without_peer(head, &limit.name)
    }

    /// Returns the header fields of these limits and their joint decision.
    pub(crate) fn fields(&self, statuses: &[LimitStatus<'_>], joint: &Decision) -> PreparedFields {
        let mut fields = PreparedFields::default();
        if let Some(style) = self.style {
            style.write(&mut fields, statuses, joint);
        }
        fields
    }
}

/// The methods for finding the client's address. `$within` is the path from what `with` changes to its `AddressSource`.
macro_rules! address_methods {
    ($($within:ident).+) => {
        /// Sets the proxies whose `X-Forwarded-For` or `Forwarded` is believed. The chain of addresses is walked from the right,
        /// and the first address that is not a trusted proxy is the client. Default: no proxy is trusted, since a trusted proxy
        /// can claim to forward for any client.
        pub fn trusted_proxies(self, proxies: impl IntoIterator<Item = ipnet::IpNet>) -> Self {
            let proxies = proxies.into_iter().collect();
            self.with(|shared| shared.$($within).+.trusted_proxies = proxies)
        }

        /// Sets which header of [trusted proxies](Self::trusted_proxies) is believed: the one that they write. Default:
        /// [either](crate::ProxyHeader::Either).
        pub fn proxy_header(self, header: tidegate_http::ProxyHeader) -> Self {
            self.with(|shared| shared.$($within).+.proxy_header = header)
        }

        /// Sets how to find the peer's address, if it is neither in [`Peer`](crate::Peer) nor in axum's `ConnectInfo`.
        ///
        /// ```
        /// # use tidegate_tower::RateLimitLayer;
        /// use tonic::transport::server::TcpConnectInfo;
        ///
        /// let layer = RateLimitLayer::per_ip("100/s")?.peer(|extensions| {
        ///     extensions.get::<TcpConnectInfo>()?.remote_addr().map(|address| address.ip())
        /// });
        /// # Ok::<(), tidegate_tower::LimitError>(())
        /// ```
        pub fn peer(
            self,
            peer: impl Fn(&http::Extensions) -> Option<std::net::IpAddr> + Send + Sync + 'static,
        ) -> Self {
            self.with(|shared| shared.$($within).+.peer = Some(std::sync::Arc::new(peer)))
        }
    };
}

/// The methods for the response, for layers with a [`ResponsePolicy`] called `policy`. `$status` is the default status.
macro_rules! response_methods {
    ($status:literal) => {
        /// Sets which header fields report what is left. Default: those of draft 11.
        pub fn headers(self, style: tidegate_http::HeaderStyle) -> Self {
            self.with(|shared| shared.policy.style = Some(style))
        }

        /// Omits all header fields, so that a client learns only that it is denied.
        pub fn no_headers(self) -> Self {
            self.with(|shared| shared.policy.style = None)
        }

        #[doc = concat!("Sets the status of a denial. Default: ", $status, ".")]
        pub fn status(self, status: http::StatusCode) -> Self {
            self.with(|shared| shared.policy.status = status)
        }

        /// Responds to denied requests with this instead of a problem document. The header fields are added to it.
        pub fn fallback<T: Into<bytes::Bytes>>(
            self,
            fallback: impl Fn(&crate::Head<'_>, &crate::Denial<'_>) -> http::Response<T>
            + Send
            + Sync
            + 'static,
        ) -> Self {
            let make_rejection = move |head: &crate::Head<'_>, denial: &crate::Denial<'_>| {
                fallback(head, denial).map(Into::into)
            };
            self.with(|shared| {
                shared.policy.make_rejection = Some(std::sync::Arc::new(make_rejection))
            })
        }

        observe_method!(
            "Calls this with every decision: see [`Observer`](crate::Observer).",
            policy.observers
        );
    };
}

/// The method that adds an observer. `$within` is the path from what `with` changes to the observers.
macro_rules! observe_method {
    ($doc:literal, $($within:ident).+) => {
        #[doc = $doc]
        pub fn observe(self, observer: impl crate::Observer) -> Self {
            self.with(|shared| shared.$($within).+.push(std::sync::Arc::new(observer)))
        }
    };
}

pub(crate) use {address_methods, observe_method, response_methods};

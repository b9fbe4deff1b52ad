//! How a layer behaves to those who ask, whatever it limits, and the methods by which layers are told so.
//!
//! Always   A method that several layers have is written once, here, with its documentation: what one of them learns,
//!          all have. It is a macro and no trait, so that nobody has to import one to set up a layer, and each method
//!          stands with the others of its layer in the documentation.

use crate::head::{AddressSource, Head};
use crate::key::MissingKey;
use crate::limit::Limit;
use crate::observer::{Event, Observer};
use crate::rejection::{self, Denial, MakeRejection};
use bytes::Bytes;
use http::{HeaderMap, Response, StatusCode};
use std::sync::Arc;
use tidegate::{Clock, Decision, Retry, Verdict};
use tidegate_http::{HeaderStyle, LimitStatus};

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
    /// Tells the observers. Who is refused for want of a key has none.
    #[inline]
    pub(crate) fn observe<C: Clock>(
        &self,
        limit: &Limit<C>,
        decision: Decision,
        key: Option<&[u8]>,
        cost: u64,
    ) {
        if !self.observers.is_empty() {
            self.tell(limit, decision, key, cost);
        }
    }

    fn tell<C: Clock>(&self, limit: &Limit<C>, decision: Decision, key: Option<&[u8]>, cost: u64) {
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

    /// The response to who is denied, but for the fields that tell what is left.
    pub(crate) fn denied(
        &self,
        head: &Head<'_>,
        told: &[LimitStatus<'_>],
        decision: Decision,
    ) -> Response<Bytes> {
        match &self.make_rejection {
            Some(make) => make(head, &Denial::new(told, decision)),
            None => rejection::denied(head, self.status, told, decision),
        }
    }

    /// The response to who has no key. Observers are told.
    pub(crate) fn without_key<C: Clock>(
        &self,
        head: &Head<'_>,
        limit: &Limit<C>,
        missing: MissingKey,
    ) -> Response<Bytes> {
        let denied = Decision::without_state(Verdict::Deny(Retry::Never));
        self.observe(limit, denied, None, limit.cost_of(head));
        if limit.without_key(missing).is_some() {
            let key = format!("{:?}", limit.key);
            return rejection::without_key(head, self.status, &limit.name, &key);
        }
        #[cfg(feature = "tracing")]
        tracing::error!(target: "tidegate", "limit `{}` {}", limit.name, rejection::NO_PEER);
        rejection::without_peer(head, &limit.name)
    }

    /// Writes what these limits said, and what `all` of them together said.
    pub(crate) fn write(&self, headers: &mut HeaderMap, told: &[LimitStatus<'_>], all: &Decision) {
        if let Some(style) = self.style {
            style.write(headers, told, all);
        }
    }
}

/// Who stands between the client and the layer. `$made` is how one gets such a layer, for the examples; `$within` is where
/// its `with` finds the address_source.
macro_rules! address_methods {
    ($layer:ident, $made:expr, $($within:ident).+) => {
        /// Proxies that are believed about who came to them, by `X-Forwarded-For` or `Forwarded`. The chain is walked
        /// from the right, and the first address that is not one of these is the client. Nobody is trusted unless
        /// told: whoever is, can be anybody.
        ///
        /// ```
        #[doc = concat!("# use tidegate_tower::", stringify!($layer), ";")]
        #[doc = concat!("let layer = ", $made)]
        ///     .trusted_proxies(["10.0.0.0/8".parse()?]);
        /// # Ok::<(), Box<dyn std::error::Error>>(())
        /// ```
        pub fn trusted_proxies(self, proxies: impl IntoIterator<Item = ipnet::IpNet>) -> Self {
            let proxies = proxies.into_iter().collect();
            self.with(|shared| shared.$($within).+.trusted_proxies = proxies)
        }

        /// Which header of [trusted proxies](Self::trusted_proxies) is believed: what they write.
        /// [Either](crate::ProxyHeader::Either) unless told.
        ///
        /// ```
        #[doc = concat!("# use tidegate_tower::{ProxyHeader, ", stringify!($layer), "};")]
        #[doc = concat!("let layer = ", $made)]
        ///     .trusted_proxies(["10.0.0.0/8".parse()?])
        ///     .proxy_header(ProxyHeader::Forwarded);
        /// # Ok::<(), Box<dyn std::error::Error>>(())
        /// ```
        pub fn proxy_header(self, header: crate::ProxyHeader) -> Self {
            self.with(|shared| shared.$($within).+.proxy_header = header)
        }

        /// How to find the peer's address, where it is neither [`Peer`](crate::Peer) nor axum's `ConnectInfo`.
        ///
        /// ```
        #[doc = concat!("# use tidegate_tower::", stringify!($layer), ";")]
        /// use tonic::transport::server::TcpConnectInfo;
        ///
        #[doc = concat!("let layer = ", $made)]
        ///     .peer(|extensions| {
        ///         extensions.get::<TcpConnectInfo>()?.remote_addr().map(|address| address.ip())
        ///     });
        /// # Ok::<(), Box<dyn std::error::Error>>(())
        /// ```
        pub fn peer(
            self,
            peer: impl Fn(&http::Extensions) -> Option<std::net::IpAddr> + Send + Sync + 'static,
        ) -> Self {
            self.with(|shared| shared.$($within).+.peer = Some(std::sync::Arc::new(peer)))
        }
    };
}

/// How a layer answers, and who hears of it: for layers whose `with` finds [`ResponsePolicy`] under `policy`. `$status` says which
/// status a denial has.
macro_rules! response_methods {
    ($layer:ident, $made:expr, $status:literal) => {
        /// Which fields tell clients what is left; those of draft 11 unless told.
        ///
        /// ```
        #[doc = concat!("# use tidegate_tower::{HeaderStyle, ", stringify!($layer), "};")]
        #[doc = concat!("let layer = ", $made, ".headers(HeaderStyle::Legacy);")]
        /// # Ok::<(), tidegate_tower::LimitError>(())
        /// ```
        pub fn headers(self, style: crate::HeaderStyle) -> Self {
            self.with(|shared| shared.policy.style = Some(style))
        }

        /// Tells clients nothing, but that they are denied.
        ///
        /// ```
        #[doc = concat!("# use tidegate_tower::", stringify!($layer), ";")]
        #[doc = concat!("let layer = ", $made, ".no_headers();")]
        /// # Ok::<(), tidegate_tower::LimitError>(())
        /// ```
        pub fn no_headers(self) -> Self {
            self.with(|shared| shared.policy.style = None)
        }

        #[doc = concat!("The status of a denial; ", $status, ".")]
        ///
        /// ```
        /// # use http::StatusCode;
        #[doc = concat!("# use tidegate_tower::", stringify!($layer), ";")]
        #[doc = concat!("let layer = ", $made, ".status(StatusCode::SERVICE_UNAVAILABLE);")]
        /// # Ok::<(), tidegate_tower::LimitError>(())
        /// ```
        pub fn status(self, status: http::StatusCode) -> Self {
            self.with(|shared| shared.policy.status = status)
        }

        /// Answers those who are denied with this, instead of a problem. The fields that tell what is left are added.
        ///
        /// ```
        /// # use http::Response;
        #[doc = concat!("# use tidegate_tower::", stringify!($layer), ";")]
        #[doc = concat!("let layer = ", $made)]
        ///     .fallback(|_, _| Response::new("yesterday's news"));
        /// # Ok::<(), tidegate_tower::LimitError>(())
        /// ```
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
            $layer,
            $made,
            "Tells this one of every decision: see [`Observer`](crate::Observer).",
            policy.observers
        );
    };
}

/// Who hears of a layer, of what `$told` says. `$within` is where its `with` finds the observers.
macro_rules! observe_method {
    ($layer:ident, $made:expr, $told:literal, $($within:ident).+) => {
        #[doc = $told]
        ///
        /// ```
        #[doc = concat!("# use tidegate_tower::{Event, ", stringify!($layer), "};")]
        #[doc = concat!("let layer = ", $made)]
        ///     .observe(|event: &Event<'_>| println!("{}: {}", event.limit, event.verdict()));
        /// # Ok::<(), tidegate_tower::LimitError>(())
        /// ```
        pub fn observe(self, observer: impl crate::Observer) -> Self {
            self.with(|shared| shared.$($within).+.push(std::sync::Arc::new(observer)))
        }
    };
}

pub(crate) use {address_methods, observe_method, response_methods};

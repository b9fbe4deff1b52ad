//! Limits for everything that is made of tower: axum, tonic, hyper; servers and clients.
//!
//! ```
//! use axum::{Router, routing::get};
//! use tidegate_tower::RateLimitLayer;
//!
//! let app: Router = Router::new()
//!     .route("/", get(|| async { "hello" }))
//!     .layer(RateLimitLayer::per_ip("100/s burst 20")?);
//! # Ok::<(), tidegate_tower::LimitError>(())
//! ```
//!
//! - [`RateLimitLayer`] limits how often. It has one [`Limit`] or several, which are decided as one.
//! - [`Key`] says whom a limit counts: an address behind [trusted proxies](RateLimitLayer::trusted_proxies), a header,
//!   who has signed in, what your function says.
//! - [`ConcurrencyLayer`] limits how many at once, until the body of the response is done.
//! - [`AdaptiveLayer`] finds out how many at once the service behind it can bear.
//! - [`ShedLayer`] turns away what matters least when there is too much to do.
//! - [`UploadRateLayer`] and [`DownloadRateLayer`] let bodies flow only so fast.
//! - [`OutgoingLayer`] is for clients: calls wait for their turn, or fail.
//!
//! A denial is a response, not an error: 429 with `Retry-After` and a problem in the body (for gRPC its own status).
//! Every response tells what is left, by `RateLimit` and `RateLimit-Policy`.
//!
//! # Features
//! - `axum`: the peer's address from axum's `ConnectInfo`; keys by route.
//! - `redis`: limits that many processes share.
//! - `tracing`: an observer for the log.

mod adaptive;
mod body_rate;
mod concurrency;
mod fallback;
mod guarded_body;
mod head;
mod jitter;
mod key;
mod limit;
mod limited_body;
mod load;
mod observer;
mod outgoing;
mod rate_limit;
mod rejection;
mod response_policy;
mod shed;
mod store;

pub use adaptive::{AdaptiveLayer, LoadSignal};
pub use body_rate::{
    BodyRateFuture, DownloadRate, DownloadRateLayer, ThrottledBody, UploadRate, UploadRateLayer,
};
pub use concurrency::{Concurrency, ConcurrencyFuture, ConcurrencyLayer};
pub use fallback::{Fallback, FallbackService, NoFallback};
pub use guarded_body::GuardedBody;
pub use head::{Head, Peer};
pub use key::Key;
pub use limit::{Limit, LimitError, OnMissing};
pub use limited_body::LimitedBody;
pub use load::{Load, LoadFuture, LoadLayer, LoadService};
#[cfg(feature = "tracing")]
pub use observer::Log;
pub use observer::{Event, Observer};
pub use outgoing::{
    CallKey, Keyed, Outgoing, OutgoingError, OutgoingFuture, OutgoingLayer, Unkeyed,
};
pub use rate_limit::{RateLimit, RateLimitFuture, RateLimitLayer};
pub use rejection::Denial;
pub use shed::ShedLayer;
pub use tidegate_http::{AddressBits, HeaderStyle, IpNet, ProxyHeader};

/// Runs every example of the README and of the page about layers as a test.
#[cfg(all(doctest, feature = "axum", feature = "tracing"))]
mod pages {
    #[doc = include_str!("../../../README.md")]
    struct Readme;
    #[doc = include_str!("../../../docs/guide/axum.md")]
    struct Axum;
}

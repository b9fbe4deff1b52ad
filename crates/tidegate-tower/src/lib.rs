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
//! - [`RateLimitLayer`] limits how often requests are made. It has one [`Limit`] or several, which are decided together.
//! - [`Key`] says what a limit counts by: the client's address behind [trusted
//!   proxies](RateLimitLayer::trusted_proxies), a header, the user that has signed in, the result of your function.
//! - [`ConcurrencyLayer`] limits how many requests are in flight, until the bodies of their responses have ended.
//! - [`AdaptiveLayer`] finds out how many requests in flight the service behind it can handle.
//! - [`ShedLayer`] rejects the least important requests when the machine is overloaded.
//! - [`UploadRateLayer`] and [`DownloadRateLayer`] limit the bytes of bodies per second.
//! - [`OutgoingLayer`] is for clients: calls wait for their turn, or fail.
//!
//! A denial is a response, not an error: 429 with `Retry-After` and a problem document as its body, or a gRPC status.
//! Every response reports what is left, in `RateLimit` and `RateLimit-Policy`. The crate `tidegate-http` writes these fields
//! (`rate_limit_fields.rs`); the parts that a key can have are in `key.rs`.
//!
//! # Features
//! - `axum`: takes the client's address from axum's `ConnectInfo`, and adds keys by route.
//! - `redis`: limits that many processes share.
//! - `tracing`: an observer that writes to the log.

mod admission;
pub mod body;
mod body_rate;
mod concurrency;
mod head;
mod key;
mod limit;
mod load;
mod observer;
mod outgoing;
mod rate_limit;
mod response;
pub mod service;

pub use body_rate::{DownloadRateLayer, UploadRateLayer};
pub use concurrency::ConcurrencyLayer;
pub use head::{Head, Peer};
pub use key::Key;
pub use limit::{Limit, LimitError, OnMissing};
pub use load::{AdaptiveLayer, LoadSignal, ShedLayer};
#[cfg(feature = "tracing")]
pub use observer::Log;
pub use observer::{Event, Observer};
pub use outgoing::{OutgoingError, OutgoingLayer};
pub use rate_limit::RateLimitLayer;
pub use response::rejection::Denial;
pub use tidegate_http::{AddressBits, HeaderStyle, IpNet, ProxyHeader};

/// Runs every example of the README and of the page about layers as a test.
#[cfg(all(doctest, feature = "axum", feature = "tracing"))]
mod pages {
    #[doc = include_str!("../../../README.md")]
    struct Readme;
    #[doc = include_str!("../../../docs/guide/axum.md")]
    struct Axum;
}

//! The layer that limits how often: decide, then call, then settle.

mod alone;
mod asked;
mod future;
mod layer;
mod outcome;
mod service;
mod settle;
mod several;
mod shared;

pub use future::RateLimitFuture;
pub use layer::RateLimitLayer;
pub use service::RateLimit;

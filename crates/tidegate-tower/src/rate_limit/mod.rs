//! The layer that limits how often: decide, then call, then settle.

mod admission;
mod checks;
mod future;
mod joint;
mod layer;
mod limit_set;
mod service;
mod settlement;
mod single;

pub use future::RateLimitFuture;
pub use layer::RateLimitLayer;
pub use service::RateLimit;

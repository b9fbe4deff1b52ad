//! The layer that limits how often: decide, then call, then settle.

mod alone;
mod asked;
mod future;
mod instead;
mod layer;
mod outcome;
mod service;
mod settle;
mod several;
mod shared;

pub use future::RateLimitFuture;
pub use instead::{Instead, Other, Refuse};
pub use layer::RateLimitLayer;
pub use service::RateLimit;

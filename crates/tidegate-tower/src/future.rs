//! The futures of the services.

pub use crate::body_rate::BodyRateFuture;
pub use crate::concurrency::ConcurrencyFuture;
pub use crate::load::LoadFuture;
pub use crate::outgoing::OutgoingFuture;
pub use crate::rate_limit::RateLimitFuture;

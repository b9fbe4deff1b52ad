//! The layer that limits how often requests are made: decides, calls the service, then settles the costs.
//!
//! A request goes through these files in this order: `service` receives it, `checks` finds the key and the cost for each limit,
//! `decide` asks the stores (`charges` for several limits together), `future` calls the service or answers with a rejection, and
//! `settlement` refunds or charges more when the response is known. The header fields of a response are written in
//! `tidegate-http/src/rate_limit_fields.rs`.

mod admission;
mod charges;
mod checks;
mod decide;
mod decisions;
mod future;
mod layer;
mod limit_set;
mod service;
mod settlement;

pub use future::RateLimitFuture;
pub use layer::RateLimitLayer;
pub use service::RateLimit;

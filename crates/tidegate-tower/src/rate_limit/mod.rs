//! The layer that limits how often requests are made: decides, calls the service, then settles the costs.
//!
//! A request goes through these files in this order: `admission/service.rs` receives it, `checks` finds the key and the cost for
//! each limit, `decide` asks the stores (`charges` for several limits together), `admission/future.rs` calls the service or
//! responds with a rejection, and `settlement` refunds or charges more when the response is known. The header fields of a
//! response are written in `tidegate-http/src/rate_limit_fields.rs`.

mod admission;
mod charges;
mod checks;
mod decide;
mod decisions;
mod layer;
mod limit_set;
mod settlement;

pub use layer::RateLimitLayer;
pub(crate) use limit_set::LimitSet;

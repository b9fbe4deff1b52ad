//! Limits the number of requests in flight.
//!
//! Always   A permit is taken before the service is called, and released once: when the body of the response has ended or is
//!          dropped, when the service fails or panics, or when the request is given up at any point (T13).

mod layer;
mod limit;

pub use layer::ConcurrencyLayer;
pub(crate) use limit::ConcurrencyLimit;

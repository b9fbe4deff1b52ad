//! The layer that limits how many at once.
//!
//! Always   A place is taken before the service is called, and given back once: when the response's body is done, or
//!          it is dropped, or the service fails or panics, or the request is given up at any point (T13).

mod future;
mod layer;
mod service;

pub use future::ConcurrencyFuture;
pub use layer::ConcurrencyLayer;
pub use service::Concurrency;

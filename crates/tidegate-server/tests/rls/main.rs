//! Envoy's rate limit service: what the reference server's tests and limitador's ask, and where we answer better.

mod costs;
mod decisions;
mod desk;
mod http2;
mod lookups;
mod overrides;
mod replies;

//! Envoy's rate limit service: what the reference server's tests and limitador's ask, and where we answer better.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod costs;
mod decisions;
mod desk;
mod http2;
mod lookups;
mod overrides;
mod replies;

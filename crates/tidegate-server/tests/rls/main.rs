//! Envoy's rate limit service: the cases of the reference server's and limitador's tests, and the differences.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod costs;
mod decisions;
mod harness;
mod http2;
mod lookups;
mod overrides;
mod replies;

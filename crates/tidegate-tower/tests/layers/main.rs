//! Layers as their users meet them (P3).
#![expect(clippy::unwrap_used, reason = "what helps a test may fail as a test does")]

mod adaptive;
mod after;
mod clients;
mod concurrency;
mod decisions;
mod desk;
mod jitter;
mod keys;
#[cfg(feature = "tracing")]
mod log;
mod observe;
mod pace;
mod readiness;
mod several;
mod shed;
mod sockets;
mod storm;
mod waits;

//! The layers, through their public interface (P3).
#![expect(clippy::unwrap_used, reason = "helpers of tests may panic")]

mod adaptive;
mod body_rate;
mod concurrency;
mod decisions;
mod fixture;
mod jitter;
mod joint;
mod keys;
#[cfg(feature = "tracing")]
mod log;
mod mixed_load;
mod observer;
mod outgoing;
mod readiness;
mod settlement;
mod shed;
mod sockets;
mod waits;

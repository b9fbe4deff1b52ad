//! The `tidegate serve` process: restarts, signals, logs, a shared Redis, and few file descriptors.
#![cfg(unix)]
#![expect(clippy::disallowed_methods, reason = "another process runs on the real clock")]

mod daemon;
mod descriptors;
mod logging;
#[expect(dead_code, reason = "the tests of the server use more of the module")]
#[path = "../../../tidegate-server/tests/hostile/peer.rs"]
mod peer;
mod restart;
mod shared;
mod signals;

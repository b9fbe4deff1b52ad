//! The real binary: killed, told to end, told to reload, and without descriptors.
#![cfg(unix)]
#![expect(clippy::disallowed_methods, reason = "another process runs on the real clock")]

mod daemon;
mod descriptors;
mod logging;
#[expect(dead_code, reason = "the tests of the server need more of it")]
#[path = "../../../tidegate-server/tests/hostile/peer.rs"]
mod peer;
mod restart;
mod shared;
mod signals;

//! The real binary: killed, told to end, told to reload, and without descriptors.
#![cfg(unix)]
#![expect(clippy::disallowed_methods, reason = "another process runs on the real clock")]

mod daemon;
mod descriptors;
mod restart;
mod signals;

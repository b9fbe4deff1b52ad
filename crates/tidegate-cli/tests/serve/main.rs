//! The real binary: killed, told to end, told to reload, and without descriptors.
#![cfg(unix)]

mod daemon;
mod descriptors;
mod restart;
mod signals;

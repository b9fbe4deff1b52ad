//! Tidegate's configuration: limits in TOML, which of them count a request, and why.
//!
//! Always   No async runtime and no HTTP server among its dependencies, so that programs that only read a configuration stay
//!          light.

pub mod config;
pub mod explain;
pub mod matching;
mod request;
pub mod tls;

pub use config::*;

//! Tidegate's daemon: one engine behind RESP, HTTP and gRPC.
//!
//! Every wire does the same three things: it finds out who asks ([`matching`]), asks the [`engine`], and says
//! the answer in its own words. No wire knows an algorithm, and the engine knows no wire.
//!
//! ```text
//! resp  http  grpc  admin      one folder each: bytes in, bytes out
//!    \    |    |    /
//!      matching               a request, and which limits count it under which key
//!          |
//!        engine               limits by name or rule text; modes; leases; reload
//!          |
//!        store                memory, or Redis
//! ```

pub mod admin;
mod base64;
pub mod clock;
pub mod config;
pub mod daemon;
pub mod engine;
mod escape;
pub mod explain;
pub mod grpc;
pub mod http;
pub mod listen;
pub mod matching;
pub mod resp;
pub mod server;
pub mod status;
pub mod store;
mod tls;

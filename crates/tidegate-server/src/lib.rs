//! Tidegate's daemon: one engine behind RESP, HTTP and gRPC.
//!
//! ```text
//! daemon                        the process: log, signals, snapshots, the store's thread
//!    |
//!   net                         sockets, worker threads, deadlines, TLS
//!    |
//! protocol  resp http grpc admin    bytes in, bytes out: key, cost and limits of a request
//!    |
//! server                        what all listeners share: configuration, status, access control, reload
//!    |
//! engine                        limits by name or rule text; modes; leases
//!    |
//! store                         memory, or Redis
//! ```
//!
//! A module uses only those below it. A protocol knows no algorithm, and the engine knows no protocol. Which limits count a request,
//! and under which key, is decided by [`matching`].

pub mod clock;
pub mod config;
pub mod daemon;
pub mod engine;
pub mod escape;
pub mod explain;
pub mod matching;
pub mod net;
pub mod protocol;
pub mod server;
pub mod store;
mod sync;
mod tls;

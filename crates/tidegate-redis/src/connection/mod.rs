//! Connections to Redis: one server, sentinels, or a cluster.
//!
//! The deadline of requests is in `deadline.rs`.
//!
//! Invariant  A script is sent once. It is sent again only after Redis has refused it, and then once.

mod address;
mod breaker;
mod clock;
mod cluster;
mod connection_slot;
mod deadline;
mod error;
mod examine;
mod latencies;
mod node;
mod reconnect;
mod script_runner;
mod sentinel;
mod servers;
mod settings;

pub use address::{Address, AddressError};
pub(crate) use clock::RedisClock;
pub(crate) use deadline::Deadline;
pub use error::RedisStoreError;
pub use examine::{ProblemKind, ServerProblem};
pub use latencies::Latencies;
pub(crate) use node::{Call, Node};
pub(crate) use script_runner::ScriptRunner;
pub(crate) use servers::Servers;
pub use settings::Settings;

//! The protocols: each turns bytes into requests for the [`engine`](crate::engine), and decisions into bytes.
//!
//! Invariant A protocol knows no algorithm and owns no socket: [`net`](crate::net) reads and writes the bytes, so that each protocol
//!           can be tested without a connection.

pub mod admin;
pub mod grpc;
pub mod http;
pub mod resp;

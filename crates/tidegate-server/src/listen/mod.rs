//! Sockets: who comes in, how many, for how long, and on which thread.
//!
//! Always   A worker is a thread with a runtime of its own: a connection stays on one core. Accepting never
//!          ends because of an error: where there are no more descriptors it waits and tries again (T45).
//!          Who is one too many is turned away at once, unless a connection that has shown no token makes room.

mod activity;
mod frames;
mod http;
mod plain;
mod serve;
mod strangers;
mod wakeful;
mod worker;

pub use activity::Activity;
pub use serve::{Addresses, Running, start};
pub(crate) use worker::{ADMIN_CONNECTIONS_MAX, TURNED_AWAY_MAX};

use std::fmt;

/// What is spoken on a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wire {
    /// Redis's.
    Resp,
    /// HTTP/1.
    Http,
    /// gRPC, which is HTTP/2.
    Grpc,
    /// The operator's HTTP/1.
    Admin,
}

impl Wire {
    /// What it is called in the configuration and in metrics.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Resp => "resp",
            Self::Http => "http",
            Self::Grpc => "grpc",
            Self::Admin => "admin",
        }
    }
}

impl fmt::Display for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Resp => "RESP",
            Self::Http => "HTTP",
            Self::Grpc => "gRPC",
            Self::Admin => "admin",
        })
    }
}

/// A connection's account, of a worker that does nothing.
#[cfg(test)]
pub(crate) fn activity() -> std::sync::Arc<Activity> {
    let wakeful = std::sync::Arc::new(wakeful::Wakeful::new(tidegate::Span::ZERO));
    activity::Peers::new(wakeful).enter(Wire::Resp, &crate::config::Caps::default()).1
}

impl crate::server::ByListener {
    pub(crate) fn of(&self, wire: Wire) -> &std::sync::atomic::AtomicU64 {
        match wire {
            Wire::Resp => &self.resp,
            Wire::Http => &self.http,
            Wire::Grpc => &self.grpc,
            Wire::Admin => &self.admin,
        }
    }

    /// All of them together.
    pub fn sum(&self) -> u64 {
        let wires = [Wire::Resp, Wire::Http, Wire::Grpc, Wire::Admin];
        wires.map(|wire| self.of(wire).load(std::sync::atomic::Ordering::Relaxed)).iter().sum()
    }
}

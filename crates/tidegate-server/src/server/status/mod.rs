//! Facts about the process, shown in `/metrics` and `/readyz?verbose`.
//!
//! Always   Updating a fact takes no lock that a reader of `/metrics` could hold for long, and never fails.

mod log;
mod snapshot;

pub use log::{DropReason, LogDrops};
pub use snapshot::{RestoreResult, SnapshotStatus};

use super::Wire;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use tokio::sync::watch;

/// The facts about a server besides its limits.
#[derive(Debug, Default)]
pub struct Status {
    /// Whether the server is shutting down.
    pub drain: Drain,
    /// Connections, by listener.
    pub connections: ByListener,
    /// Connections that were rejected, by listener.
    pub rejected: ByListener,
    /// Requests that wait for a store, or until they are admitted.
    pub waiting: AtomicUsize,
    /// Requests that were refused because too many waited, by listener.
    pub refused: ByListener,
    /// Wrong tokens, by listener.
    pub wrong_tokens: ByListener,
    /// Reloads that succeeded.
    pub reloads: AtomicU64,
    /// Reloads that failed.
    pub failed_reloads: AtomicU64,
    /// Whether the last reload failed: then the configuration before it is still in force.
    pub is_config_stale: AtomicBool,
    /// Log lines that were dropped; empty where the process does not use the daemon's log.
    pub log: OnceLock<Arc<LogDrops>>,
    /// The state of snapshots.
    pub snapshot: SnapshotStatus,
}

/// Whether a server is shutting down.
#[derive(Debug)]
pub struct Drain(watch::Sender<bool>);

impl Default for Drain {
    fn default() -> Self {
        Self(watch::Sender::new(false))
    }
}

impl Drain {
    /// Starts the shutdown.
    pub fn begin(&self) {
        self.0.send_replace(true);
    }

    /// Returns whether the shutdown has started.
    pub fn has_begun(&self) -> bool {
        *self.0.borrow()
    }

    /// Waits until the shutdown starts or the server is dropped.
    pub(crate) fn begun(&self) -> impl Future<Output = ()> + Send + 'static {
        let mut watched = self.0.subscribe();
        async move {
            let _ = watched.wait_for(|has_begun| *has_begun).await;
        }
    }
}

/// A number for each listener.
#[derive(Debug, Default)]
pub struct ByListener {
    /// The RESP listener.
    pub resp: AtomicU64,
    /// The HTTP listener.
    pub http: AtomicU64,
    /// The gRPC listener.
    pub grpc: AtomicU64,
    /// The admin listener.
    pub admin: AtomicU64,
}

impl ByListener {
    /// Returns the number of one listener.
    pub(crate) fn of(&self, wire: Wire) -> &AtomicU64 {
        match wire {
            Wire::Resp => &self.resp,
            Wire::Http => &self.http,
            Wire::Grpc => &self.grpc,
            Wire::Admin => &self.admin,
        }
    }

    /// Returns the sum over all listeners.
    pub fn sum(&self) -> u64 {
        let all = [&self.resp, &self.http, &self.grpc, &self.admin];
        all.map(|number| number.load(Ordering::Relaxed)).iter().sum()
    }
}

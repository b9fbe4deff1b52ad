//! The snapshot, which keeps the state of limits over a restart.

use crate::config::SnapshotConfig;
use crate::server::Server;
use crate::server::status::RestoreResult;
use std::io;
use tidegate::Clock as _;
use tidegate::snapshot::Snapshot;

/// Reads the snapshot. A damaged file is logged and does not keep the server from starting.
pub(super) fn restore(config: &SnapshotConfig) -> (Snapshot, RestoreResult) {
    let loaded = Snapshot::load(&config.path);
    for problem in &loaded.problems {
        tracing::error!("the snapshot is not used: {problem}");
    }
    if loaded.snapshot.is_empty() {
        tracing::info!("starting without debts: {} has none", config.path.display());
    }
    let result = match (loaded.problems.is_empty(), loaded.snapshot.is_empty()) {
        (true, true) => RestoreResult::None,
        (true, false) => RestoreResult::Ok,
        (false, false) => RestoreResult::Previous,
        (false, true) => RestoreResult::Failed,
    };
    (loaded.snapshot, result)
}

/// Writes the state of all limits, and records the result.
pub(super) fn save(server: &Server, config: &SnapshotConfig) -> io::Result<()> {
    // The snapshot may miss charges from now on.
    let now = server.engine.clock().now();
    let limiters = server.engine.snapshot_limiters();
    let named = limiters.iter().map(|(name, limiter)| (name.as_str(), limiter));
    let saved = Snapshot::save_with(&config.path, named, || server.engine.attached());
    match &saved {
        Ok(()) => server.status.snapshot.written(now),
        Err(error) => server.status.snapshot.failed(&error.to_string()),
    }
    saved
}

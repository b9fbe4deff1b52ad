//! Debts over a restart: the snapshot.

use crate::config::SnapshotConfig;
use crate::server::Server;
use crate::server::status::RestoreResult;
use std::io;
use tidegate::Clock as _;
use tidegate::snapshot::Snapshot;

/// Reads what is known from before. A bad file is told about, and never keeps the server from starting.
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

/// Writes what everybody owes, and notes how that went.
pub(super) fn save(server: &Server, config: &SnapshotConfig) -> io::Result<()> {
    // What is charged while it is written may not be in it.
    let now = server.engine.clock().now();
    let remembered = server.engine.remembered();
    let named = remembered.iter().map(|(name, limiter)| (name.as_str(), limiter));
    let saved = Snapshot::save_with(&config.path, named, || server.engine.attached());
    match &saved {
        Ok(()) => server.status.snapshot.written(now),
        Err(error) => server.status.snapshot.failed(&error.to_string()),
    }
    saved
}

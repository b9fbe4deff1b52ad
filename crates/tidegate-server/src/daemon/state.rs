//! Debts over a restart: the snapshot.

use crate::config::SnapshotConfig;
use crate::server::Server;
use std::io;
use tidegate::Snapshot;

/// What is known from before. A bad file is told about, and never keeps the server from starting.
pub(super) fn restore(config: Option<&SnapshotConfig>) -> Snapshot {
    let Some(config) = config else { return Snapshot::default() };
    let loaded = Snapshot::load(&config.path);
    for problem in &loaded.problems {
        tracing::error!("the snapshot is not used: {problem}");
    }
    if loaded.snapshot.is_empty() {
        tracing::info!("starting without debts: {} has none", config.path.display());
    }
    loaded.snapshot
}

/// Writes what everybody owes.
pub(super) fn save(server: &Server, config: &SnapshotConfig) -> io::Result<()> {
    let remembered = server.engine.remembered();
    let named = remembered.iter().map(|(name, limiter)| (name.as_str(), limiter));
    Snapshot::save_with(&config.path, named, || server.engine.attached())
}

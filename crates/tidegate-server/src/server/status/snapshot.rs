//! The state of snapshots: what the start restored, and how the last attempts to write one ended.

use crate::sync::lock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};
use tidegate::{Span, Timestamp};

/// What the server found at its start in the place of its snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RestoreResult {
    /// A snapshot, which was restored.
    Ok,
    /// No snapshot: this is the first start.
    None,
    /// A snapshot that cannot be read, and the one before it, which was restored instead.
    Previous,
    /// No snapshot that can be read: all keys start new.
    Failed,
}

impl RestoreResult {
    /// All results with their labels in `/metrics`.
    pub(crate) const ALL: [(Self, &'static str); 4] = [
        (Self::Ok, "ok"),
        (Self::None, "none"),
        (Self::Previous, "previous"),
        (Self::Failed, "failed"),
    ];
}

/// The state of snapshots. Empty for a server that writes none.
#[derive(Debug, Default)]
pub struct SnapshotStatus {
    restore: OnceLock<RestoreResult>,
    written: AtomicU64,
    failed: AtomicU64,
    /// When the last one was written, or else when the server started.
    newest_us: AtomicU64,
    /// Why the last attempt failed, if it failed.
    problem: Mutex<Option<String>>,
}

impl SnapshotStatus {
    /// Records what the start found, and when that was.
    pub fn begin(&self, restore: RestoreResult, now: Timestamp) {
        self.newest_us.store(now.as_micros(), Ordering::Relaxed);
        let _ = self.restore.set(restore);
    }

    /// Counts a snapshot that was written, with the state at this time.
    pub fn written(&self, now: Timestamp) {
        self.newest_us.store(now.as_micros(), Ordering::Relaxed);
        self.written.fetch_add(1, Ordering::Relaxed);
        *lock(&self.problem) = None;
    }

    /// Counts a snapshot that could not be written, and records why.
    pub fn failed(&self, why: &str) {
        self.failed.fetch_add(1, Ordering::Relaxed);
        *lock(&self.problem) = Some(why.to_owned());
    }

    /// Returns what the start found; `None` for a server that writes no snapshots.
    pub fn restore(&self) -> Option<RestoreResult> {
        self.restore.get().copied()
    }

    /// Returns how many snapshots were written, and how many could not be.
    pub fn counts(&self) -> (u64, u64) {
        (self.written.load(Ordering::Relaxed), self.failed.load(Ordering::Relaxed))
    }

    /// Returns how much could be lost now: the time since the last snapshot that was written, or since the start.
    pub fn age(&self, now: Timestamp) -> Option<Span> {
        let newest = Timestamp::from_micros(self.newest_us.load(Ordering::Relaxed));
        self.restore().map(|_| now.since(newest))
    }

    /// Returns why the last attempt failed; `None` if it did not.
    pub fn last_problem(&self) -> Option<String> {
        lock(&self.problem).clone()
    }
}

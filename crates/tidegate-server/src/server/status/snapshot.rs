//! How snapshots go: what the start found, and how the last attempts to write one ended.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use tidegate::{Span, Timestamp};

/// What the server found at its start where its snapshot should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RestoreResult {
    /// The snapshot.
    Ok,
    /// No snapshot: a first start.
    None,
    /// A snapshot that cannot be used, and the one before it, which was used instead.
    Previous,
    /// Nothing that can be used: every debt is forgotten.
    Failed,
}

impl RestoreResult {
    /// All of them, with the label that each has in `/metrics`.
    pub(crate) const ALL: [(Self, &'static str); 4] = [
        (Self::Ok, "ok"),
        (Self::None, "none"),
        (Self::Previous, "previous"),
        (Self::Failed, "failed"),
    ];
}

/// How snapshots go. Empty for a server that writes none.
///
/// ```
/// use tidegate::{Span, Timestamp};
/// use tidegate_server::server::status::{RestoreResult, SnapshotStatus};
///
/// let status = SnapshotStatus::default();
/// let start = Timestamp::from_micros(1_000_000);
/// status.begin(RestoreResult::Ok, start);
/// status.failed("no space left on device");
/// let age = status.age(start + Span::from_secs(60)).unwrap();
/// assert_eq!(age, Span::from_secs(60), "none has been written since the start");
/// ```
#[derive(Debug, Default)]
pub struct SnapshotStatus {
    restore: OnceLock<RestoreResult>,
    written: AtomicU64,
    failed: AtomicU64,
    /// When the last one was written, or the server was started.
    newest_us: AtomicU64,
    /// Why the last attempt failed; none after one that did not.
    problem: Mutex<Option<String>>,
}

impl SnapshotStatus {
    /// Notes what the start found, and when that was.
    pub fn begin(&self, restore: RestoreResult, now: Timestamp) {
        self.newest_us.store(now.as_micros(), Ordering::Relaxed);
        let _ = self.restore.set(restore);
    }

    /// Counts a snapshot that was written, as of this time.
    pub fn written(&self, now: Timestamp) {
        self.newest_us.store(now.as_micros(), Ordering::Relaxed);
        self.written.fetch_add(1, Ordering::Relaxed);
        *self.problem() = None;
    }

    /// Counts an attempt that failed, and keeps why.
    pub fn failed(&self, why: &str) {
        self.failed.fetch_add(1, Ordering::Relaxed);
        *self.problem() = Some(why.to_owned());
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
        self.problem().clone()
    }

    fn problem(&self) -> MutexGuard<'_, Option<String>> {
        self.problem.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

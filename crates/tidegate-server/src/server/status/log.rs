//! Log lines that were not written, and why.

use std::sync::atomic::{AtomicU64, Ordering};

/// Why a log line was not written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DropReason {
    /// The buffer was full: standard error is read more slowly than it is written.
    Full,
    /// Standard error could not be written: its reader has gone, or its disk is full.
    Unwritable,
    /// Many events of its kind had just been logged. A summary gives their number.
    Repeated,
}

/// The number of log lines that were not written, by reason.
#[derive(Debug, Default)]
pub struct LogDrops {
    full: AtomicU64,
    unwritable: AtomicU64,
    repeated: AtomicU64,
}

impl LogDrops {
    /// Counts one line.
    pub fn add(&self, reason: DropReason) {
        self.counter(reason).fetch_add(1, Ordering::Relaxed);
    }

    /// Returns how many lines were dropped for this reason.
    pub fn count(&self, reason: DropReason) -> u64 {
        self.counter(reason).load(Ordering::Relaxed)
    }

    /// Returns how many lines are lost: those that are not even part of a summary.
    pub fn lost(&self) -> u64 {
        self.count(DropReason::Full) + self.count(DropReason::Unwritable)
    }

    /// Returns the count of each reason with its label in `/metrics`.
    pub(crate) fn by_reason(&self) -> [(&'static str, u64); 3] {
        [
            ("full", self.count(DropReason::Full)),
            ("unwritable", self.count(DropReason::Unwritable)),
            ("repeated", self.count(DropReason::Repeated)),
        ]
    }

    fn counter(&self, reason: DropReason) -> &AtomicU64 {
        match reason {
            DropReason::Full => &self.full,
            DropReason::Unwritable => &self.unwritable,
            DropReason::Repeated => &self.repeated,
        }
    }
}

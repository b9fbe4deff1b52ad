//! Counters of the proxy's traffic.

use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Default)]
pub(super) struct Counts {
    pub(super) connections: Count,
    pub(super) request_bytes: Count,
    pub(super) reply_bytes: Count,
    /// Replies counted for [`super::Fault::DelayOneIn`].
    pub(super) replies: Count,
}

#[derive(Default)]
pub(super) struct Count(AtomicU64);

impl Count {
    /// Returns the sum.
    pub(super) fn add(&self, more: usize) -> u64 {
        let more = more as u64;
        self.0.fetch_add(more, Ordering::SeqCst) + more
    }

    pub(super) fn load(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
}

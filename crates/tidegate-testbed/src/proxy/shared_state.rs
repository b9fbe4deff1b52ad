//! What both directions of a connection share: the fault, and whether bytes were lost.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::watch;

use super::counts::Counts;
use super::fault::Fault;

pub(super) const PIECE_BYTES_MAX: usize = 64 * 1024;

/// How the connection ends for the client.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// FIN.
    Close,
    /// RST.
    Reset,
}

pub(super) struct SharedState {
    fault: watch::Receiver<Fault>,
    pub(super) counts: Arc<Counts>,
    /// Whether a black hole has swallowed bytes, after which nothing passes any more.
    is_lost: AtomicBool,
}

impl SharedState {
    pub(super) fn new(fault: watch::Receiver<Fault>, counts: Arc<Counts>) -> Self {
        Self { fault, counts, is_lost: AtomicBool::new(false) }
    }

    pub(super) fn fault(&self) -> Fault {
        *self.fault.borrow()
    }

    /// Returns whether the bytes just read, and all that follow, are swallowed.
    pub(super) fn is_lost(&self) -> bool {
        if self.fault() == Fault::BlackHole {
            self.is_lost.store(true, Ordering::SeqCst);
        }
        self.is_lost.load(Ordering::SeqCst)
    }

    /// Waits until the proxy has this fault.
    pub(super) async fn becomes(&self, fault: Fault) {
        if self.fault.clone().wait_for(|now| *now == fault).await.is_err() {
            // The proxy is being dropped.
            pending::<()>().await;
        }
    }
}

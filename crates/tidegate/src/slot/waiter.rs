//! A waiter: the state that a waiting request shares with its queue.
//!
//! Always   The lock of the gate or shard is taken before the waiter's, never after. Wakers run foreign code, so they are
//!          called when no lock is held.

use crate::sync::wake::WakeList;
use crate::sync::{Mutex, lock};
use std::task::Waker;
use tidegate_core::{Ticket, Timestamp};

/// The longest queue of a key.
pub(crate) const WAITERS_MAX: usize = 16_384;

/// The status of a waiting request.
#[derive(Debug)]
pub(crate) enum WaiterStatus {
    /// The request is admitted at this time, or earlier if a waiter before it gives up.
    At(Timestamp),
    /// The request waits for a permit, which is granted when enough other permits are released.
    Unknown,
    /// The permit was granted. The ticket has to be released.
    Granted(Ticket),
    /// The rule changed, and its new maximum is below the cost of the request.
    Refused,
    /// The rule changed to one without permits, so the request has to be decided again.
    Restart,
}

#[derive(Debug)]
pub(crate) struct Waiter {
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    status: WaiterStatus,
    waker: Option<Waker>,
}

impl Waiter {
    pub(crate) fn new(status: WaiterStatus) -> Self {
        Self { inner: Mutex::new(Inner { status, waker: None }) }
    }

    /// Changes the status, and adds the waker of the request to `wakes`.
    pub(crate) fn set(&self, status: WaiterStatus, wakes: &mut WakeList) {
        let mut inner = lock(&self.inner);
        inner.status = status;
        wakes.extend(inner.waker.take());
    }

    /// Returns the time of the turn if it is known, and registers a waker that is called when it changes.
    pub(crate) fn at(&self, waker: Option<&Waker>) -> Option<Timestamp> {
        let mut inner = lock(&self.inner);
        let replaced = waker.and_then(|waker| inner.waker.replace(waker.clone()));
        let at = match inner.status {
            WaiterStatus::At(at) => Some(at),
            _ => None,
        };
        drop(inner);
        drop(replaced);
        at
    }

    /// Takes the outcome if the wait has ended; otherwise registers a waker that is called when it ends.
    pub(crate) fn outcome(&self, waker: Option<&Waker>) -> Option<WaitOutcome> {
        let mut inner = lock(&self.inner);
        let mut replaced = None;
        let outcome = match std::mem::replace(&mut inner.status, WaiterStatus::Unknown) {
            WaiterStatus::Granted(ticket) => Some(WaitOutcome::Granted(ticket)),
            WaiterStatus::Refused => Some(WaitOutcome::Refused),
            WaiterStatus::Restart => Some(WaitOutcome::Restart),
            WaiterStatus::At(_) | WaiterStatus::Unknown => {
                if let Some(waker) = waker {
                    replaced = inner.waker.replace(waker.clone());
                }
                None
            }
        };
        drop(inner);
        drop(replaced);
        outcome
    }
}

/// The end of a wait for a permit.
pub(crate) enum WaitOutcome {
    Granted(Ticket),
    Refused,
    Restart,
}

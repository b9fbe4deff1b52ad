//! A waiter: what a waiting request and its queue share.
//!
//! Always   The line's lock is taken before a turn's, never after. Wakers are called when no lock is
//!          held, because what they do is not our code.

use crate::sync::wake::WakeList;
use crate::sync::{Mutex, lock};
use std::task::Waker;
use tidegate_core::{Ticket, Timestamp};

/// The status of a waiting request.
#[derive(Debug)]
pub(crate) enum WaiterStatus {
    /// The turn comes at this time, or earlier if others give up.
    At(Timestamp),
    /// The turn comes when enough others have finished.
    Unknown,
    /// It has come: this is what must be given back.
    Granted(Ticket),
    /// It will not come: the rule has changed, and no longer admits so much.
    Refused,
    /// The rule has become one without permits: ask again.
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

    /// The time of the turn, where it is known; the waker is called when that changes.
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

    /// Takes the outcome if there is one; the waker is called when there is.
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

/// How a wait for a permit has ended.
pub(crate) enum WaitOutcome {
    Granted(Ticket),
    Refused,
    Restart,
}

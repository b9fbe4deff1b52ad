//! A turn: what somebody who waits and the line they stand in both see.
//!
//! Always   The line's lock is taken before a turn's, never after. Wakers are called when no lock is
//!          held, because what they do is not our code.

use crate::sync::{Mutex, lock};
use std::task::Waker;
use tidegate_core::{Ticket, Timestamp};

/// How it stands with somebody who waits.
#[derive(Debug)]
pub(crate) enum Status {
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
pub(crate) struct Turn {
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    status: Status,
    waker: Option<Waker>,
}

impl Turn {
    pub(crate) fn new(status: Status) -> Self {
        Self { inner: Mutex::new(Inner { status, waker: None }) }
    }

    /// Changes how it stands, and hands over the waker of whoever should be told.
    pub(crate) fn set(&self, status: Status, wakes: &mut Wakes) {
        let mut inner = lock(&self.inner);
        inner.status = status;
        wakes.wakers.extend(inner.waker.take());
    }

    /// The time of the turn, where it is known; the waker is called when that changes.
    pub(crate) fn at(&self, waker: Option<&Waker>) -> Option<Timestamp> {
        let mut inner = lock(&self.inner);
        let replaced = waker.and_then(|waker| inner.waker.replace(waker.clone()));
        let at = match inner.status {
            Status::At(at) => Some(at),
            _ => None,
        };
        drop(inner);
        drop(replaced);
        at
    }

    /// Takes the outcome if there is one; the waker is called when there is.
    pub(crate) fn outcome(&self, waker: Option<&Waker>) -> Option<Outcome> {
        let mut inner = lock(&self.inner);
        let mut replaced = None;
        let outcome = match std::mem::replace(&mut inner.status, Status::Unknown) {
            Status::Granted(ticket) => Some(Outcome::Granted(ticket)),
            Status::Refused => Some(Outcome::Refused),
            Status::Restart => Some(Outcome::Restart),
            Status::At(_) | Status::Unknown => {
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
pub(crate) enum Outcome {
    Granted(Ticket),
    Refused,
    Restart,
}

/// Those to be woken once no lock is held: they are woken when this is dropped.
#[derive(Default)]
pub(crate) struct Wakes {
    wakers: Vec<Waker>,
}

impl Drop for Wakes {
    #[inline]
    fn drop(&mut self) {
        if !self.wakers.is_empty() {
            wake_each(self.wakers.drain(..));
        }
    }
}

/// Wakes everybody. A waker is not our code: one that panics keeps nobody else asleep, and does not
/// end the thread that happened to call it.
pub(crate) fn wake_each(wakers: impl IntoIterator<Item = Waker>) {
    for waker in wakers {
        // The panic has been reported by the panic hook; there is nobody here to hand it to.
        let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| waker.wake()));
    }
}

//! Reservations: turns that are charged now and used later.
//!
//! Always   Dropping a reservation before it is due returns its whole cost, once, unless it is final. Once due, it is
//!          used up.

use crate::clock::{Clock, SystemClock};
use crate::slot::RateWait;
use crate::store::Target;
use std::fmt;
use std::task::Waker;
use tidegate_core::{Decision, Span};

/// A reserved and charged turn of a rate limit, which comes after [`wait`](Self::wait).
///
/// Dropping it before it is due returns its cost, and later waiters move up. Once it is due, it is used up.
/// There is one exception: under a rule that delays requests itself (`queue`, `smooth`, `warmup`, nginx's delay), `check`
/// may have returned a delay behind this turn. Then the turn is final, and dropping it returns nothing.
///
/// ```
/// use tidegate::{Gate, ManualClock, Span};
///
/// let clock = ManualClock::new();
/// let gate = Gate::with_clock("1/s".parse()?, clock.clone());
/// let _ = gate.check();
///
/// let first = gate.reserve()?;
/// let second = gate.reserve()?;
/// assert_eq!(second.wait(), Span::from_secs(2));
/// drop(first);
/// assert_eq!(second.wait(), Span::from_secs(1), "it moved up");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "dropping a reservation before it is due returns its cost"]
pub struct Reservation<C: Clock = SystemClock> {
    target: Target<C>,
    decision: Decision,
    /// `None` if the turn was due at once.
    queued: Option<RateWait>,
}

impl<C: Clock> Reservation<C> {
    pub(crate) fn new(target: Target<C>, decision: Decision, queued: Option<RateWait>) -> Self {
        Self { target, decision, queued }
    }

    /// Returns the time until the turn is due. It never gets longer, and gets shorter when waiters ahead give up.
    pub fn wait(&self) -> Span {
        self.wait_for(None)
    }

    /// Returns the time until the turn is due, and registers a waker to be called when the turn moves up.
    pub(crate) fn wait_and_watch(&self, waker: &Waker) -> Span {
        self.wait_for(Some(waker))
    }

    fn wait_for(&self, waker: Option<&Waker>) -> Span {
        let Some(queued) = &self.queued else { return Span::ZERO };
        // The waker is registered first, so that a move in between is not missed.
        let _ = queued.waiter.at(waker);
        let now = self.target.catch_up();
        queued.waiter.at(waker).map_or(Span::ZERO, |at| at.since(now))
    }

    /// Returns the decision that reserved the turn.
    pub fn decision(&self) -> Decision {
        self.decision
    }

    /// Uses up the turn, due or not: its cost is no longer returned when the reservation is dropped.
    pub fn commit(mut self) {
        if let Some(queued) = self.queued.take() {
            self.target.with(|slot, context| slot.commit(context.limit, &queued));
        }
    }
}

impl<C: Clock> Drop for Reservation<C> {
    fn drop(&mut self) {
        if let Some(queued) = self.queued.take() {
            self.target.with(|slot, context| slot.leave_rate_queue(context, &queued));
        }
    }
}

impl<C: Clock> fmt::Debug for Reservation<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reservation").field("decision", &self.decision).finish_non_exhaustive()
    }
}

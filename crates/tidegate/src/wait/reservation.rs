//! A turn that is taken now and used later.
//!
//! Always   Dropped before it is due, it is given back whole, once, unless it is final. Due, it is
//!          used.

use crate::clock::{Clock, SystemClock};
use crate::slot::RateWait;
use crate::store::Target;
use std::fmt;
use std::task::Waker;
use tidegate_core::{Decision, Span};

/// A turn in a rate limit, taken and charged, that comes after [`wait`](Self::wait).
///
/// Dropping it before it is due gives it back, and those behind move up; once it is due it is spent.
/// There is one exception: a rule that itself tells requests to wait (`queue`, `smooth`, `warmup`,
/// nginx's delay) may have told somebody who came with `check` a time that counts on this turn. It is
/// final from then on: dropping it gives nothing back.
///
/// ```
/// use tidegate::{Gate, ManualClock, Span};
///
/// let clock = ManualClock::new();
/// let gate = Gate::with_clock("1/s".parse()?, clock.clone());
/// gate.check();
///
/// let first = gate.reserve()?;
/// let second = gate.reserve()?;
/// assert_eq!(second.wait(), Span::from_secs(2));
/// drop(first);
/// assert_eq!(second.wait(), Span::from_secs(1), "it has moved up");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a reservation that is dropped before it is due is given back"]
pub struct Reservation<C: Clock = SystemClock> {
    target: Target<C>,
    decision: Decision,
    /// `None` when it was due at once.
    queued: Option<RateWait>,
}

impl<C: Clock> Reservation<C> {
    pub(crate) fn new(target: Target<C>, decision: Decision, queued: Option<RateWait>) -> Self {
        Self { target, decision, queued }
    }

    /// How long until it is due: never more than it was, less when others give up.
    ///
    /// ```
    /// # use tidegate::{Gate, ManualClock, Span};
    /// # let clock = ManualClock::new();
    /// let gate = Gate::with_clock("1/s".parse()?, clock.clone());
    /// gate.check();
    /// let reservation = gate.reserve()?;
    /// clock.advance(Span::from_millis(700));
    /// assert_eq!(reservation.wait(), Span::from_millis(300));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn wait(&self) -> Span {
        self.wait_for(None)
    }

    /// The same, and the waker is called when others give up and the wait gets shorter.
    pub(crate) fn wait_and_watch(&self, waker: &Waker) -> Span {
        self.wait_for(Some(waker))
    }

    fn wait_for(&self, waker: Option<&Waker>) -> Span {
        let Some(queued) = &self.queued else { return Span::ZERO };
        // Watch first, then look: a turn that moves in between is not missed.
        let _ = queued.waiter.at(waker);
        let now = self.target.catch_up();
        queued.waiter.at(waker).map_or(Span::ZERO, |at| at.since(now))
    }

    /// The decision as it was made.
    ///
    /// ```
    /// # use tidegate::{Gate, ManualClock, Span, Verdict};
    /// let gate = Gate::with_clock("1/s".parse()?, ManualClock::new());
    /// gate.check();
    /// assert_eq!(gate.reserve()?.decision().verdict, Verdict::Wait(Span::from_secs(1)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn decision(&self) -> Decision {
        self.decision
    }

    /// Spends it, due or not: it is no longer given back.
    ///
    /// ```
    /// # use tidegate::{Gate, ManualClock, Span};
    /// let gate = Gate::with_clock("1/s".parse()?, ManualClock::new());
    /// gate.check();
    /// gate.reserve()?.commit();
    /// assert_eq!(gate.check().retry_after(), Some(Span::from_secs(2)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn commit(mut self) {
        if let Some(queued) = self.queued.take() {
            self.target.with(|slot, limit, _, _| slot.commit(limit, &queued));
        }
    }
}

impl<C: Clock> Drop for Reservation<C> {
    fn drop(&mut self) {
        if let Some(queued) = self.queued.take() {
            self.target
                .with(|slot, limit, now, wakes| slot.leave_rate_queue(limit, now, &queued, wakes));
        }
    }
}

impl<C: Clock> fmt::Debug for Reservation<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reservation").field("decision", &self.decision).finish_non_exhaustive()
    }
}

//! Leave to go on: what `acquire` gives, and what dropping it gives back.
//!
//! Always   A permit of a concurrency limit is given back exactly once: when it is dropped, whether
//!          the holder returned, failed, panicked or was cancelled (seed flaws 6 and 11).

use crate::clock::{Clock, SystemClock};
use crate::spot::Spot;
use std::fmt;
use tidegate_core::{Decision, Ticket};

/// Leave to go on.
///
/// Under a concurrency limit it is a place among those in flight, given back when it is dropped; so
/// keep it for as long as the work takes. Under other limits it holds nothing.
///
/// ```
/// use tidegate::Gate;
///
/// let gate = Gate::new("concurrency 1".parse()?);
/// let panicked = std::panic::catch_unwind(|| {
///     let _permit = gate.try_acquire().unwrap();
///     panic!("the handler fails");
/// });
/// assert!(panicked.is_err());
/// assert!(gate.try_acquire().is_ok(), "and yet the permit is back");
/// # Ok::<(), tidegate::RuleError>(())
/// ```
#[must_use = "a permit is given back when it is dropped: write `let _permit = …`, not `let _ = …`"]
pub struct Permit<C: Clock = SystemClock> {
    decision: Decision,
    held: Option<(Spot<C>, Ticket)>,
}

impl<C: Clock> Permit<C> {
    pub(crate) fn new(spot: &Spot<C>, decision: Decision, ticket: Option<Ticket>) -> Self {
        Self { decision, held: ticket.map(|ticket| (spot.clone(), ticket)) }
    }

    /// The decision that admitted it.
    ///
    /// ```
    /// # use tidegate::Gate;
    /// let gate = Gate::new("concurrency 5".parse()?);
    /// assert_eq!(gate.try_acquire()?.decision().remaining, 4);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn decision(&self) -> Decision {
        self.decision
    }
}

impl<C: Clock> Drop for Permit<C> {
    fn drop(&mut self) {
        if let Some((spot, ticket)) = self.held.take() {
            spot.with(|slot, limit, now, wakes| slot.release(limit, now, ticket, wakes));
        }
    }
}

impl<C: Clock> fmt::Debug for Permit<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit").field("decision", &self.decision).finish_non_exhaustive()
    }
}

//! Leave to go on: what `acquire` gives, and what dropping it gives back.
//!
//! Always   A permit of a concurrency limit is given back exactly once: when it is dropped, whether
//!          the holder returned, failed, panicked or was cancelled (seed flaws 6 and 11).

use crate::clock::{Clock, SystemClock};
use crate::store::memory::MemoryStore;
use crate::store::{KeyName, PermitRecord, Target};
use crate::sync::Arc;
use std::fmt;
use tidegate_core::{Decision, Span, Ticket};

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
    held: Option<(Target<C>, Ticket)>,
}

impl<C: Clock> Permit<C> {
    pub(crate) fn new(target: &Target<C>, decision: Decision, ticket: Option<Ticket>) -> Self {
        Self { decision, held: ticket.map(|ticket| (target.without_key_name(), ticket)) }
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

    /// Drops the permit without giving anything back: what it holds is held until its lease ends, without one for ever.
    ///
    /// ```
    /// # use tidegate::Limiter;
    /// let limiter = Limiter::new("concurrency 1 lease 30s".parse()?);
    /// limiter.try_acquire("alice")?.forget();
    /// assert!(limiter.try_acquire("alice").is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn forget(mut self) {
        self.held = None;
    }

    /// The permit, and how long its lease lasts, if it is held in this store.
    pub(crate) fn reclaim(
        record: &PermitRecord,
        store: &Arc<MemoryStore<C>>,
    ) -> Option<(Self, Span)> {
        let target = match record.key {
            Some(key) => Target::Key(Arc::clone(store), key, KeyName::default()),
            None => Target::Overflow(Arc::clone(store)),
        };
        let ticket = Ticket::from_words(record.ticket);
        let (decision, end, now) = target.look(|slot, limit, now, _| {
            let end = limit.lease_end(&slot.state, &ticket)?;
            Some((limit.peek(&slot.state, now, 0), end, now))
        })?;
        (end > now).then(|| (Self::new(&target, decision, Some(ticket)), end.since(now)))
    }

    /// Returns what a process that goes on after this one needs to [reclaim](crate::Limiter::reclaim) the permit from a
    /// [snapshot](crate::Snapshot). `None` if nothing is held, or if it is held at a gate, which has no snapshots.
    ///
    /// ```
    /// # use tidegate::Limiter;
    /// let limiter = Limiter::new("concurrency 1 lease 30s".parse()?);
    /// let permit = limiter.try_acquire("alice")?;
    /// assert!(permit.record().is_some());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn record(&self) -> Option<PermitRecord> {
        let (target, ticket) = self.held.as_ref()?;
        let key = match target {
            Target::Gate(_) => return None,
            Target::Key(_, key, _) => Some(*key),
            Target::Overflow(_) => None,
        };
        Some(PermitRecord { key, ticket: ticket.to_words() })
    }
}

impl<C: Clock> Drop for Permit<C> {
    fn drop(&mut self) {
        if let Some((target, ticket)) = self.held.take() {
            target.with(|slot, limit, now, wakes| slot.release(limit, now, ticket, wakes));
        }
    }
}

impl<C: Clock> fmt::Debug for Permit<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit").field("decision", &self.decision).finish_non_exhaustive()
    }
}

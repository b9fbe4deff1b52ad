//! Permits: the result of an admission.
//!
//! Always   A permit of a concurrency limit is released exactly once: when it is dropped, whether its holder returned,
//!          failed, panicked or was cancelled (seed flaws 6 and 11).

use crate::clock::{Clock, SystemClock};
use crate::slot::DecisionContext;
use crate::store::memory::MemoryStore;
use crate::store::{KeyName, PermitRecord, Target};
use crate::sync::Arc;
use std::fmt;
use tidegate_core::{Decision, Span, Ticket};

/// The admission of a request.
///
/// Under a concurrency limit it counts the request as in flight until it is dropped, so keep it for as long as the work
/// takes. Under other limits it holds nothing.
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
/// assert!(gate.try_acquire().is_ok(), "the permit was released");
/// # Ok::<(), tidegate::RuleError>(())
/// ```
#[must_use = "a permit is released when it is dropped: write `let _permit = …`, not `let _ = …`"]
pub struct Permit<C: Clock = SystemClock> {
    decision: Decision,
    held: Option<(Target<C>, Ticket)>,
}

impl<C: Clock> Permit<C> {
    pub(crate) fn new(target: &Target<C>, decision: Decision, ticket: Option<Ticket>) -> Self {
        Self { decision, held: ticket.map(|ticket| (target.without_key_name(), ticket)) }
    }

    /// Returns the decision that admitted the request.
    pub fn decision(&self) -> Decision {
        self.decision
    }

    /// Drops the permit without releasing it: it counts as in flight until its lease ends, or for ever without a lease.
    pub fn forget(mut self) {
        self.held = None;
    }

    /// Returns the permit of this record and the rest of its lease, if it is held in this store.
    pub(crate) fn reclaim(
        record: &PermitRecord,
        store: &Arc<MemoryStore<C>>,
    ) -> Option<(Self, Span)> {
        let target = match record.key {
            Some(key) => Target::Key(Arc::clone(store), key, KeyName::default()),
            None => Target::Overflow(Arc::clone(store)),
        };
        let ticket = Ticket::from_words(record.ticket);
        let (decision, end, now) = target.look(|slot, context| {
            let DecisionContext { limit, now, .. } = *context;
            let end = limit.lease_end(&slot.state, &ticket)?;
            Some((limit.peek(&slot.state, now, 0), end, now))
        })?;
        (end > now).then(|| (Self::new(&target, decision, Some(ticket)), end.since(now)))
    }

    /// Returns what a later process needs to [reclaim](crate::Limiter::reclaim) the permit from a [snapshot](crate::snapshot).
    /// `None` if nothing is held, or if it is held at a gate, which has no snapshots.
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
            target.with(|slot, context| slot.release(context, ticket));
        }
    }
}

impl<C: Clock> fmt::Debug for Permit<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit").field("decision", &self.decision).finish_non_exhaustive()
    }
}

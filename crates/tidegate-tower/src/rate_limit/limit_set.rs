//! The limits and settings that all clones of a layer's services share.

use super::decisions::JointDecision;
use crate::limit::Limit;
use crate::response::jitter::Jitter;
use crate::response::policy::ResponsePolicy;
use smallvec::SmallVec;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tidegate::{Clock, Rule, Span};
use tidegate_http::{LimitStatus, PreparedFields};

/// Maximum number of requests of a layer that wait to ask several limits, or one in Redis, again. More are denied at once.
pub(super) const WAITING_MAX: usize = 4_096;

/// The limits of a layer, and its settings.
#[derive(Clone)]
pub struct LimitSet<C: Clock> {
    pub(super) limits: Vec<Limit<C>>,
    pub(super) policy: ResponsePolicy,
    /// How long a request may wait; zero if it is denied instead.
    pub(super) max_wait: Span,
    pub(super) jitter: Jitter,
    waiting: Arc<AtomicUsize>,
}

/// One of the [`WAITING_MAX`] requests that may wait; freed when it is dropped.
pub(super) struct WaiterSlot(Arc<AtomicUsize>);

impl Drop for WaiterSlot {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl<C: Clock> LimitSet<C> {
    pub(super) fn new(limit: Limit<C>) -> Self {
        Self {
            limits: vec![limit],
            policy: ResponsePolicy::default(),
            max_wait: Span::ZERO,
            jitter: Jitter::new(Span::ZERO),
            waiting: Arc::default(),
        }
    }

    /// Takes a slot for a request that waits, unless all are taken.
    pub(super) fn waiter_slot(&self) -> Option<WaiterSlot> {
        let slot = WaiterSlot(Arc::clone(&self.waiting));
        (self.waiting.fetch_add(1, Ordering::Relaxed) < WAITING_MAX).then_some(slot)
    }

    /// Returns the header fields for these decisions, with `Retry-After` if the joint decision is a denial.
    pub(super) fn fields(&self, decisions: &JointDecision) -> PreparedFields {
        if self.policy.style.is_none() {
            return PreparedFields::default();
        }
        self.with_statuses(decisions, |statuses| self.policy.fields(statuses, &decisions.joint))
    }

    /// Calls `work` with the status of each limit that clients see, with its current rule.
    pub(super) fn with_statuses<R>(
        &self,
        decisions: &JointDecision,
        work: impl FnOnce(&[LimitStatus<'_>]) -> R,
    ) -> R {
        let limits =
            decisions.each.iter().map(|(index, decision)| (&self.limits[*index], *decision));
        let rules: SmallVec<[Rule; 1]> =
            limits.clone().map(|(limit, _)| limit.store.rule()).collect();
        let statuses = limits
            .zip(&rules)
            .filter_map(|((limit, decision), rule)| limit.mode.status(&limit.name, rule, decision));
        work(&statuses.collect::<SmallVec<[LimitStatus<'_>; 1]>>())
    }
}

impl<C: Clock> fmt::Debug for LimitSet<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LimitSet").field("limits", &self.limits).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bounded_number_of_requests_wait_at_a_time() {
        let set = LimitSet::new(Limit::new("api", "1/s").unwrap());
        let mut slots: Vec<_> = (0..WAITING_MAX).map(|_| set.waiter_slot().unwrap()).collect();
        assert!(set.waiter_slot().is_none());
        assert!(set.waiter_slot().is_none(), "a refused request takes no slot");
        slots.pop();
        assert!(set.waiter_slot().is_some());
    }
}

//! What all clones of a layer's services share.

use super::admission::{Admission, AfterAdmission, Decisions};
use super::settlement::Settlement;
use crate::head::Head;
use crate::jitter::Jitter;
use crate::limit::Limit;
use crate::response_policy::ResponsePolicy;
use smallvec::SmallVec;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tidegate::{Clock, Decision, Rule, Span};
use tidegate_http::{LimitStatus, PreparedFields};

#[derive(Clone)]
pub(crate) struct LimitSet<C: Clock> {
    pub(super) limits: Vec<Limit<C>>,
    pub(super) policy: ResponsePolicy,
    pub(super) patience: Span,
    pub(super) jitter: Jitter,
    /// How many wait without a index in a line.
    waiting: Arc<AtomicUsize>,
}

/// So many wait at a time for several limits, or for one in Redis; more are refused at once.
pub(super) const WAITING_MAX: usize = 4_096;

/// Somebody who waits.
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
            patience: Span::ZERO,
            jitter: Jitter::new(Span::ZERO),
            waiting: Arc::default(),
        }
    }

    /// A index among those who wait, if there is one.
    pub(super) fn waiter_slot(&self) -> Option<WaiterSlot> {
        let index = WaiterSlot(Arc::clone(&self.waiting));
        (self.waiting.fetch_add(1, Ordering::Relaxed) < WAITING_MAX).then_some(index)
    }

    /// Decides. One limit in memory, which is what most have, is decided on the spot.
    #[inline]
    pub(super) fn decide(self: &Arc<Self>, head: &Head<'_>) -> Admission<C> {
        if let [limit] = &self.limits[..]
            && let Some(limiter) = limit.store.memory()
            && !limit.is_shadow()
        {
            return self.decide_alone(limit, limiter, head);
        }
        self.decide_several(head)
    }

    /// What is left to do for a request that was admitted.
    #[inline]
    pub(super) fn pass(
        &self,
        decisions: &Decisions,
        settlement: Option<Settlement<C>>,
    ) -> Admission<C> {
        Admission::Admitted(AfterAdmission {
            fields: self.fields(decisions, &Decision::UNLIMITED),
            settlement,
        })
    }

    /// The header fields for these decisions, with `Retry-After` if `all` is a denial.
    pub(super) fn fields(&self, decisions: &Decisions, all: &Decision) -> PreparedFields {
        let mut fields = PreparedFields::default();
        if let Some(style) = self.policy.style {
            self.with_statuses(decisions, |statuses| style.write(&mut fields, statuses, all));
        }
        fields
    }

    /// Hands over the status of each limit that clients see, with its current rule.
    pub(super) fn with_statuses<R>(
        &self,
        decisions: &Decisions,
        work: impl FnOnce(&[LimitStatus<'_>]) -> R,
    ) -> R {
        let limits = decisions.iter().map(|(index, decision)| (&self.limits[*index], *decision));
        let rules: SmallVec<[Rule; 1]> =
            limits.clone().map(|(limit, _)| limit.store.rule()).collect();
        let statuses = limits
            .zip(&rules)
            .filter_map(|((limit, decision), rule)| limit.mode.status(&limit.name, rule, decision));
        work(&statuses.collect::<SmallVec<[LimitStatus<'_>; 1]>>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_wait_and_no_more_until_one_leaves() {
        let shared = LimitSet::new(Limit::new("api", "1/s").unwrap());
        let mut places: Vec<_> = (0..WAITING_MAX).map(|_| shared.waiter_slot().unwrap()).collect();
        assert!(shared.waiter_slot().is_none());
        assert!(shared.waiter_slot().is_none(), "who is refused takes no index");
        places.pop();
        assert!(shared.waiter_slot().is_some());
    }
}

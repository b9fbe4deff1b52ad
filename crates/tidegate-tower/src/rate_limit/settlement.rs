//! What happens to the costs of a request once its response is known, or is not.

use super::checks::Check;
use super::limit_set::LimitSet;
use crate::limited_body::Meter;
use crate::store::Store;
use http::{HeaderMap, StatusCode};
use std::sync::Arc;
use tidegate::Clock;

/// A request that has been charged, and may be charged more or given back.
pub(super) struct Settlement<C: Clock> {
    shared: Arc<LimitSet<C>>,
    checks: Vec<Check>,
    /// While it waits for its turn: whoever gives up gets it back.
    is_given_back: bool,
}

impl<C: Clock> Settlement<C> {
    /// Nothing, if no limit wants to hear of the response.
    pub(super) fn of(shared: &Arc<LimitSet<C>>, mut checks: Vec<Check>) -> Option<Self> {
        checks.retain(|check| !shared.limits[check.index].after_response.is_nothing());
        if checks.is_empty() {
            return None;
        }
        let shared = Arc::clone(shared);
        Some(Self { shared, checks, is_given_back: false })
    }

    /// Gives back what was charged if it is dropped before it is kept.
    pub(super) fn always(shared: &Arc<LimitSet<C>>, checks: Vec<Check>) -> Self {
        Self { shared: Arc::clone(shared), checks, is_given_back: true }
    }

    pub(super) fn into_questions(mut self) -> Vec<Check> {
        self.is_given_back = false;
        std::mem::take(&mut self.checks)
    }

    /// Gives back what was charged, now.
    pub(super) fn give_back(self) -> Vec<Check> {
        self.refund_obeyed();
        self.into_questions()
    }

    pub(super) fn kept(self) -> Option<Self> {
        let shared = Arc::clone(&self.shared);
        Self::of(&shared, self.into_questions())
    }

    fn refund_obeyed(&self) {
        for check in &self.checks {
            let limit = &self.shared.limits[check.index];
            // Those in the shadow are asked when all others have passed.
            if !limit.is_shadow() && !check.is_drained(limit.clock.now()) {
                limit.store.refund(&check.key, check.cost);
            }
        }
    }

    /// The service has failed: whoever refunds at all refunds this.
    pub(super) fn failed(&self) {
        self.refund_where(|refund| refund.is_some());
    }

    /// The response is known. What flows from now on is metered, if a limit charges it.
    pub(super) fn answered(
        self,
        status: StatusCode,
        headers: &HeaderMap,
    ) -> Option<Box<dyn Meter>> {
        self.refund_where(|refund| refund.is_some_and(|refund| refund(status, headers)));
        let limits = &self.shared.limits;
        for check in &self.checks {
            let limit = &limits[check.index];
            if let Some(charge) = &limit.after_response.charge {
                limit.store.charge_whole(&check.key, charge(status, headers));
            }
        }
        let is_metered = |check: &Check| limits[check.index].after_response.is_charged_by_byte;
        let metered = self.checks.iter().filter(|check| is_metered(check)).count();
        (metered > 0).then(|| -> Box<dyn Meter> {
            let count = self.checks.len();
            Box::new(Metered { settlement: self, owed: vec![0; count] })
        })
    }

    fn refund_where(
        &self,
        is_refunded: impl Fn(Option<&(dyn Fn(StatusCode, &HeaderMap) -> bool + Send + Sync)>) -> bool,
    ) {
        for check in &self.checks {
            let limit = &self.shared.limits[check.index];
            let is_left = !check.is_drained(limit.clock.now());
            if is_left && is_refunded(limit.after_response.refund.as_deref()) {
                limit.store.refund(&check.key, check.cost);
            }
        }
    }
}

impl<C: Clock> Drop for Settlement<C> {
    fn drop(&mut self) {
        if self.is_given_back {
            self.refund_obeyed();
        }
    }
}

/// Charges bytes as they flow, and what there was no room for at the end.
struct Metered<C: Clock> {
    settlement: Settlement<C>,
    /// For each check, what flowed and was not charged.
    owed: Vec<u64>,
}

impl<C: Clock> Metered<C> {
    fn each(&mut self, work: impl Fn(&Store<C>, &[u8], &mut u64)) {
        let limits = &self.settlement.shared.limits;
        for (check, owed) in self.settlement.checks.iter().zip(&mut self.owed) {
            let limit = &limits[check.index];
            if limit.after_response.is_charged_by_byte {
                work(&limit.store, &check.key, owed);
            }
        }
    }
}

impl<C: Clock> Meter for Metered<C> {
    fn flowed(&mut self, bytes: u64) {
        self.each(|store, key, owed| *owed = store.charge(key, owed.saturating_add(bytes)));
    }
}

impl<C: Clock> Drop for Metered<C> {
    fn drop(&mut self) {
        self.each(|store, key, owed| store.charge_whole(key, *owed));
    }
}

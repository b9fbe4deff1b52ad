//! Refunds and further charges once the response to a request is known.

use super::checks::{Check, CheckList};
use super::limit_set::LimitSet;
use crate::limit::Limit;
use crate::response::body::BodyGuard;
use http::{HeaderMap, StatusCode};
use std::sync::Arc;
use tidegate::Clock;

/// The checks of an admitted request whose limits look at the response.
pub(super) struct Settlement<C: Clock> {
    set: Arc<LimitSet<C>>,
    checks: Vec<Check>,
}

impl<C: Clock> Settlement<C> {
    /// Returns `None` if no limit that was charged looks at the response.
    pub(super) fn of(set: &Arc<LimitSet<C>>, checks: CheckList) -> Option<Self> {
        if set.limits.iter().all(|limit| limit.after_response.is_nothing()) {
            return None;
        }
        let is_settled = |check: &Check| {
            check.drained_at.is_some() && !set.limits[check.limit].after_response.is_nothing()
        };
        let checks: Vec<Check> = checks.into_iter().filter(is_settled).collect();
        (!checks.is_empty()).then(|| Self { set: Arc::clone(set), checks })
    }

    /// Refunds limits with `refund_if`, because the service has failed.
    pub(super) fn failed(&self) {
        self.refund_where(|limit| limit.after_response.refund.is_some());
    }

    /// Refunds and charges by the head of the response. Returns a meter for its body if a limit charges bytes.
    pub(super) fn answered(
        self,
        status: StatusCode,
        headers: &HeaderMap,
    ) -> Option<Box<dyn BodyGuard>> {
        self.refund_where(|limit| {
            limit.after_response.refund.as_ref().is_some_and(|refund| refund(status, headers))
        });
        for (check, limit) in self.checks() {
            if let Some(charge) = &limit.after_response.charge {
                limit.store.charge_in_background(&check.key, charge(status, headers));
            }
        }
        let is_metered = self.checks().any(|(_, limit)| limit.after_response.is_charged_by_byte);
        is_metered.then(|| Box::new(ByteMeter { settlement: self, bytes: 0 }) as Box<dyn BodyGuard>)
    }

    fn refund_where(&self, is_refunded: impl Fn(&Limit<C>) -> bool) {
        for (check, limit) in self.checks() {
            if check.is_refundable(limit.clock.now()) && is_refunded(limit) {
                limit.store.refund_in_background(&check.key, check.cost);
            }
        }
    }

    fn checks(&self) -> impl Iterator<Item = (&Check, &Limit<C>)> {
        self.checks.iter().map(|check| (check, &self.set.limits[check.limit]))
    }
}

/// Charges the bytes of a body: limits in memory as the bytes flow, others in one request at the end.
struct ByteMeter<C: Clock> {
    settlement: Settlement<C>,
    bytes: u64,
}

impl<C: Clock> ByteMeter<C> {
    fn charge(&self, is_shared: bool, bytes: u64) {
        for (check, limit) in self.settlement.checks() {
            if limit.after_response.is_charged_by_byte && limit.store.is_shared() == is_shared {
                limit.store.charge_in_background(&check.key, bytes);
            }
        }
    }
}

impl<C: Clock> BodyGuard for ByteMeter<C> {
    fn flowed(&mut self, bytes: u64) {
        self.bytes = self.bytes.saturating_add(bytes);
        self.charge(false, bytes);
    }
}

impl<C: Clock> Drop for ByteMeter<C> {
    fn drop(&mut self) {
        self.charge(true, self.bytes);
    }
}

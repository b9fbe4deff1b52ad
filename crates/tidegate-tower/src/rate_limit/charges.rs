//! Several limits decided as one: all are charged, or none is.
//!
//! Always   Each store decides its limits in one step. Where a layer has limits in memory and in Redis, memory decides first and
//!          is refunded if Redis denies: for that moment other requests may be denied, but never too many are admitted.
//! Always   A request that is given up while it waits is refunded, except for what has drained by then.

use super::checks::{Check, CheckList};
use super::decisions::JointDecision;
use super::limit_set::LimitSet;
use crate::limit::Limit;
use std::sync::Arc;
use tidegate::store::CheckRequest;
use tidegate::{Clock, Joint, Span};
use tidegate_http::ShadowAction;

/// The checks of a request that is not admitted yet. What was charged is refunded when this is dropped.
pub(super) struct Charges<C: Clock> {
    set: Arc<LimitSet<C>>,
    checks: CheckList,
}

impl<C: Clock> Charges<C> {
    pub(super) fn new(set: Arc<LimitSet<C>>, checks: CheckList) -> Self {
        Self { set, checks }
    }

    /// Decides the limits that are enforced. A request that would have to wait for longer than `max_wait` is denied.
    pub(super) async fn decide(&mut self, max_wait: Span) -> JointDecision {
        let mut decisions = JointDecision::none();
        for is_shared in [false, true] {
            let (limits, joint) = self.decide_in_store(is_shared, max_wait).await;
            let decided = decisions.each.len();
            decisions.add(limits.into_iter(), joint);
            if decisions.joint.is_deny() {
                self.refund();
                return decisions;
            }
            self.charged(&decisions, decided);
        }
        decisions
    }

    /// Decides the limits of one store. Returns their indexes and decisions.
    async fn decide_in_store(&self, is_shared: bool, max_wait: Span) -> (Vec<usize>, Joint) {
        let enforced = self.checks.iter().map(|check| (check, &self.set.limits[check.limit]));
        let (limits, requests): (Vec<usize>, Vec<CheckRequest<'_>>) = enforced
            .filter(|(_, limit)| !limit.is_shadow() && limit.store.is_shared() == is_shared)
            .map(|(check, limit)| (check.limit, request(check, limit, max_wait)))
            .unzip();
        let joint = match requests.first() {
            Some(first) => first.limit.check_all(&requests).await,
            None => Ok(Joint::of(Vec::new())),
        };
        (limits, joint.expect("the limits are of one store"))
    }

    /// Records the charges of the decisions from the one with this number on.
    pub(super) fn charged(&mut self, decisions: &JointDecision, from: usize) {
        for (index, decision) in &decisions.each[from..] {
            let now = self.set.limits[*index].clock.now();
            for check in self.checks.iter_mut().filter(|check| check.limit == *index) {
                check.charged(now, decision);
            }
        }
    }

    /// Refunds what was charged.
    fn refund(&mut self) {
        for check in &mut self.checks {
            let limit = &self.set.limits[check.limit];
            if check.is_refundable(limit.clock.now()) {
                limit.store.refund_in_background(&check.key, check.cost);
            }
            check.drained_at = None;
        }
    }

    /// Decides the limits in shadow mode, now that the decision of the others is final.
    pub(super) async fn decide_shadows(&self, decisions: &mut JointDecision) {
        for check in &self.checks {
            let limit = &self.set.limits[check.limit];
            if !limit.is_shadow() {
                continue;
            }
            let decision = match ShadowAction::after(&decisions.joint) {
                ShadowAction::Check => Ok(limit.store.check(&check.key, check.cost).await),
                ShadowAction::Peek => limit.store.peek(&check.key, check.cost).await,
            };
            // A store that does not answer has no decision to report.
            decisions.each.extend(decision.ok().map(|decision| (check.limit, decision)));
        }
    }

    /// Returns the checks, which are no longer refunded.
    pub(super) fn keep(mut self) -> CheckList {
        std::mem::take(&mut self.checks)
    }
}

fn request<'a, C: Clock>(
    check: &'a Check,
    limit: &'a Limit<C>,
    max_wait: Span,
) -> CheckRequest<'a> {
    CheckRequest { limit: &*limit.store, key: &check.key, cost: check.cost, max_wait }
}

impl<C: Clock> Drop for Charges<C> {
    fn drop(&mut self) {
        self.refund();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::KeyBytes;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};
    use tidegate::{Limiter, ManualClock};

    /// Redis takes its time to deny, or the client gives up before it does.
    #[test]
    fn what_drained_while_redis_was_asked_is_not_refunded() {
        let clock = ManualClock::new();
        let limiter = Limiter::with_clock("10/s".parse().unwrap(), clock.clone());
        let set = Arc::new(LimitSet::new(Limit::over("memory", limiter.clone())));
        for asked_for in [99, 100].map(Span::from_millis) {
            clock.advance(Span::from_secs(1));
            let check = Check::new(0, KeyBytes::new(), 1);
            let mut charges = Charges::new(Arc::clone(&set), CheckList::from_iter([check]));
            let decided =
                pin!(charges.decide(Span::MAX)).poll(&mut Context::from_waker(Waker::noop()));
            assert!(matches!(decided, Poll::Ready(decisions) if decisions.joint.is_allow()));
            clock.advance(asked_for);
            assert!(limiter.check_n(&b""[..], 6).is_allow(), "another request");
            drop(charges);
            let remaining = limiter.check_n(&b""[..], 0).remaining;
            assert_eq!(remaining, 4, "as if it had never been asked, after {asked_for}");
        }
    }
}

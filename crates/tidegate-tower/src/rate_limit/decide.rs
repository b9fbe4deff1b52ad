//! Decides a request: at once where one limit in memory counts it, otherwise in a future.
//!
//! Always   A limit in shadow mode is decided on its own, after the others, and rejects no request: see
//!          [`ShadowAction`](tidegate_http::ShadowAction).
//! Speed    `decide_at_once` takes no box: an admitted request takes 5 500 instructions instead of 10 200 in the future, a denied
//!          one 8 700 instead of 12 700, without those of the call itself (`cargo xtask instructions`: `layer-allowed` and
//!          `layer-denied` less `layer-none`). `a_limit_that_several_layers_share_counts_each_request_once` in
//!          `tests/layers/keys.rs` compares both paths.

use super::admission::{AfterAdmission, Rejection};
use super::charges::Charges;
use super::checks::{Check, CheckList, Checks};
use super::decisions::{JointDecision, after_wait};
use super::limit_set::LimitSet;
use super::settlement::Settlement;
use crate::admission::AdmissionControl;
use crate::head::{AddressSource, Head};
use crate::limit::Limit;
use crate::response::jitter::with_later_retry;
use bytes::Bytes;
use http::Response;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use tidegate::{Clock, Decision, Denied, Retry, Span, Verdict};
use tidegate_http::PreparedFields;

type Admission<C> = crate::admission::Admission<LimitSet<C>>;

impl<C: Clock> AdmissionControl for LimitSet<C> {
    type AfterAdmission = AfterAdmission<C>;
    type Rejection = Rejection;

    #[inline]
    fn address_source(&self) -> &AddressSource {
        &self.policy.address_source
    }

    #[inline]
    fn decide(self: &Arc<Self>, head: &Head<'_>) -> Admission<C> {
        let checks = match self.checks(head) {
            Ok(checks) => checks,
            Err(no_key) => return Admission::Rejected(Rejection::NoKey(no_key)),
        };
        if checks.is_complete() {
            match &checks.known[..] {
                [] => return self.conclude(checks.known, JointDecision::none()),
                [check] => {
                    if let Some(decision) = self.decide_at_once(check) {
                        let decisions = JointDecision::of_one(check.limit, decision);
                        return self.conclude(checks.known, decisions);
                    }
                }
                _ => {}
            }
        }
        self.decide_in_future(checks)
    }

    fn rejection(&self, head: &Head<'_>, why: &Rejection) -> Response<Bytes> {
        why.response(self, head)
    }

    fn denial(&self, why: &Rejection) -> Option<(Denied, PreparedFields)> {
        why.denial(self)
    }
}

impl<C: Clock> LimitSet<C> {
    /// Decides the only check of a request, if the limit is in memory and its requests do not wait.
    #[inline]
    fn decide_at_once(&self, check: &Check) -> Option<Decision> {
        let limit = &self.limits[check.limit];
        if limit.is_shadow() || limit.store.is_shared() || self.may_wait(limit) {
            return None;
        }
        limit.store.check(&check.key, check.cost).ready().ok()
    }

    fn may_wait(&self, limit: &Limit<C>) -> bool {
        !self.max_wait.is_zero() || limit.rule.delays_requests()
    }

    #[cold]
    fn decide_in_future(self: &Arc<Self>, checks: Checks) -> Admission<C> {
        let is_local = self.limits.iter().all(|limit| !limit.store.is_shared());
        let is_polled = is_local && checks.is_complete();
        let mut future = Box::pin(Arc::clone(self).decide_all(checks));
        // Limits in memory decide now, in the order of the calls. A request that has to wait is polled again, with a waker.
        if is_polled
            && let Poll::Ready(admission) =
                future.as_mut().poll(&mut Context::from_waker(Waker::noop()))
        {
            return admission;
        }
        Admission::Pending(future)
    }

    async fn decide_all(self: Arc<Self>, checks: Checks) -> Admission<C> {
        let checks = match checks.complete(&self).await {
            Ok(checks) => checks,
            Err(no_key) => return Admission::Rejected(Rejection::NoKey(no_key)),
        };
        if let [check] = &checks[..] {
            let limit = &self.limits[check.limit];
            if !limit.is_shadow() && !limit.store.is_shared() && self.may_wait(limit) {
                let decision = self.acquire(limit, check).await;
                let decisions = JointDecision::of_one(check.limit, decision);
                return self.conclude(checks, decisions);
            }
        }
        let clock = self.limits[0].clock.clone();
        let deadline = clock.now() + self.max_wait;
        let time_left = || deadline.since(clock.now());
        let mut charges = Charges::new(Arc::clone(&self), checks);
        loop {
            // A rule that delays requests has a maximum of its own.
            let max_wait = if self.max_wait.is_zero() { Span::MAX } else { time_left() };
            let decisions = charges.decide(max_wait).await;
            if let Some(delay) = self.retry_delay(&decisions, time_left())
                && let Some(_slot) = self.waiter_slot()
            {
                clock.sleep_until(clock.now() + delay).await;
                continue;
            }
            return self.wait_and_conclude(charges, decisions).await;
        }
    }

    /// Waits for the turn of a request in the queue of its limit, which serves requests in the order of arrival.
    async fn acquire(&self, limit: &Limit<C>, check: &Check) -> Decision {
        let max_wait = if self.max_wait.is_zero() { Span::MAX } else { self.max_wait };
        let began = limit.clock.now();
        match limit.store.acquire(&check.key, check.cost, max_wait).await {
            Ok(permit) => {
                let waited = limit.clock.now().since(began);
                let mut decision = after_wait(permit.decision(), waited);
                decision.verdict = Verdict::Allow;
                decision
            }
            Err(denied) => denied.decision,
        }
    }

    /// Returns after how long a denied request is worth another try, if that is in time.
    fn retry_delay(&self, decisions: &JointDecision, time_left: Span) -> Option<Span> {
        let Verdict::Deny(Retry::After(delay)) = decisions.joint.verdict else { return None };
        // A rule that delays requests has denied this one because it may not wait.
        let is_final = |(limit, decision): &(usize, Decision)| {
            decision.is_deny() && self.limits[*limit].store.rule().delays_requests()
        };
        let is_in_time = !time_left.is_zero() && delay <= time_left;
        (is_in_time && !decisions.each.iter().any(is_final)).then_some(delay)
    }

    /// Waits as long as the limits say. A request that is given up meanwhile is refunded.
    async fn wait_and_conclude(
        self: Arc<Self>,
        charges: Charges<C>,
        mut decisions: JointDecision,
    ) -> Admission<C> {
        if let Verdict::Wait(wait) = decisions.joint.verdict {
            let clock = &self.limits[0].clock;
            let began = clock.now();
            clock.sleep_until(began + wait).await;
            decisions = decisions.after_wait(clock.now().since(began));
        }
        charges.decide_shadows(&mut decisions).await;
        self.conclude(charges.keep(), decisions)
    }

    /// Reports the decisions to observers, and prepares the response.
    #[inline]
    fn conclude(
        self: &Arc<Self>,
        mut checks: CheckList,
        mut decisions: JointDecision,
    ) -> Admission<C> {
        if let Verdict::Wait(_) = decisions.joint.verdict {
            return self.delay(checks, decisions);
        }
        let is_denied = decisions.joint.is_deny();
        // All limits get the same jitter, so that none of them reports an earlier time than the joint decision.
        let jitter = if is_denied { self.jitter.draw() } else { Span::ZERO };
        for (index, decision) in &mut decisions.each {
            let limit = &self.limits[*index];
            let Some(check) = checks.iter_mut().find(|check| check.limit == *index) else {
                continue;
            };
            // A limit has admitted nothing if another one denies; one in shadow mode was only peeked at.
            if !is_denied || (decision.is_deny() && !limit.is_shadow()) {
                self.policy.observe(limit, *decision, Some(&check.key), check.cost);
            }
            let is_unrecorded = check.drained_at.is_none() && !limit.after_response.is_nothing();
            if is_unrecorded && !is_denied && !decision.is_deny() {
                check.charged(limit.clock.now(), decision);
            }
            if !limit.is_shadow() {
                *decision = with_later_retry(*decision, jitter);
            }
        }
        if is_denied {
            decisions.joint = with_later_retry(decisions.joint, jitter);
            return Admission::Rejected(Rejection::Denied(decisions));
        }
        let settlement = Settlement::of(self, checks);
        Admission::Admitted(AfterAdmission { fields: self.fields(&decisions), settlement })
    }

    /// Waits after all: the rule was changed to one that delays requests.
    #[cold]
    fn delay(self: &Arc<Self>, checks: CheckList, decisions: JointDecision) -> Admission<C> {
        // Made before the future, which may be dropped before it is polled.
        let mut charges = Charges::new(Arc::clone(self), checks);
        charges.charged(&decisions, 0);
        Admission::Pending(Box::pin(Arc::clone(self).wait_and_conclude(charges, decisions)))
    }
}

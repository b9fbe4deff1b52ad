//! One limit in memory: decided where the request stands, without a box and without an allocation.

use super::admission::{Admission, Decisions, RejectReason, Rejection};
use super::checks::Check;
use super::limit_set::LimitSet;
use super::settlement::Settlement;
use crate::head::Head;
use crate::key::{KeyBytes, KeyLookup};
use crate::limit::{Limit, OnMissing};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use tidegate::{Acquire, Clock, Decision, Denied, Limiter, Permit, Span, Timestamp, Verdict};

impl<C: Clock> LimitSet<C> {
    #[inline]
    pub(super) fn decide_alone(
        self: &Arc<Self>,
        limit: &Limit<C>,
        limiter: &Limiter<C>,
        head: &Head<'_>,
    ) -> Admission<C> {
        if !limit.counts(head) {
            return Admission::uncounted();
        }
        let found = limit.key_of(head);
        let key = match &found {
            KeyLookup::Key(key) => &key[..],
            KeyLookup::Pending => return self.decide_several(head),
            KeyLookup::Missing(missing) => match limit.without_key(*missing) {
                Some(OnMissing::Shared) => &[],
                Some(OnMissing::Allow) => return Admission::uncounted(),
                Some(OnMissing::Deny) | None => {
                    return Admission::refuse(RejectReason::NoKey { limit: 0, missing: *missing });
                }
            },
        };
        let cost = limit.cost_of(head);
        if !self.patience.is_zero() || limit.rule.delays_requests() {
            return self.wait_alone(limiter, key, cost);
        }
        let decision = limiter.check_n(key, cost);
        self.conclude_alone(key, cost, decision)
    }

    /// The key is copied by who needs it later: most do not. To let them take it instead cost all others 8 of 107 ns.
    #[inline]
    fn conclude_alone(self: &Arc<Self>, key: &[u8], cost: u64, decision: Decision) -> Admission<C> {
        let limit = &self.limits[0];
        self.policy.observe(limit, decision, Some(key), cost);
        match decision.verdict {
            Verdict::Deny(_) => {
                let decision = self.jitter.spread(decision);
                Admission::Rejected(Rejection {
                    decisions: single(decision),
                    why: RejectReason::Denied(decision),
                })
            }
            Verdict::Allow if limit.after_response.is_nothing() => {
                self.pass(&single(decision), None)
            }
            Verdict::Allow => {
                let key = KeyBytes::from_slice(key);
                let drained_at = Some(Check::drains_at(limit.clock.now(), &decision));
                let check = Check { index: 0, key, cost, drained_at };
                let settlement = Settlement::of(self, vec![check]);
                self.pass(&single(decision), settlement)
            }
            // The rule was changed to one that makes requests wait.
            Verdict::Wait(span) => self.wait_out(KeyBytes::from_slice(key), cost, decision, span),
        }
    }

    /// Takes a turn, if it comes in time. Most often it is now.
    fn wait_alone(self: &Arc<Self>, limiter: &Limiter<C>, key: &[u8], cost: u64) -> Admission<C> {
        // A rule that makes requests wait says itself how long.
        let patience = if self.patience.is_zero() { Span::MAX } else { self.patience };
        let asked_at = limiter.clock().now();
        let mut acquire = limiter.request(key).cost(cost).within(patience).acquire();
        // Whoever has to wait is polled again, with a waker that wakes.
        let mut nobody = Context::from_waker(Waker::noop());
        if let Poll::Ready(answer) = Pin::new(&mut acquire).poll(&mut nobody) {
            return self.conclude_alone(key, cost, turned(answer));
        }
        Admission::Pending(Box::pin(wait(
            Arc::clone(self),
            acquire,
            KeyBytes::from_slice(key),
            cost,
            asked_at,
        )))
    }

    fn wait_out(
        self: &Arc<Self>,
        key: KeyBytes,
        cost: u64,
        mut decision: Decision,
        span: Span,
    ) -> Admission<C> {
        let shared = Arc::clone(self);
        let clock = self.limits[0].clock.clone();
        let now = clock.now();
        let sleep = clock.sleep_until(now + span);
        decision.verdict = Verdict::Allow;
        let drained_at = Some(Check::drains_at(now, &decision));
        // Made before the future is: who never asks it has given up too.
        let charged = Settlement::always(&shared, vec![Check { index: 0, key, cost, drained_at }]);
        Admission::Pending(Box::pin(async move {
            sleep.await;
            let decision = seen_after(decision, clock.now().since(now));
            shared.pass(&single(decision), charged.kept())
        }))
    }
}

fn single(decision: Decision) -> Decisions {
    Decisions::from_buf([(0, decision)])
}

async fn wait<C: Clock>(
    shared: Arc<LimitSet<C>>,
    acquire: Acquire<C>,
    key: KeyBytes,
    cost: u64,
    asked_at: Timestamp,
) -> Admission<C> {
    let clock = &shared.limits[0].clock;
    let answer = acquire.await;
    let decision = seen_after(turned(answer), clock.now().since(asked_at));
    shared.conclude_alone(&key, cost, decision)
}

/// What a wait has come to: a turn that has come is an admission.
fn turned<C: Clock>(answer: Result<Permit<C>, Denied>) -> Decision {
    match answer {
        Ok(permit) => {
            let mut decision = permit.decision();
            decision.verdict = Verdict::Allow;
            decision
        }
        Err(denied) => denied.decision,
    }
}

/// An admission that was decided before a wait, told after it. A denial is as of when it is told.
pub(super) fn seen_after(mut decision: Decision, waited: Span) -> Decision {
    // What never comes back is not nearer for having waited.
    if !decision.is_deny() && decision.reset_after < Span::MAX {
        decision.reset_after = decision.reset_after.saturating_sub(waited);
    }
    decision
}

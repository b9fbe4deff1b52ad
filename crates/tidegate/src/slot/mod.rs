//! One key under one limit: its state, and the requests that wait for it.
//!
//! Always   The gate or shard that owns the slot holds its lock during each method call, so no thread sees the state
//!          without the queues that belong to it.

mod admission_time;
mod context;
mod debt;
mod permit_queue;
mod rate_queue;
mod waiter;

pub(crate) use context::DecisionContext;
pub(crate) use permit_queue::PermitWait;
pub(crate) use rate_queue::RateWait;
pub(crate) use waiter::WaitOutcome;

use crate::sync::wake::WakeList;
use permit_queue::PermitQueue;
use rate_queue::RateQueue;
use tidegate_core::{Decision, Denied, Limit, Retry, Span, State, Ticket, Timestamp, Verdict};

#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) state: State,
    rate_queue: RateQueue,
    permit_queue: PermitQueue,
    /// The `concurrency` limit before a change to a rule without permits, and its requests in flight: a later
    /// `concurrency` rule counts them again.
    parked: Option<Box<(Limit, State)>>,
    /// The time of the last reset that cleared requests in flight. Their permits may still be dropped later. Until the
    /// clock advances, only the number of a ticket distinguishes such a permit from a new one, so numbering continues
    /// and the key is not evicted.
    reset_at: Option<Timestamp>,
    /// Whether every request is denied.
    is_closed: bool,
}

/// The result of a request that may wait.
pub(crate) enum Admission {
    /// Admitted now. A ticket has to be released.
    Now(Decision, Option<Ticket>),
    /// Charged, and admitted at a known time.
    Later(Decision, RateWait),
    /// Waits in the permit queue, for an unknown time.
    Queued(PermitWait),
    /// Denied, and not charged.
    Denied(Denied),
}

impl Admission {
    pub(crate) fn verdict(&self) -> Verdict {
        match self {
            Self::Now(decision, _) | Self::Later(decision, _) => decision.verdict,
            Self::Queued(_) => Verdict::Wait(Span::MAX),
            Self::Denied(denied) => denied.decision.verdict,
        }
    }
}

impl Slot {
    pub(crate) fn new(state: State) -> Self {
        let (rate_queue, permit_queue) = (RateQueue::default(), PermitQueue::default());
        Self { state, rate_queue, permit_queue, parked: None, reset_at: None, is_closed: false }
    }

    /// Returns a slot that denies every request. A request that would have to wait is denied too, because the slot is
    /// dropped after the call, and its queue with it.
    pub(crate) fn closed(state: State) -> Self {
        Self { is_closed: true, ..Self::new(state) }
    }

    /// Recreates the slot of a key whose saved state is that of a later time, because of debt or waiters. Returns `None`
    /// for all other keys, whose slot has no more than the state.
    pub(crate) fn of_debtor(limit: &Limit, state: &State, now: Timestamp) -> Option<Self> {
        let rate_queue = RateQueue::of_saved(limit, state, now)?;
        Some(Self { rate_queue, ..Self::new(state.clone()) })
    }

    /// Takes over the usage and the debt of another slot.
    pub(crate) fn inherit(&mut self, other: Self) {
        (self.state, self.rate_queue) = (other.state, other.rate_queue);
    }

    /// Returns whether a request waits for this key.
    pub(crate) fn has_waiters(&self) -> bool {
        self.rate_queue.has_waiters() || !self.permit_queue.is_empty()
    }

    /// Returns whether the slot has no more than its state: no waiters, and no requests in flight under an earlier rule.
    pub(crate) fn is_plain(&self) -> bool {
        !self.has_waiters() && self.parked.is_none()
    }

    /// Returns whether evicting this key changes no decision.
    ///
    /// A sweep may pass a time before that of the last request. If requests wait, this returns `false` then, and leaves
    /// their turns as they are: only a request may move them.
    pub(crate) fn is_idle(&mut self, context: &mut DecisionContext<'_>) -> bool {
        let DecisionContext { limit, now, .. } = *context;
        if self.has_waiters() && self.rate_queue.is_ahead_of(now) {
            return false;
        }
        self.rate_queue.settle(context, &mut self.state);
        let is_parked = |parked: &(Limit, State)| {
            let (limit, state) = parked;
            !limit.peek(state, now, 0).reset_after.is_zero()
        };
        !self.has_waiters()
            && !self.was_just_reset(now)
            && !self.parked.as_deref().is_some_and(is_parked)
            && limit.peek(&self.state, now, 0).reset_after.is_zero()
    }

    fn was_just_reset(&self, now: Timestamp) -> bool {
        self.reset_at.is_some_and(|at| now <= at)
    }

    /// Decides a request that does not wait, and charges it unless it is denied.
    pub(crate) fn check(&mut self, context: &mut DecisionContext<'_>, cost: u64) -> Decision {
        let DecisionContext { limit, now, .. } = *context;
        if self.is_closed {
            return self.peek(context, cost);
        }
        if limit.is_concurrency() {
            // A check holds no permit: it is released before another thread can see it.
            let (decision, ticket) = self.permit_queue.enter(context, &mut self.state, cost);
            if let Some(ticket) = ticket {
                limit.release(&mut self.state, ticket);
            }
            return decision;
        }
        self.rate_queue.settle(context, &mut self.state);
        if self.rate_queue.is_empty() {
            return limit.decide(&mut self.state, now, cost);
        }
        let decision = self.peek_behind(limit, now, cost);
        if cost > 0 && !decision.is_deny() {
            // Only a rule that delays requests admits one behind the queue. The request was told its delay, so the turns
            // before it become final.
            let _ = limit.decide(&mut self.state, now, cost);
            self.rate_queue.freeze();
        }
        decision
    }

    /// Decides like [`check`](Self::check), but denies the request if the rule would delay it for longer than `max_wait`.
    pub(crate) fn check_within(
        &mut self,
        context: &mut DecisionContext<'_>,
        (cost, max_wait): (u64, Span),
    ) -> Decision {
        let DecisionContext { limit, .. } = *context;
        if limit.delays_requests() && max_wait < Span::MAX {
            let decision = self.peek_within(context, (cost, max_wait));
            if decision.is_deny() {
                return decision;
            }
        }
        self.check(context, cost)
    }

    /// Returns what [`check_within`](Self::check_within) would decide, without charging.
    pub(crate) fn peek_within(
        &mut self,
        context: &mut DecisionContext<'_>,
        (cost, max_wait): (u64, Span),
    ) -> Decision {
        let DecisionContext { limit, now, .. } = *context;
        let decision = self.peek(context, cost);
        match decision.verdict {
            Verdict::Wait(wait) if wait > max_wait => {
                self.refusal(limit, now, cost, max_wait).decision
            }
            _ => decision,
        }
    }

    /// Returns what [`check`](Self::check) would decide, without charging.
    pub(crate) fn peek(&mut self, context: &mut DecisionContext<'_>, cost: u64) -> Decision {
        let DecisionContext { limit, now, .. } = *context;
        if self.is_closed && cost > 0 {
            return self.refused(limit, now, cost).decision;
        }
        if limit.is_concurrency() {
            // Leases may have ended since the last call.
            self.permit_queue.grant(context, &mut self.state);
            let mut decision = limit.peek(&self.state, now, cost);
            if !self.permit_queue.is_empty() && cost > 0 && !decision.is_deny() {
                decision = limit.peek(&self.state, now, 0).deny(Retry::OnRelease).decision;
            }
            return decision;
        }
        self.rate_queue.settle(context, &mut self.state);
        if self.rate_queue.is_empty() {
            return limit.peek(&self.state, now, cost);
        }
        self.peek_behind(limit, now, cost)
    }

    /// Returns the denial of a closed slot. If its state would admit the request after a wait, that wait is the time to
    /// retry.
    fn refused(&self, limit: &Limit, now: Timestamp, cost: u64) -> Denied {
        let retry = match limit.peek(&self.state, now, cost).verdict {
            Verdict::Deny(retry) => retry,
            Verdict::Wait(wait) => Retry::After(wait),
            Verdict::Allow => Retry::After(Span::from_micros(1)),
        };
        limit.peek(&self.state, now, 0).deny(retry)
    }

    /// Returns the decision on a request that does not wait, while other requests do.
    fn peek_behind(&self, limit: &Limit, now: Timestamp, cost: u64) -> Decision {
        let seen = self.seen_behind(limit, now);
        if cost == 0 {
            return seen;
        }
        match self.rate_queue.forecast(limit, &self.state, now, cost) {
            Ok((_, _, joined)) if limit.delays_requests() => joined,
            Ok((at, ..)) => seen.deny(Retry::After(at.since(now))).decision,
            Err(denied) if limit.delays_requests() => denied.decision,
            // The limit denied this cost as of the end of the queue; the numbers are the current ones.
            Err(_) => seen.deny(Retry::Never).decision,
        }
    }

    /// Returns the numbers for a request behind the queue: nothing remains, because the waiters come first.
    fn seen_behind(&self, limit: &Limit, now: Timestamp) -> Decision {
        if limit.delays_requests() {
            return limit.peek(&self.state, now, 0);
        }
        let mut seen = match self.rate_queue.forecast(limit, &self.state, now, 0) {
            Ok((_, _, decision)) => decision,
            Err(denied) => denied.decision,
        };
        seen.remaining = 0;
        seen.verdict = Verdict::Allow;
        seen
    }

    /// Decides a request that waits for at most `max_wait`.
    pub(crate) fn admit(
        &mut self,
        context: &mut DecisionContext<'_>,
        cost: u64,
        max_wait: Span,
    ) -> Admission {
        let DecisionContext { limit, now, .. } = *context;
        if self.is_closed && cost > 0 {
            return Admission::Denied(self.refused(limit, now, cost));
        }
        if limit.is_concurrency() {
            return self.admit_permit(context, cost, max_wait);
        }
        self.rate_queue.settle(context, &mut self.state);
        if cost == 0 {
            return Admission::Now(self.peek(context, 0), None);
        }
        if max_wait.is_zero() && self.rate_queue.is_empty() && !limit.delays_requests() {
            // The request does not wait, so its turn need not be computed.
            let decision = limit.decide(&mut self.state, now, cost);
            return match decision.verdict {
                Verdict::Deny(retry) => Admission::Denied(decision.deny(retry)),
                _ => Admission::Now(decision, None),
            };
        }
        if self.rate_queue.is_full() {
            return self.deny_full(context);
        }
        match self.rate_queue.forecast(limit, &self.state, now, cost) {
            Ok((at, after, decision)) if at.since(now) <= max_wait => {
                let before = std::mem::replace(&mut self.state, after);
                if at <= now {
                    if !self.rate_queue.is_empty() {
                        // Only a rule that delays requests admits one behind the queue.
                        self.rate_queue.freeze();
                    }
                    return Admission::Now(decision, None);
                }
                Admission::Later(decision, self.rate_queue.join(limit, &before, now, at, cost))
            }
            Ok((at, ..)) if !limit.delays_requests() => {
                let retry_after = at.since(now).saturating_sub(max_wait);
                Admission::Denied(self.peek(context, 0).deny(Retry::After(retry_after)))
            }
            Err(_) if !limit.delays_requests() => {
                Admission::Denied(self.peek(context, 0).deny(Retry::Never))
            }
            Ok(_) | Err(_) => Admission::Denied(self.refusal(limit, now, cost, max_wait)),
        }
    }

    /// Returns the denial of a request whose `max_wait` is too short under a rule that delays requests. The rule computes
    /// the time to retry.
    fn refusal(&self, limit: &Limit, now: Timestamp, cost: u64, max_wait: Span) -> Denied {
        let mut state = self.state.clone();
        let refused = limit.decide_within(&mut state, now, cost, max_wait);
        refused.into_result().err().unwrap_or(refused.deny(Retry::Never))
    }

    /// Denies a request because the queue is full. The time to retry is when the first waiter is admitted.
    fn deny_full(&mut self, context: &mut DecisionContext<'_>) -> Admission {
        let first = self.rate_queue.start().map_or(Span::ZERO, |at| at.since(context.now));
        let retry = Retry::After(first.max(Span::from_micros(1)));
        Admission::Denied(self.peek(context, 0).deny(retry))
    }

    fn admit_permit(
        &mut self,
        context: &mut DecisionContext<'_>,
        cost: u64,
        max_wait: Span,
    ) -> Admission {
        let (decision, ticket) = self.permit_queue.enter(context, &mut self.state, cost);
        match decision.verdict {
            Verdict::Deny(retry)
                if retry == Retry::Never || max_wait.is_zero() || self.permit_queue.is_full() =>
            {
                Admission::Denied(decision.deny(retry))
            }
            Verdict::Deny(_) => Admission::Queued(self.permit_queue.join(cost)),
            _ => Admission::Now(decision, ticket),
        }
    }

    /// Advances the queue to the current time: admits the waiters that are due, and follows a step back of the clock.
    pub(crate) fn catch_up(&mut self, context: &mut DecisionContext<'_>) {
        self.rate_queue.settle(context, &mut self.state);
    }

    /// Removes a waiter that has given up its turn, and returns its cost.
    pub(crate) fn leave_rate_queue(&mut self, context: &mut DecisionContext<'_>, wait: &RateWait) {
        self.rate_queue.leave(context, &mut self.state, wait);
    }

    /// Makes a turn final: its waiter will not give it up.
    pub(crate) fn commit(&mut self, limit: &Limit, wait: &RateWait) {
        self.rate_queue.commit(limit, wait.number);
    }

    /// Removes a request that has stopped waiting for a permit.
    pub(crate) fn leave_permit_queue(
        &mut self,
        context: &mut DecisionContext<'_>,
        wait: &PermitWait,
    ) {
        self.permit_queue.leave(context, &mut self.state, wait);
    }

    /// Releases a permit.
    pub(crate) fn release(&mut self, context: &mut DecisionContext<'_>, ticket: Ticket) {
        match self.parked.as_deref_mut() {
            Some((limit, parked)) => limit.release(parked, ticket),
            None => context.limit.release(&mut self.state, ticket),
        }
        self.permit_queue.grant(context, &mut self.state);
    }

    /// Grants free permits to the waiters, and returns the decision that a request would get.
    pub(crate) fn look(&mut self, context: &mut DecisionContext<'_>, cost: u64) -> Decision {
        let DecisionContext { limit, now, .. } = *context;
        self.permit_queue.grant(context, &mut self.state);
        limit.peek(&self.state, now, cost)
    }

    /// Charges a cost even if it exceeds what remains. The excess becomes debt, except under a rule that delays requests,
    /// which is charged no more than remains.
    pub(crate) fn charge(&mut self, context: &mut DecisionContext<'_>, cost: u64) {
        let DecisionContext { limit, now, .. } = *context;
        if self.is_closed || limit.is_concurrency() {
            return;
        }
        let refused = self.check(context, cost);
        if !refused.is_deny() {
            return;
        }
        let remaining = refused.remaining.min(cost);
        let is_taken = !self.check(context, remaining).is_deny();
        let excess = if is_taken { cost - remaining } else { cost };
        // A limit of 0 never refills, so a debt would never be repaid.
        if excess > 0 && !limit.delays_requests() && refused.limit > 0 {
            self.rate_queue.add_debt(limit, &mut self.state, now, excess);
        }
    }

    /// Returns `cost` of what was charged. A key never gets more than a new one has. Permits are not refunded: they are
    /// released when they are dropped.
    pub(crate) fn refund(
        &mut self,
        context: &mut DecisionContext<'_>,
        cost: u64,
        created_at: Timestamp,
    ) {
        let DecisionContext { limit, now, .. } = *context;
        if limit.is_concurrency() {
            return;
        }
        self.rate_queue.settle(context, &mut self.state);
        let refund = |state: &mut State| {
            limit.refund(state, now, cost);
            let fresh = limit.fresh(created_at);
            let rest = |state: &State| limit.peek(state, now, 0).reset_after;
            if rest(state) < rest(&fresh) {
                *state = fresh;
            }
        };
        self.rate_queue.replay(context, &mut self.state, refund);
    }

    /// Clears the usage, the debt, and the requests in flight, whose permits release nothing afterwards.
    pub(crate) fn reset(&mut self, context: &mut DecisionContext<'_>, created_at: Timestamp) {
        let DecisionContext { limit, now, .. } = *context;
        if let Some((limit, parked)) = self.parked.as_deref_mut() {
            limit.release_all(parked);
            self.reset_at = Some(now);
        }
        if limit.is_concurrency() {
            limit.release_all(&mut self.state);
            self.reset_at = Some(now);
            self.permit_queue.grant(context, &mut self.state);
            return;
        }
        self.rate_queue.settle(context, &mut self.state);
        self.rate_queue.clear_debts();
        let fresh = |state: &mut State| *state = limit.fresh(created_at);
        self.rate_queue.replay(context, &mut self.state, fresh);
    }

    /// Converts the state and the queues to another rule (B8).
    ///
    /// The two rules may follow different clocks, so each has its own time.
    pub(crate) fn change(
        &mut self,
        (old, old_now): (&Limit, Timestamp),
        (new, now): (&Limit, Timestamp),
        wakes: &mut WakeList,
    ) {
        self.rate_queue.settle(&mut DecisionContext::new(old, old_now, wakes), &mut self.state);
        if old_now != now {
            self.rate_queue.rebase(old_now, now, wakes);
        }
        if new.is_concurrency() {
            // The new rule computes no times, so the waiters keep their turns.
            self.rate_queue.freeze();
        }
        let was_just_reset = self.was_just_reset(old_now);
        self.reset_at = was_just_reset.then_some(now);
        let is_out =
            |state: &State| was_just_reset || !old.peek(state, old_now, 0).reset_after.is_zero();
        if old.is_concurrency() && !new.is_concurrency() && is_out(&self.state) {
            self.parked = Some(Box::new((old.clone(), self.state.clone())));
        }
        let parked = if new.is_concurrency() { self.parked.take() } else { None };
        let take_over = |state: &mut State| {
            *state = match parked.as_deref() {
                Some((limit, parked)) => new.take_over(limit, parked, now),
                None => new.take_over_between(old, state, old_now, now),
            };
        };
        let context = &mut DecisionContext::new(new, now, wakes);
        self.rate_queue.replay(context, &mut self.state, take_over);
        self.permit_queue.grant(context, &mut self.state);
        if old.permit_lease() != new.permit_lease() {
            self.permit_queue.wake_all(wakes);
        }
    }
}

//! The requests that wait for a permit under a concurrency limit, in the order in which they arrived (A12).
//!
//! Always   First come, first served: no request is admitted before a waiting one, however small its cost.
//!          A permit that is granted to a cancelled waiter is released at once.

use crate::slot::context::DecisionContext;
use crate::slot::waiter::{WAITERS_MAX, WaitOutcome, Waiter, WaiterStatus};
use crate::sync::wake::WakeList;
use crate::sync::{Arc, next_id};
use std::collections::VecDeque;
use tidegate_core::{Decision, Retry, State, Ticket, Verdict};

#[derive(Debug, Default)]
pub(crate) struct PermitQueue {
    waiting: VecDeque<QueuedPermit>,
}

#[derive(Debug)]
struct QueuedPermit {
    number: u64,
    cost: u64,
    waiter: Arc<Waiter>,
}

/// A waiting request's entry in the queue.
#[derive(Debug)]
pub(crate) struct PermitWait {
    number: u64,
    waiter: Arc<Waiter>,
}

impl PermitWait {
    pub(crate) fn outcome(&self, waker: Option<&std::task::Waker>) -> Option<WaitOutcome> {
        self.waiter.outcome(waker)
    }
}

impl PermitQueue {
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Takes a permit if one is free and no request waits for it.
    pub(crate) fn enter(
        &mut self,
        context: &mut DecisionContext<'_>,
        state: &mut State,
        cost: u64,
    ) -> (Decision, Option<Ticket>) {
        let DecisionContext { limit, now, .. } = *context;
        // Leases may have ended since the last request.
        self.grant(context, state);
        if self.waiting.is_empty() || cost == 0 {
            return limit.enter(state, now, cost);
        }
        let mut decision = limit.peek(state, now, cost);
        if !decision.is_deny() {
            decision = limit.peek(state, now, 0).deny(Retry::OnRelease).decision;
        }
        (decision, None)
    }

    /// Returns whether the queue is full.
    pub(crate) fn is_full(&self) -> bool {
        self.waiting.len() >= WAITERS_MAX
    }

    pub(crate) fn join(&mut self, cost: u64) -> PermitWait {
        let (number, waiter) = (next_id(), Arc::new(Waiter::new(WaiterStatus::Unknown)));
        self.waiting.push_back(QueuedPermit { number, cost, waiter: Arc::clone(&waiter) });
        PermitWait { number, waiter }
    }

    /// Removes a request, and releases the permit if it was granted already.
    pub(crate) fn leave(
        &mut self,
        context: &mut DecisionContext<'_>,
        state: &mut State,
        wait: &PermitWait,
    ) {
        self.waiting.retain(|queued| queued.number != wait.number);
        if let Some(WaitOutcome::Granted(ticket)) = wait.outcome(None) {
            context.limit.release(state, ticket);
        }
        self.grant(context, state);
    }

    /// Wakes all waiters after leases have changed, because the next one may end earlier than they expect.
    pub(crate) fn wake_all(&self, wakes: &mut WakeList) {
        for queued in &self.waiting {
            queued.waiter.set(WaiterStatus::Unknown, wakes);
        }
    }

    /// Grants free permits to the requests that have waited longest.
    pub(crate) fn grant(&mut self, context: &mut DecisionContext<'_>, state: &mut State) {
        let DecisionContext { limit, now, .. } = *context;
        while let Some(first) = self.waiting.front() {
            if !limit.is_concurrency() {
                first.waiter.set(WaiterStatus::Restart, context.wakes);
                self.waiting.pop_front();
                continue;
            }
            let status = match limit.enter(state, now, first.cost) {
                (_, Some(ticket)) => WaiterStatus::Granted(ticket),
                (decision, None) if decision.verdict == Verdict::Deny(Retry::Never) => {
                    WaiterStatus::Refused
                }
                _ => break,
            };
            first.waiter.set(status, context.wakes);
            self.waiting.pop_front();
        }
    }
}

//! The requests that wait for their turn under a rate limit, in the order in which they arrived.
//!
//! The turn of a request is computed when it joins (`admission_time.rs`). When a waiter gives up, the queue is replayed
//! from the state before its first waiter, and the waiters behind the one that left get earlier turns.
//!
//! Always   First come, first served. A turn only ever moves to an earlier time. The whole cost of a waiter that gives up
//!          before its turn is returned. If the clock steps back, every turn moves back with it, also a final one. Clock
//!          skew below [`CLOCK_SKEW_MAX`] moves none.

use crate::slot::admission_time::admission_time;
use crate::slot::context::DecisionContext;
use crate::slot::debt::{counts_from, owed, paid_at};
use crate::slot::waiter::{WAITERS_MAX, Waiter, WaiterStatus};
use crate::sync::wake::WakeList;
use crate::sync::{Arc, next_id};
use std::collections::VecDeque;
use tidegate_core::{Decision, Denied, Limit, Span, State, Timestamp};

/// The largest step back of the clock that is ignored: the counters of two processor cores differ.
const CLOCK_SKEW_MAX: Span = Span::from_millis(1);

/// The queue of one key; empty for most keys, most of the time.
#[derive(Debug, Default)]
pub(crate) struct RateQueue {
    pending: VecDeque<Pending>,
    /// The state before the charge of the first waiter; `None` if the queue is empty.
    base: Option<State>,
    /// Final turns: a request behind them was told its delay, which depends on them.
    promised: VecDeque<(Timestamp, Arc<Waiter>)>,
    /// The time of the last request: an earlier one means that the clock went back.
    seen: Timestamp,
}

/// A waiting request, or a debt.
#[derive(Debug)]
struct Pending {
    number: u64,
    cost: u64,
    /// The time as of which the cost is charged to `base`: when the request arrived, under a rule that delays requests;
    /// otherwise when it is admitted.
    charged_at: Timestamp,
    /// The time of its turn.
    at: Timestamp,
    waiter: Arc<Waiter>,
    /// Whether the waiter has committed to its turn.
    is_final: bool,
    /// For a debt, the state once it is repaid; `None` for a request.
    debt: Option<Box<State>>,
}

/// A waiting request's entry in the queue.
#[derive(Debug)]
pub(crate) struct RateWait {
    pub(crate) number: u64,
    pub(crate) waiter: Arc<Waiter>,
}

impl Pending {
    fn debt(at: Timestamp, cost: u64, after: Option<Box<State>>) -> Self {
        Self {
            number: next_id(),
            cost,
            charged_at: at,
            at,
            waiter: Arc::new(Waiter::new(WaiterStatus::At(at))),
            is_final: true,
            debt: after,
        }
    }
}

impl RateQueue {
    /// Returns the queue of a saved state that is as of a later time: one debt, which is repaid at that time. The waiters
    /// of the saved queue are part of the debt. Returns `None` if the state is as of now.
    pub(crate) fn of_saved(limit: &Limit, state: &State, now: Timestamp) -> Option<Self> {
        let at = counts_from(limit, state, now)?;
        let (cost, after) = (owed(limit, now, state, at), Some(Box::new(state.clone())));
        let pending = VecDeque::from([Pending::debt(at, cost, after)]);
        Some(Self { pending, base: Some(limit.exhausted(now)), ..Self::default() })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// Returns whether a request waits, with a final turn or another one.
    pub(crate) fn has_waiters(&self) -> bool {
        !self.pending.is_empty() || !self.promised.is_empty()
    }

    /// Returns whether the queue is full. It is bounded because all turns behind a waiter that gives up are recomputed.
    pub(crate) fn is_full(&self) -> bool {
        self.pending.len() >= WAITERS_MAX
    }

    /// Returns the time of the first turn.
    pub(crate) fn start(&self) -> Option<Timestamp> {
        self.pending.front().map(|first| first.at)
    }

    /// Returns the time of the last turn.
    fn end(&self) -> Option<Timestamp> {
        self.pending.back().map(|last| last.at)
    }

    /// Returns whether the clock went back by more than clock skew, so that the turns have to be moved first.
    pub(crate) fn is_ahead_of(&self, now: Timestamp) -> bool {
        self.seen.since(now) > CLOCK_SKEW_MAX
    }

    /// Removes the waiters that are due, and moves all turns if the clock went back.
    pub(crate) fn settle(&mut self, context: &mut DecisionContext<'_>, state: &mut State) {
        let DecisionContext { limit, now, .. } = *context;
        let step = self.seen.since(now);
        if !self.has_waiters() {
            self.seen = if step > CLOCK_SKEW_MAX { now } else { self.seen.max(now) };
            return;
        }
        if step > CLOCK_SKEW_MAX {
            // Every turn moves back with the clock, and the replay may shorten some waits.
            self.shift(|at| (at - step).max(now), context.wakes);
            self.replay(context, state, |_| {});
        }
        // During clock skew, the later time stays in force.
        self.seen = if step > CLOCK_SKEW_MAX { now } else { self.seen.max(now) };
        while self.promised.front().is_some_and(|(at, _)| *at <= now) {
            self.promised.pop_front();
        }
        while self.pending.front().is_some_and(|first| first.at <= now) {
            let (Some(first), Some(base)) = (self.pending.pop_front(), self.base.as_mut()) else {
                break;
            };
            if let Some(after) = first.debt {
                *base = *after;
            } else if limit.decide(base, first.charged_at, first.cost).is_deny() {
                // The turn was computed under an earlier rule, and costs more than this one holds.
                *base = limit.exhausted(first.at);
            }
        }
        if self.pending.is_empty() {
            self.base = None;
        }
    }

    /// Converts all turns to another clock, which reads `now` when the old one reads `old_now`.
    pub(crate) fn rebase(&mut self, old_now: Timestamp, now: Timestamp, wakes: &mut WakeList) {
        self.shift(|at| now + at.since(old_now), wakes);
        self.seen = now;
    }

    fn shift(&mut self, to: impl Fn(Timestamp) -> Timestamp, wakes: &mut WakeList) {
        for pending in &mut self.pending {
            pending.at = to(pending.at);
            pending.waiter.set(WaiterStatus::At(pending.at), wakes);
        }
        for (at, waiter) in &mut self.promised {
            *at = to(*at);
            waiter.set(WaiterStatus::At(*at), wakes);
        }
    }

    /// Returns the turn of a request that would join the queue now, the state after it, and its decision as of now. The
    /// queue is not changed.
    pub(crate) fn forecast(
        &self,
        limit: &Limit,
        state: &State,
        now: Timestamp,
        cost: u64,
    ) -> Result<(Timestamp, State, Decision), Denied> {
        let mut state = state.clone();
        let (at, decision) = admission_time(limit, &mut state, now, self.end(), cost)?;
        Ok((at, state, decision))
    }

    /// Adds a request that arrives now and is admitted at `at`.
    pub(crate) fn join(
        &mut self,
        limit: &Limit,
        before: &State,
        now: Timestamp,
        at: Timestamp,
        cost: u64,
    ) -> RateWait {
        self.base.get_or_insert_with(|| before.clone());
        let waiter = Arc::new(Waiter::new(WaiterStatus::At(at)));
        let number = next_id();
        let charged_at = if limit.delays_requests() { now } else { at };
        let wait = RateWait { number, waiter: Arc::clone(&waiter) };
        let (is_final, debt) = (false, None);
        self.pending.push_back(Pending { number, cost, charged_at, at, waiter, is_final, debt });
        wait
    }

    /// Adds a debt, which is repaid after the turns of all waiters and before those of later requests. Consecutive debts
    /// are merged, so the queue has at most one more entry than twice its waiters.
    pub(crate) fn add_debt(&mut self, limit: &Limit, state: &mut State, now: Timestamp, cost: u64) {
        self.base.get_or_insert_with(|| state.clone());
        let at = paid_at(limit, state, now, self.end(), cost);
        let after = Some(Box::new(state.clone()));
        if let Some(last) = self.pending.back_mut().filter(|last| last.debt.is_some()) {
            last.cost = last.cost.saturating_add(cost);
            (last.at, last.charged_at, last.debt) = (at, at, after);
            return;
        }
        self.pending.push_back(Pending::debt(at, cost, after));
    }

    /// Removes all debts. The caller replays the queue afterwards, which gives the waiters behind them earlier turns.
    pub(crate) fn clear_debts(&mut self) {
        self.pending.retain(|pending| pending.debt.is_none());
    }

    /// Removes a waiter that is not due yet, and moves the waiters behind it up.
    pub(crate) fn leave(
        &mut self,
        context: &mut DecisionContext<'_>,
        state: &mut State,
        wait: &RateWait,
    ) {
        self.settle(context, state);
        let is_it = |pending: &Pending| pending.number == wait.number;
        let Some(index) = self.pending.iter().position(is_it) else {
            self.promised.retain(|(_, waiter)| !Arc::ptr_eq(waiter, &wait.waiter));
            return;
        };
        self.pending.remove(index);
        self.replay(context, state, |_| {});
    }

    /// Makes a turn final. The state of a rule that delays requests includes all turns, so the queue is not needed once all
    /// of them are final.
    pub(crate) fn commit(&mut self, limit: &Limit, number: u64) {
        for pending in self.pending.iter_mut().filter(|pending| pending.number == number) {
            pending.is_final = true;
        }
        if limit.delays_requests() && self.pending.iter().all(|pending| pending.is_final) {
            self.freeze();
        }
    }

    /// Changes the state before the first waiter, and computes every turn again.
    pub(crate) fn replay(
        &mut self,
        context: &mut DecisionContext<'_>,
        state: &mut State,
        change: impl FnOnce(&mut State),
    ) {
        let DecisionContext { limit, now, .. } = *context;
        if let Some(base) = self.base.take() {
            *state = base;
        }
        change(state);
        if self.pending.is_empty() {
            return;
        }
        self.base = Some(state.clone());
        let mut end = None;
        for pending in &mut self.pending {
            let before = state.clone();
            let found = match pending.debt {
                Some(_) => Ok(paid_at(limit, state, now, end, pending.cost)),
                None => admission_time(limit, state, now, end, pending.cost).map(|(at, _)| at),
            };
            match found {
                Ok(at) if at == pending.at => {}
                Ok(at) if at < pending.at => {
                    pending.at = at;
                    pending.waiter.set(WaiterStatus::At(at), context.wakes);
                }
                // The changed rule would delay this turn or deny it. The waiter keeps its turn, which then exhausts the
                // rule.
                _ => {
                    *state = before;
                    if limit.decide(state, pending.at, pending.cost).is_deny() {
                        *state = limit.exhausted(pending.at);
                    }
                }
            }
            if let Some(after) = &mut pending.debt {
                (**after).clone_from(state);
            }
            pending.charged_at = if limit.delays_requests() { now } else { pending.at };
            end = Some(pending.at);
        }
    }

    /// Makes every turn final, because a later request was told a delay that depends on them. Only for rules that delay
    /// requests, whose state is as of now and not as of the last turn.
    pub(crate) fn freeze(&mut self) {
        let promised = self.pending.drain(..).map(|pending| (pending.at, pending.waiter));
        self.promised.extend(promised);
        self.base = None;
    }
}

//! The requests that wait for their turn under a rate limit, in the order they came.
//!
//! A limit that refuses says when it would not (`retry_after`). So a turn needs no arithmetic of its
//! own: the limit is asked as of the time when the last one in line will have passed, and if it says
//! "later", as of then. The state that is reached this way is the state at that future time. When
//! a waiter gives up, the queue is replayed from the state in front of it, and the waiters behind
//! move up.
//!
//! Always   First come, first served. Turns only move to earlier times, never to later ones. What was
//!          charged for a waiter that gave up before its turn is given back whole. A step back of the
//!          clock moves every turn along, also those that can no longer be given back; clock skew that
//!          is absorbed moves none.

use crate::slot::debt::{counts_from, owed, paid_at};
use crate::slot::waiter::{Waiter, WaiterStatus};
use crate::sync::wake::WakeList;
use crate::sync::{Arc, next_id};
use std::collections::VecDeque;
use tidegate_core::{Decision, Denied, Limit, Retry, Span, State, Timestamp, Verdict};

/// The longest step back of the clock that is absorbed: the counters of two processor cores differ.
const CLOCK_SKEW_MAX: Span = Span::from_millis(1);
/// The longest queue.
pub(crate) const WAITERS_MAX: usize = 16_384;

/// The queue of one key; empty for most keys, most of the time.
#[derive(Debug, Default)]
pub(crate) struct RateQueue {
    pending: VecDeque<Pending>,
    /// The state as the first waiter will find it; `None` when the queue is empty.
    base: Option<State>,
    /// Turns that are final, because others were told theirs on top of them.
    promised: VecDeque<(Timestamp, Arc<Waiter>)>,
    /// The time of the last request: an earlier one means that the clock went back.
    seen: Timestamp,
}

#[derive(Debug)]
struct Pending {
    number: u64,
    cost: u64,
    /// When it was asked, for a rule that makes requests wait; else when it will pass. The state
    /// in front of the line is charged as of this time.
    charged_at: Timestamp,
    at: Timestamp,
    waiter: Arc<Waiter>,
    /// It will not be given up.
    is_final: bool,
    /// No request waits: the entry is what the key owes, and this the state once that is paid.
    debt: Option<Box<State>>,
}

/// A place in the queue.
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
    /// Returns the debt of a saved state, or what was promised to waiters: the state is that of when it is paid.
    pub(crate) fn of_saved(limit: &Limit, state: &State, now: Timestamp) -> Option<Self> {
        let at = counts_from(limit, state, now)?;
        let (cost, after) = (owed(limit, now, state, at), Some(Box::new(state.clone())));
        let pending = VecDeque::from([Pending::debt(at, cost, after)]);
        Some(Self { pending, base: Some(limit.exhausted(now)), ..Self::default() })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// Whether anybody waits, in line or on a promise.
    pub(crate) fn has_waiters(&self) -> bool {
        !self.pending.is_empty() || !self.promised.is_empty()
    }

    /// Returns whether the queue is full. A waiter that gives up makes all waiters behind it find their turn again, so
    /// the queue is bounded.
    pub(crate) fn is_full(&self) -> bool {
        self.pending.len() >= WAITERS_MAX
    }

    /// When the first one in line will pass.
    pub(crate) fn start(&self) -> Option<Timestamp> {
        self.pending.front().map(|first| first.at)
    }

    /// When the last one in line will pass.
    fn end(&self) -> Option<Timestamp> {
        self.pending.back().map(|last| last.at)
    }

    /// Returns whether the clock went back by so much that the waiters have to be moved first.
    pub(crate) fn is_ahead_of(&self, now: Timestamp) -> bool {
        self.seen.since(now) > CLOCK_SKEW_MAX
    }

    /// Removes the waiters whose time has come, and finds new turns after the clock went back.
    pub(crate) fn settle(
        &mut self,
        limit: &Limit,
        state: &mut State,
        now: Timestamp,
        wakes: &mut WakeList,
    ) {
        let step = self.seen.since(now);
        if !self.has_waiters() {
            self.seen = if step > CLOCK_SKEW_MAX { now } else { self.seen.max(now) };
            return;
        }
        if step > CLOCK_SKEW_MAX {
            // Every turn moves along with the clock; some waits may become shorter.
            self.shift(|at| (at - step).max(now), wakes);
            self.replay(limit, state, now, wakes, |_| {});
        }
        // While clock skew is absorbed, time stands still.
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
                // Promised under an earlier rule, and more than this one has.
                *base = limit.exhausted(first.at);
            }
        }
        if self.pending.is_empty() {
            self.base = None;
        }
    }

    /// Goes over to another clock, which says `now` when the old one says `old_now`.
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

    /// When a request that joins the line now would pass, with the state after that; the decision
    /// is as seen from now. Joins nothing yet.
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

    /// Takes a place for a request, asked now, that will pass at `at`.
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

    /// Charges what there is no room for: it is paid after all waiters, and before all later requests. Debts in a
    /// row are one entry, so the queue has at most one more entry than twice its waiters.
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

    /// Forgets what is owed; those behind find their turn when the line is played again.
    pub(crate) fn clear_debts(&mut self) {
        self.pending.retain(|pending| pending.debt.is_none());
    }

    /// Gives up a place, if its time has not come; those behind move up.
    pub(crate) fn leave(
        &mut self,
        limit: &Limit,
        state: &mut State,
        now: Timestamp,
        wait: &RateWait,
        wakes: &mut WakeList,
    ) {
        self.settle(limit, state, now, wakes);
        let is_it = |pending: &Pending| pending.number == wait.number;
        let Some(index) = self.pending.iter().position(is_it) else {
            self.promised.retain(|(_, waiter)| !Arc::ptr_eq(waiter, &wait.waiter));
            return;
        };
        self.pending.remove(index);
        self.replay(limit, state, now, wakes, |_| {});
    }

    /// Makes a place final. Under a rule that makes requests wait, the state itself tells their
    /// turns; once all are final, the line has nothing to add to it.
    pub(crate) fn commit(&mut self, limit: &Limit, number: u64) {
        for pending in self.pending.iter_mut().filter(|pending| pending.number == number) {
            pending.is_final = true;
        }
        if limit.delays_requests() && self.pending.iter().all(|pending| pending.is_final) {
            self.freeze();
        }
    }

    /// Changes the state in front of the queue and lets every waiter find its turn again.
    pub(crate) fn replay(
        &mut self,
        limit: &Limit,
        state: &mut State,
        now: Timestamp,
        wakes: &mut WakeList,
        change: impl FnOnce(&mut State),
    ) {
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
                    pending.waiter.set(WaiterStatus::At(at), wakes);
                }
                // A rule that would let it wait longer, or not at all, does not break a promise made
                // before; the promise takes all that the rule has.
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

    /// Makes every place final: what follows was decided on top of them. Only where the state is as
    /// of now, not as of the end of the line: under a rule that makes requests wait.
    pub(crate) fn freeze(&mut self) {
        let promised = self.pending.drain(..).map(|pending| (pending.at, pending.waiter));
        self.promised.extend(promised);
        self.base = None;
    }
}

/// The time at which `cost` passes, if the line before it ends at `end`; charges it to the state as
/// of then.
pub(crate) fn admission_time(
    limit: &Limit,
    state: &mut State,
    now: Timestamp,
    end: Option<Timestamp>,
    cost: u64,
) -> Result<(Timestamp, Decision), Denied> {
    // A rule that makes requests wait knows its own line, and counts it as of now.
    let from = if limit.delays_requests() { now } else { end.map_or(now, |end| end.max(now)) };
    let first = limit.decide(state, from, cost);
    let (as_of, decision) = match first.verdict {
        Verdict::Deny(Retry::After(span)) if !limit.delays_requests() => {
            let Some(from) = later(from, span) else {
                return Err(first.deny(Retry::Never));
            };
            (from, limit.decide(state, from, cost))
        }
        _ => (from, first),
    };
    let at = match decision.verdict {
        Verdict::Allow => as_of,
        Verdict::Wait(span) => match later(as_of, span) {
            Some(at) => at,
            None => return Err(decision.deny(Retry::Never)),
        },
        Verdict::Deny(retry) => return Err(decision.deny(retry)),
    };
    // No request overtakes, not even where the rule's own arithmetic would let it.
    let at = end.map_or(at, |end| at.max(end));
    let wait = at.since(now);
    let verdict = if wait.is_zero() { Verdict::Allow } else { Verdict::Wait(wait) };
    Ok((at, seen_from(decision, verdict, as_of.since(now))))
}

/// A time after the end of time does not come.
fn later(from: Timestamp, span: Span) -> Option<Timestamp> {
    let at = from + span;
    (at.since(from) == span).then_some(at)
}

/// Returns a decision that was made as of a later time, as seen from now.
fn seen_from(mut decision: Decision, verdict: Verdict, later: Span) -> Decision {
    if matches!(verdict, Verdict::Wait(_)) {
        decision.remaining = 0;
    }
    decision.verdict = verdict;
    decision.reset_after = decision.reset_after + later;
    decision
}

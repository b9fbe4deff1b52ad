//! Those who wait for their turn under a rate limit, in the order they came.
//!
//! A limit that refuses says when it would not (`retry_after`). So a turn needs no arithmetic of its
//! own: the limit is asked as of the time when the last one in line will have passed, and if it says
//! "later", as of then. The state that is reached this way is the state at that future time. When
//! somebody gives up, the line is played again from the state in front of it, and those behind
//! move up.
//!
//! Always   First come, first served. Turns only move forward to earlier times, never back. What was
//!          taken for somebody who gave up before it was due is given back whole.

use crate::sync::Arc;
use crate::turn::{Status, Turn, Wakes};
use std::collections::VecDeque;
use tidegate_core::{Decision, Denied, Limit, Retry, Span, State, Timestamp, Verdict};

/// The line in front of one key's limit; empty for most keys, most of the time.
#[derive(Debug, Default)]
pub(crate) struct Line {
    pending: VecDeque<Pending>,
    /// The state as the first in line will find it; `None` when nobody is in line.
    base: Option<State>,
    /// The last time anybody looked: an earlier one means that the clock went back.
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
    turn: Arc<Turn>,
    /// It will not be given up.
    is_final: bool,
}

/// A place in the line.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) number: u64,
    pub(crate) turn: Arc<Turn>,
}

impl Line {
    pub(crate) fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// When the last one in line will pass.
    fn end(&self) -> Option<Timestamp> {
        self.pending.back().map(|last| last.at)
    }

    /// Lets those pass whose time has come, and finds new turns after the clock went back.
    pub(crate) fn settle(
        &mut self,
        limit: &Limit,
        state: &mut State,
        now: Timestamp,
        wakes: &mut Wakes,
    ) {
        if now < self.seen && !self.pending.is_empty() {
            // Everybody's wait goes along with the clock; some may find that it has become shorter.
            let step = self.seen.since(now);
            for pending in &mut self.pending {
                pending.at = (pending.at - step).max(now);
                pending.turn.set(Status::At(pending.at), wakes);
            }
            self.replay(limit, state, now, wakes, |_| {});
        }
        self.seen = now;
        while self.pending.front().is_some_and(|first| first.at <= now) {
            let (Some(first), Some(base)) = (self.pending.pop_front(), self.base.as_mut()) else {
                break;
            };
            if limit.decide(base, first.charged_at, first.cost).is_deny() {
                // Promised under an earlier rule, and more than this one has.
                *base = limit.exhausted(first.at);
            }
        }
        if self.pending.is_empty() {
            self.base = None;
        }
    }

    /// When a request that joins the line now would pass, with the state after that; the decision
    /// is as seen from now. Joins nothing yet.
    pub(crate) fn foresee(
        &self,
        limit: &Limit,
        state: &State,
        now: Timestamp,
        cost: u64,
    ) -> Result<(Timestamp, State, Decision), Denied> {
        let mut state = state.clone();
        let (at, decision) = turn_at(limit, &mut state, now, self.end(), cost)?;
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
    ) -> Place {
        self.base.get_or_insert_with(|| before.clone());
        let turn = Arc::new(Turn::new(Status::At(at)));
        let number = crate::spot::next_number();
        let charged_at = if limit.is_waiting() { now } else { at };
        let place = Place { number, turn: Arc::clone(&turn) };
        self.pending.push_back(Pending { number, cost, charged_at, at, turn, is_final: false });
        place
    }

    /// Gives up a place, if its time has not come; those behind move up.
    pub(crate) fn leave(
        &mut self,
        limit: &Limit,
        state: &mut State,
        now: Timestamp,
        number: u64,
        wakes: &mut Wakes,
    ) {
        self.settle(limit, state, now, wakes);
        let Some(index) = self.pending.iter().position(|pending| pending.number == number) else {
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
        if limit.is_waiting() && self.pending.iter().all(|pending| pending.is_final) {
            self.freeze();
        }
    }

    /// Changes the state in front of the line and lets everybody find their turn again.
    pub(crate) fn replay(
        &mut self,
        limit: &Limit,
        state: &mut State,
        now: Timestamp,
        wakes: &mut Wakes,
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
            let found = turn_at(limit, state, now, end, pending.cost).map(|(at, _)| at);
            match found {
                Ok(at) if at == pending.at => {}
                Ok(at) if at < pending.at => {
                    pending.at = at;
                    pending.turn.set(Status::At(at), wakes);
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
            pending.charged_at = if limit.is_waiting() { now } else { pending.at };
            end = Some(pending.at);
        }
    }

    /// Makes every place final: what follows was decided on top of them. Only where the state is as
    /// of now, not as of the end of the line: under a rule that makes requests wait.
    pub(crate) fn freeze(&mut self) {
        self.pending.clear();
        self.base = None;
    }
}

/// The time at which `cost` passes, if the line before it ends at `end`; charges it to the state as
/// of then.
fn turn_at(
    limit: &Limit,
    state: &mut State,
    now: Timestamp,
    end: Option<Timestamp>,
    cost: u64,
) -> Result<(Timestamp, Decision), Denied> {
    // A rule that makes requests wait knows its own line, and counts it as of now.
    let from = if limit.is_waiting() { now } else { end.map_or(now, |end| end.max(now)) };
    let first = limit.decide(state, from, cost);
    let (at, decision) = match first.verdict {
        Verdict::Deny(Retry::After(span)) if !limit.is_waiting() => {
            let Some(from) = later(from, span) else {
                return Err(first.deny(Retry::Never));
            };
            (from, limit.decide(state, from, cost))
        }
        _ => (from, first),
    };
    let at = match decision.verdict {
        Verdict::Allow => at,
        Verdict::Wait(span) => match later(at, span) {
            Some(at) => at,
            None => return Err(decision.deny(Retry::Never)),
        },
        Verdict::Deny(retry) => return Err(decision.deny(retry)),
    };
    // Nobody overtakes, not even where the rule's own arithmetic would let them.
    let at = end.map_or(at, |end| at.max(end));
    let wait = at.since(now);
    let verdict = if wait.is_zero() { Verdict::Allow } else { Verdict::Wait(wait) };
    Ok((at, seen_from(decision, verdict, from.since(now))))
}

/// A time after the end of time does not come.
fn later(from: Timestamp, span: Span) -> Option<Timestamp> {
    let at = from + span;
    (at.since(from) == span).then_some(at)
}

/// A decision made as of a later time, told to somebody who hears it now.
fn seen_from(mut decision: Decision, verdict: Verdict, later: Span) -> Decision {
    if matches!(verdict, Verdict::Wait(_)) {
        decision.remaining = 0;
    }
    decision.verdict = verdict;
    decision.reset_after = decision.reset_after + later;
    decision
}

//! Those who wait for a permit under a concurrency limit, in the order they came (A12).
//!
//! Always   First come, first served: nobody is admitted past somebody who waits, however little they
//!          ask. A permit that is granted to somebody who has gone away is released at once.

use crate::line::WAITERS_MAX;
use crate::sync::Arc;
use crate::turn::{Outcome, Status, Turn, Wakes};
use std::collections::VecDeque;
use tidegate_core::{Decision, Limit, Retry, State, Ticket, Timestamp, Verdict};

#[derive(Debug, Default)]
pub(crate) struct Crowd {
    waiting: VecDeque<Waiter>,
}

#[derive(Debug)]
struct Waiter {
    number: u64,
    cost: u64,
    turn: Arc<Turn>,
}

/// A place in the crowd.
#[derive(Debug)]
pub(crate) struct Seat {
    number: u64,
    turn: Arc<Turn>,
}

impl Seat {
    pub(crate) fn outcome(&self, waker: Option<&std::task::Waker>) -> Option<Outcome> {
        self.turn.outcome(waker)
    }
}

impl Crowd {
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Takes a permit if one is free and nobody waits for it.
    pub(crate) fn enter(
        &mut self,
        limit: &Limit,
        state: &mut State,
        now: Timestamp,
        cost: u64,
        wakes: &mut Wakes,
    ) -> (Decision, Option<Ticket>) {
        // Leases may have run out since anybody looked.
        self.grant(limit, state, now, wakes);
        if self.waiting.is_empty() || cost == 0 {
            return limit.enter(state, now, cost);
        }
        let mut decision = limit.peek(state, now, cost);
        if !decision.is_deny() {
            decision = limit.peek(state, now, 0).deny(Retry::OnRelease).decision;
        }
        (decision, None)
    }

    /// Whether as many wait as may.
    pub(crate) fn is_full(&self) -> bool {
        self.waiting.len() >= WAITERS_MAX
    }

    pub(crate) fn join(&mut self, cost: u64) -> Seat {
        let (number, turn) = (crate::spot::next_number(), Arc::new(Turn::new(Status::Unknown)));
        self.waiting.push_back(Waiter { number, cost, turn: Arc::clone(&turn) });
        Seat { number, turn }
    }

    /// Gives up a place, and what may have been granted to it already.
    pub(crate) fn leave(
        &mut self,
        limit: &Limit,
        state: &mut State,
        now: Timestamp,
        seat: &Seat,
        wakes: &mut Wakes,
    ) {
        self.waiting.retain(|waiter| waiter.number != seat.number);
        if let Some(Outcome::Granted(ticket)) = seat.outcome(None) {
            limit.release(state, ticket);
        }
        self.grant(limit, state, now, wakes);
    }

    /// Tells everybody to look again: leases have changed, and may end earlier.
    pub(crate) fn stir(&self, wakes: &mut Wakes) {
        for waiter in &self.waiting {
            waiter.turn.set(Status::Unknown, wakes);
        }
    }

    /// Gives what is free to those who have waited longest.
    pub(crate) fn grant(
        &mut self,
        limit: &Limit,
        state: &mut State,
        now: Timestamp,
        wakes: &mut Wakes,
    ) {
        while let Some(first) = self.waiting.front() {
            if !limit.is_concurrency() {
                first.turn.set(Status::Restart, wakes);
                self.waiting.pop_front();
                continue;
            }
            let status = match limit.enter(state, now, first.cost) {
                (_, Some(ticket)) => Status::Granted(ticket),
                (decision, None) if decision.verdict == Verdict::Deny(Retry::Never) => {
                    Status::Refused
                }
                _ => break,
            };
            first.turn.set(status, wakes);
            self.waiting.pop_front();
        }
    }
}

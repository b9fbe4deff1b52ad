//! A model of `lend.lua` in Rust: the Redis of the simulation, and the oracle of the script tests.

use super::LEASE_TIME;
use super::balance::{Grant, LeaseRequest, Micros};
use super::codec::{self, LendTerms};
use tidegate_core::{LeaseTerms, Limit, Span, State, Timestamp};

/// The maximum number of leases of one key.
pub(super) const LEASES_MAX: usize = 256;

/// One key: its state and its leases.
#[derive(Clone)]
pub(super) struct Ledger {
    pub(super) state: State,
    /// The number, the amount and the end of each lease.
    pub(super) leases: Vec<(u64, u64, Micros)>,
}

impl Ledger {
    pub(super) fn new(limit: &Limit, now: Timestamp) -> Self {
        Self { state: limit.fresh(now), leases: Vec::new() }
    }

    pub(super) fn lent(&self) -> u64 {
        self.leases.iter().map(|(_, amount, _)| amount).sum()
    }

    pub(super) fn lend(
        &mut self,
        limit: &Limit,
        lending: &LeaseTerms,
        now: Micros,
        terms: &LendTerms,
        request: &LeaseRequest,
    ) -> Option<Grant> {
        let at = Timestamp::from_micros(now);
        self.leases.retain(|(_, _, ends)| *ends > now);
        for closed in &request.closed {
            let known = self.leases.iter().position(|(number, ..)| *number == closed.number);
            if let Some(index) = known {
                self.leases.swap_remove(index);
                limit.refund(&mut self.state, at, closed.unused);
            }
        }
        let sizes = codec::sizes(request.size, terms.at_least);
        for (left, amount) in (0..sizes.len()).rev().zip(sizes) {
            let is_spare =
                self.lent() + amount <= lending.leased_max && self.leases.len() < LEASES_MAX;
            let is_last = left == 0;
            let leaves_as_much = !limit.peek(&self.state, at, amount * 2).is_deny();
            if is_spare
                && (is_last || leaves_as_much)
                && !limit.decide(&mut self.state, at, amount).is_deny()
            {
                let longest = Span::from(LEASE_TIME).as_micros();
                let window =
                    limit.window(&self.state, at).map(|window| window.end.since(at).as_micros());
                let lasts = window.map_or(longest, |left| left.min(longest));
                self.leases.push((terms.number, amount, now + lasts));
                return Some(Grant { number: terms.number, amount, lasts });
            }
        }
        None
    }
}

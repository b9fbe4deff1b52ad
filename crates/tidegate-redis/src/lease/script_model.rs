//! Redis as `lend.lua` has it, in Rust: what the simulation asks, and what the script is held to.

use super::LASTS;
use super::balance::{Grant, Micros, Request};
use super::codec::{self, Terms};
use tidegate_core::{LeaseTerms, Limit, Span, State, Timestamp};

/// So many leases of one key are counted.
pub(super) const LEASES_MAX: usize = 256;

/// One key: its state, and who has a lease of it.
#[derive(Clone)]
pub(super) struct Ledger {
    pub(super) state: State,
    /// A lease's number and amount, and when it ends.
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
        terms: &Terms,
        asked: &Request,
    ) -> Option<Grant> {
        let at = Timestamp::from_micros(now);
        self.leases.retain(|(_, _, ends)| *ends > now);
        for closed in &asked.closed {
            let known = self.leases.iter().position(|(number, ..)| *number == closed.number);
            if let Some(place) = known {
                self.leases.swap_remove(place);
                limit.refund(&mut self.state, at, closed.unused);
            }
        }
        let sizes = codec::sizes(asked.size, terms.at_least);
        for (left, amount) in (0..sizes.len()).rev().zip(sizes) {
            let is_spare =
                self.lent() + amount <= lending.leased_max && self.leases.len() < LEASES_MAX;
            let is_last = left == 0;
            let leaves_as_much = !limit.peek(&self.state, at, amount * 2).is_deny();
            if is_spare
                && (is_last || leaves_as_much)
                && !limit.decide(&mut self.state, at, amount).is_deny()
            {
                let longest = Span::from(LASTS).as_micros();
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

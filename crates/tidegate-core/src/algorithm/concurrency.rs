//! Concurrency: at most `max` in flight (A11, A12, A15).
//!
//! State    How many are in flight; with a lease, also which, and until when.
//! Always   In flight never exceeds `max` by an admission. A lease that has run out is in flight no
//!          more, and giving it back later gives nothing back twice.
//! Memory   With a lease, 24 bytes for each in flight; without, one number.
//! Spec     `spec/concurrency.md`.

use super::{Algorithm, Usage};
use crate::decision::{Decision, Retry, Verdict};
use crate::time::{Span, Timestamp};
use alloc::collections::VecDeque;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Concurrency {
    max: u64,
    lease: Option<Span>,
}

/// Names one admission, so that it can be given back once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Lease {
    until: Timestamp,
    ticket: u64,
    cost: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub(crate) struct InFlight {
    count: u64,
    /// Oldest first; they all last equally long, so the first to end is in front.
    leases: VecDeque<Lease>,
    /// The last ticket given out.
    ticket: u64,
}

impl Concurrency {
    pub(crate) fn new(max: u64, lease: Option<Span>) -> Self {
        Self { max, lease }
    }

    fn end_leases(&self, in_flight: &mut InFlight, now: Timestamp) {
        let Some(length) = self.lease else { return };
        while let Some(first) = in_flight.leases.front() {
            // A lease that ends later than one given now would is from before a step of the clock.
            if first.until > now && first.until.since(now) <= length {
                break;
            }
            if first.until > now {
                Self::shorten(in_flight, now + length);
                break;
            }
            in_flight.count -= first.cost;
            in_flight.leases.pop_front();
        }
    }

    fn shorten(in_flight: &mut InFlight, until: Timestamp) {
        for lease in &mut in_flight.leases {
            lease.until = lease.until.min(until);
        }
    }

    /// With leases, when enough of them will have run out; without, only a release can tell.
    fn retry(&self, in_flight: &InFlight, now: Timestamp, cost: u64) -> Retry {
        let mut missing = in_flight.count.saturating_add(cost).saturating_sub(self.max);
        for lease in &in_flight.leases {
            missing = missing.saturating_sub(lease.cost);
            if missing == 0 {
                return Retry::After(lease.until.since(now));
            }
        }
        Retry::OnRelease
    }

    /// Gives back one admission by the ticket that [`InFlight::last_ticket`] told.
    pub(crate) fn release(&self, in_flight: &mut InFlight, ticket: u64, cost: u64) {
        if self.lease.is_none() {
            in_flight.count = in_flight.count.saturating_sub(cost);
            return;
        }
        let found = in_flight.leases.iter().position(|lease| lease.ticket == ticket);
        if let Some(lease) = found.and_then(|index| in_flight.leases.remove(index)) {
            in_flight.count -= lease.cost;
        }
    }

    fn answer(&self, verdict: Verdict, in_flight: &InFlight, now: Timestamp) -> Decision {
        let last = in_flight.leases.back();
        Decision {
            verdict,
            limit: self.max,
            remaining: self.max.saturating_sub(in_flight.count),
            reset_after: match last {
                Some(lease) => lease.until.since(now),
                None if in_flight.count == 0 => Span::ZERO,
                None => Span::MAX,
            },
        }
    }
}

impl InFlight {
    pub(crate) fn last_ticket(&self) -> u64 {
        self.ticket
    }
}

impl Algorithm for Concurrency {
    type State = InFlight;

    fn fresh(&self, _birth: Timestamp) -> InFlight {
        InFlight::default()
    }

    fn decide(&self, in_flight: &mut InFlight, now: Timestamp, cost: u64) -> Decision {
        self.end_leases(in_flight, now);
        if cost > self.max {
            return self.answer(Verdict::Deny(Retry::Never), in_flight, now);
        }
        if cost > self.max.saturating_sub(in_flight.count) {
            let retry = self.retry(in_flight, now, cost);
            return self.answer(Verdict::Deny(retry), in_flight, now);
        }
        if cost > 0 {
            in_flight.count += cost;
            in_flight.ticket += 1;
            if let Some(length) = self.lease {
                let lease = Lease { until: now + length, ticket: in_flight.ticket, cost };
                in_flight.leases.push_back(lease);
            }
        }
        self.answer(Verdict::Allow, in_flight, now)
    }

    /// Gives back the oldest, for those who keep no ticket.
    fn refund(&self, in_flight: &mut InFlight, now: Timestamp, cost: u64) {
        self.end_leases(in_flight, now);
        let mut left = cost.min(in_flight.count);
        in_flight.count -= left;
        while left > 0 {
            let Some(first) = in_flight.leases.front_mut() else { break };
            let taken = left.min(first.cost);
            first.cost -= taken;
            left -= taken;
            if first.cost == 0 {
                in_flight.leases.pop_front();
            }
        }
    }

    /// Being in flight is not having used up a rate: another algorithm starts fresh.
    fn usage(&self, _in_flight: &InFlight, _now: Timestamp) -> Usage {
        Usage::whole(0, Span::ZERO)
    }

    fn adopt(&self, _usage: Usage, _now: Timestamp) -> InFlight {
        InFlight::default()
    }

    /// Who is in flight stays in flight, also above a lowered `max`: they leave one by one.
    fn inherit(&self, old: &Self, in_flight: &InFlight, now: Timestamp) -> InFlight {
        let mut in_flight = in_flight.clone();
        old.end_leases(&mut in_flight, now);
        match (old.lease, self.lease) {
            // Held without a lease: one lease for all of them, from now.
            (None, Some(length)) if in_flight.count > 0 => {
                let (ticket, cost) = (in_flight.ticket, in_flight.count);
                in_flight.leases.push_back(Lease { until: now + length, ticket, cost });
            }
            (Some(_), None) => in_flight.leases.clear(),
            (_, Some(length)) => Self::shorten(&mut in_flight, now + length),
            _ => {}
        }
        in_flight
    }
}

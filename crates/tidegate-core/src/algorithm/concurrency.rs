//! Concurrency: at most `max` in flight (A11, A12, A15).
//!
//! State    The requests in flight: a ticket and a cost for each and, under a rule with leases, the lease's end.
//! Always   No admission makes the requests in flight exceed `max`. A request whose lease has ended is no longer in
//!          flight: releasing it afterwards has no effect, even if the rule changed meanwhile.
//! Memory   A small tree of the requests in flight: about 40 bytes each.
//! Spec     `spec/concurrency.md`.

use super::{Algorithm, Usage};
use crate::codec::lua::{exact_f64, exact_f64_addend, exact_u64};
use crate::decision::{Decision, Retry, Verdict};
use crate::time::{Span, Timestamp};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Concurrency {
    max: u64,
    lease: Option<Span>,
}

/// Stands for an absent lease in the numbers for Lua: no time is negative.
const NO_LEASE: f64 = -1.0;

/// A request in flight: admitted, and not released yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Admission {
    cost: u64,
    since: Timestamp,
    /// The end of its lease; `None` if the rule has no leases.
    until: Option<Timestamp>,
}

#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub(crate) struct InFlight {
    /// The sum of the costs of all holds.
    count: u64,
    /// The requests in flight by ticket, so the oldest is first. All leases have the same length, so they end in this order too.
    holds: BTreeMap<u64, Admission>,
    /// The number of the latest ticket.
    ticket: u64,
}

impl Concurrency {
    pub(crate) fn new(max: u64, lease: Option<Span>) -> Self {
        Self { max, lease }
    }

    /// Removes the requests whose leases have ended.
    fn end_leases(&self, in_flight: &mut InFlight, now: Timestamp) {
        let Some(length) = self.lease else { return };
        let last = in_flight.holds.values().next_back().and_then(|hold| hold.until);
        if last.is_some_and(|until| until.since(now) > length + length.skew_tolerance()) {
            // The clock has stepped back since the admission, by more than is absorbed.
            in_flight.shorten(now + length);
        }
        while let Some(first) = in_flight.holds.first_entry() {
            // A lease that ends at the last instant never ends.
            let has_ended = |until| until <= now && until < Timestamp::MAX;
            if !first.get().until.is_some_and(has_ended) {
                break;
            }
            in_flight.count -= first.remove().cost;
        }
    }

    /// Returns when a denied request may retry: when enough leases have ended or, without leases, after a release.
    fn retry(&self, in_flight: &InFlight, now: Timestamp, cost: u64) -> Retry {
        let mut missing = in_flight.count.saturating_add(cost).saturating_sub(self.max);
        for hold in in_flight.holds.values() {
            missing = missing.saturating_sub(hold.cost);
            if missing == 0 {
                let after = |until: Timestamp| Retry::After(until.since(now).at_least_1us());
                return hold.until.map_or(Retry::OnRelease, after);
            }
        }
        Retry::OnRelease
    }

    /// Releases the request that got this ticket at this time. Numbers start over when the state of a key has been
    /// evicted, so only number and time together identify a ticket.
    pub(crate) fn release(in_flight: &mut InFlight, ticket: u64, since: Timestamp) {
        if in_flight.holds.get(&ticket).is_none_or(|hold| hold.since != since) {
            return;
        }
        if let Some(hold) = in_flight.holds.remove(&ticket) {
            in_flight.count -= hold.cost;
        }
    }

    /// Removes all requests in flight. Their ticket numbers are not reused, so releasing one of them later has no effect.
    pub(crate) fn forget(in_flight: &mut InFlight) {
        in_flight.holds.clear();
        in_flight.count = 0;
    }

    fn answer(&self, verdict: Verdict, in_flight: &InFlight, now: Timestamp) -> Decision {
        let last = in_flight.holds.values().next_back();
        Decision {
            verdict,
            limit: self.max,
            remaining: self.max.saturating_sub(in_flight.count),
            reset_after: match last {
                Some(Admission { until: Some(until), .. }) => until.since(now).at_least_1us(),
                Some(Admission { until: None, .. }) => Span::MAX,
                None => Span::ZERO,
            },
        }
    }
}

impl InFlight {
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    pub(crate) fn last_ticket(&self) -> u64 {
        self.ticket
    }

    /// Returns the end of the lease of the request that got this ticket at this time.
    pub(crate) fn lease_end(&self, ticket: u64, since: Timestamp) -> Option<Timestamp> {
        self.holds.get(&ticket).filter(|hold| hold.since == since)?.until
    }

    /// Returns the end of the oldest lease.
    pub(crate) fn next_lease_end(&self) -> Option<Timestamp> {
        self.holds.values().next().and_then(|hold| hold.until)
    }

    /// Ends every lease at `end`, unless it ends earlier.
    fn shorten(&mut self, end: Timestamp) {
        for hold in self.holds.values_mut() {
            hold.until = hold.until.map(|until| until.min(end));
        }
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
            // Leases end in the order of their tickets, also if the clock has stepped back since the latest.
            let last = in_flight.holds.values().next_back().and_then(|hold| hold.until);
            let until = self.lease.map(|length| (now + length).max(last.unwrap_or(now)));
            in_flight.holds.insert(in_flight.ticket, Admission { cost, since: now, until });
        }
        self.answer(Verdict::Allow, in_flight, now)
    }

    /// Does nothing: a request is in flight until it is released. If a refund freed its permit while it still runs,
    /// one request too many would be in flight.
    fn refund(&self, _in_flight: &mut InFlight, _now: Timestamp, _cost: u64) {}

    /// Writes only requests with a lease: a reader of the snapshot cannot know whether the others still run.
    fn to_words(&self, in_flight: &InFlight) -> Vec<u64> {
        let hold = |(ticket, hold): (&u64, &Admission)| {
            let until = hold.until?;
            Some([*ticket, hold.cost, hold.since.as_micros(), until.as_micros()])
        };
        let holds = in_flight.holds.iter().filter_map(hold).flatten();
        core::iter::once(in_flight.ticket).chain(holds).collect()
    }

    fn read_words(&self, words: &[u64]) -> Option<InFlight> {
        let (ticket, holds) = words.split_first()?;
        let (holds, []) = holds.as_chunks::<4>() else { return None };
        let mut in_flight = InFlight { ticket: *ticket, ..InFlight::default() };
        for &[number, cost, since, until] in holds {
            let [since, until] = [since, until].map(Timestamp::from_micros);
            in_flight.count = in_flight.count.checked_add(cost)?;
            in_flight.holds.insert(number, Admission { cost, since, until: Some(until) });
        }
        (in_flight.holds.len() == holds.len()).then_some(in_flight)
    }

    fn lua_params(&self) -> Option<Vec<f64>> {
        let lease = match self.lease {
            Some(lease) => exact_f64_addend(lease.as_micros())?,
            None => NO_LEASE,
        };
        Some([exact_f64(self.max)?, lease].to_vec())
    }

    /// Writes a row for each request: ticket, cost, time of the admission, end of the lease.
    fn state_to_lua(&self, in_flight: &InFlight) -> Option<Vec<f64>> {
        let row = |(ticket, hold): (&u64, &Admission)| {
            // A lease that ends at the last instant never ends.
            let until = hold.until.filter(|until| *until < Timestamp::MAX);
            let until = until.map_or(Some(NO_LEASE), |until| exact_f64(until.as_micros()));
            Some([
                exact_f64(*ticket)?,
                exact_f64(hold.cost)?,
                exact_f64(hold.since.as_micros())?,
                until?,
            ])
        };
        Some(in_flight.holds.iter().map(row).collect::<Option<Vec<_>>>()?.concat())
    }

    /// Reads the script's summary: the cost in flight and the last lease's end, and the cost of the requests that must
    /// finish before the denied request fits, with the end of the last of their leases.
    fn state_from_lua(&self, numbers: &[f64]) -> Option<InFlight> {
        let [count, last, missing, missing_until] = *numbers else { return None };
        let (count, missing) = (exact_u64(count)?, exact_u64(missing)?);
        let until = |number: f64| {
            let us = if number < 0.0 { None } else { Some(exact_u64(number)?) };
            Some(us.map(Timestamp::from_micros))
        };
        let hold = |cost, until| Admission { cost, since: Timestamp::EPOCH, until };
        let first = hold(missing, until(missing_until)?);
        let rest = hold(count.checked_sub(missing)?, until(last)?);
        let holds = [(1, first), (2, rest)].into_iter().filter(|(_, hold)| hold.cost > 0);
        Some(InFlight { count, holds: holds.collect(), ticket: 2 })
    }

    /// Returns nothing used: a request in flight has used no rate, so another algorithm starts fresh.
    fn usage(&self, _in_flight: &InFlight, _now: Timestamp) -> Usage {
        Usage::whole(0, Span::ZERO)
    }

    fn adopt(&self, _usage: Usage, _now: Timestamp) -> InFlight {
        InFlight::default()
    }

    /// Keeps all requests in flight, even if they exceed a lowered `max`.
    fn inherit(&self, old: &Self, in_flight: &InFlight, now: Timestamp) -> InFlight {
        let mut in_flight = in_flight.clone();
        old.end_leases(&mut in_flight, now);
        for hold in in_flight.holds.values_mut() {
            // A lease ends at most one new lease length from now, and never later than before.
            let longest = self.lease.map(|length| now + length);
            hold.until = longest.map(|longest| hold.until.map_or(longest, |u| u.min(longest)));
        }
        in_flight
    }
}

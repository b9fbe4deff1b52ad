//! Concurrency: a list of requests in flight, with their costs and the ends of their leases.

use super::{ExpectedDecision, Oracle, smallest_wait};
use tidegate_core::{Retry, Span, Timestamp, Verdict};

/// One key.
#[derive(Clone, Debug)]
pub struct Concurrency {
    max: u64,
    lease: Option<Span>,
    /// Oldest first.
    holders: Vec<Holder>,
}

#[derive(Clone, Copy, Debug)]
struct Holder {
    name: usize,
    cost: u64,
    /// `None` means until the release.
    until: Option<Timestamp>,
}

impl Holder {
    fn holds_at(&self, now: Timestamp) -> bool {
        self.until.is_none_or(|until| now < until)
    }
}

impl Concurrency {
    /// Starts without requests in flight.
    pub fn new(max: u64, lease: Option<Span>) -> Self {
        Self { max, lease, holders: Vec::new() }
    }

    /// Decides like [`Oracle::decide`]; an admitted request holds its cost under this name.
    pub fn enter(&mut self, now: Timestamp, cost: u64, name: usize) -> ExpectedDecision {
        let verdict = if cost > self.max {
            Verdict::Deny(Retry::Never)
        } else if self.fits(now, cost) {
            Verdict::Allow
        } else {
            Verdict::Deny(self.retry(now, cost))
        };
        if verdict == Verdict::Allow && cost > 0 {
            let until = self.lease.map(|lease| now + lease);
            self.holders.push(Holder { name, cost, until });
        }
        ExpectedDecision {
            verdict,
            limit: self.max,
            remaining: self.max.saturating_sub(self.held(now)),
            reset_after: match self.lease {
                Some(lease) => smallest_wait(lease, |wait| self.held(now + wait) == 0),
                None if self.holders.is_empty() => Span::ZERO,
                None => Span::MAX,
            },
        }
    }

    /// Releases the request with this name.
    pub fn release(&mut self, name: usize) {
        self.holders.retain(|holder| holder.name != name);
    }

    /// Changes the rule: requests stay in flight, but no longer than a lease that starts now.
    pub fn change(&mut self, now: Timestamp, max: u64, lease: Option<Span>) {
        self.holders.retain(|holder| holder.holds_at(now));
        for holder in &mut self.holders {
            holder.until = lease.map(|lease| {
                let longest = now + lease;
                holder.until.map_or(longest, |until| until.min(longest))
            });
        }
        (self.max, self.lease) = (max, lease);
    }

    fn held(&self, now: Timestamp) -> u64 {
        self.holders.iter().filter(|holder| holder.holds_at(now)).map(|holder| holder.cost).sum()
    }

    fn fits(&self, now: Timestamp, cost: u64) -> bool {
        // More may be in flight than a lowered limit allows; a request of cost 0 is still allowed.
        cost == 0 || u128::from(self.held(now)) + u128::from(cost) <= u128::from(self.max)
    }

    fn retry(&self, now: Timestamp, cost: u64) -> Retry {
        let Some(lease) = self.lease else { return Retry::OnRelease };
        Retry::After(smallest_wait(lease, |wait| self.fits(now + wait, cost)))
    }
}

impl Oracle for Concurrency {
    fn decide(&mut self, now: Timestamp, cost: u64) -> ExpectedDecision {
        self.enter(now, cost, usize::MAX)
    }

    /// Does nothing: a request is in flight until it is released.
    fn refund(&mut self, _now: Timestamp, _cost: u64) {}
}

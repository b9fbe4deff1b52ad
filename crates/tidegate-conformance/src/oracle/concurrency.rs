//! Concurrency: a list of who holds how much, and until when.

use super::{Answer, Oracle, smallest_wait};
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
    /// `None` is until it is given back.
    until: Option<Timestamp>,
}

impl Holder {
    fn holds_at(&self, now: Timestamp) -> bool {
        self.until.is_none_or(|until| now < until)
    }
}

impl Concurrency {
    /// Nobody holds anything.
    pub fn new(max: u64, lease: Option<Span>) -> Self {
        Self { max, lease, holders: Vec::new() }
    }

    /// As [`Oracle::decide`]; who is admitted holds its cost under this name.
    pub fn enter(&mut self, now: Timestamp, cost: u64, name: usize) -> Answer {
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
        Answer {
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

    /// Whoever has this name holds nothing any more.
    pub fn release(&mut self, name: usize) {
        self.holders.retain(|holder| holder.name != name);
    }

    /// Another rule takes over: who holds goes on to hold, and no longer than a lease given now.
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
        // More may be in flight than a lowered limit allows; asking for nothing is no offence.
        cost == 0 || u128::from(self.held(now)) + u128::from(cost) <= u128::from(self.max)
    }

    fn retry(&self, now: Timestamp, cost: u64) -> Retry {
        let Some(lease) = self.lease else { return Retry::OnRelease };
        Retry::After(smallest_wait(lease, |wait| self.fits(now + wait, cost)))
    }
}

impl Oracle for Concurrency {
    fn decide(&mut self, now: Timestamp, cost: u64) -> Answer {
        self.enter(now, cost, usize::MAX)
    }

    /// Nothing: who is in flight is, until it is released.
    fn refund(&mut self, _now: Timestamp, _cost: u64) {}
}

//! The requests in flight of a scenario, each with the value that releases it.

use super::{Refusal, Target, failed};

/// The requests in flight, oldest first. `P` releases one of them: a ticket, a permit or a lease.
#[derive(Debug)]
pub(super) struct InFlight<P> {
    requests: Vec<Request<P>>,
}

#[derive(Debug)]
struct Request<P> {
    limit: usize,
    key: String,
    cost: u64,
    permit: P,
}

impl<P> Default for InFlight<P> {
    fn default() -> Self {
        Self { requests: Vec::new() }
    }
}

impl<P> InFlight<P> {
    /// Adds an admitted request. A request of cost 0 is not in flight.
    pub(super) fn add(&mut self, on: Target<'_>, cost: u64, permit: P) {
        if cost > 0 {
            self.requests.push(Request { limit: on.limit, key: on.key.to_owned(), cost, permit });
        }
    }

    /// Removes the oldest request of this cost, and returns its permit.
    pub(super) fn remove(&mut self, on: Target<'_>, cost: u64) -> Result<P, Refusal> {
        let is_wanted = |request: &Request<P>| {
            request.limit == on.limit && request.key == on.key && request.cost == cost
        };
        let oldest = self.requests.iter().position(is_wanted);
        let oldest =
            oldest.ok_or_else(|| failed(format!("no request of cost {cost} is in flight")))?;
        Ok(self.requests.remove(oldest).permit)
    }
}

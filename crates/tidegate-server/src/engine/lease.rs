//! Places under a concurrency limit that are held by somebody on the other end of a wire.
//!
//! Always   Who holds a place may die: it comes back when the lease runs out, by the limiter's own clock.
//!          The permit that is kept here for it goes then too, at the latest when the next one is taken.
//!          Under a rule without a lease a place is held until it is given back, as the rule says.
//! Always   At most [`LEASES_MAX`] are kept: a rule may have more places than there is memory to remember who
//!          holds them, and what costs nothing would be given without end.

use super::Limit;
use crate::clock::ServerClock;
use crate::store::Permit;
use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use tidegate::{Clock, Decision, Span, Timestamp};

/// So many places may be held over wires.
pub(super) const LEASES_MAX: usize = 1 << 18;

/// What one gives back a place by. Nobody can guess another's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LeaseId(u128);

/// A text that is no lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a lease has 32 hexadecimal digits, in small letters")]
pub struct NoLease;

/// A place that was taken.
#[derive(Clone, Copy, Debug)]
pub struct Lease {
    /// To give it back by.
    pub id: LeaseId,
    /// What the limit said.
    pub decision: Decision,
    /// How long it is held at the most, if the rule says so.
    pub lease: Option<Span>,
}

#[derive(Debug, Default)]
pub(super) struct Leases {
    kept: Mutex<Kept>,
    drawn: AtomicU64,
    secret: std::hash::RandomState,
}

#[derive(Debug, Default)]
struct Kept {
    permits: HashMap<LeaseId, (Option<Timestamp>, Permit)>,
    ends: BTreeSet<(Timestamp, LeaseId)>,
}

impl Leases {
    /// Keeps a place for whoever took it. `None` if there are too many: then it is given back.
    pub(super) fn keep(&self, limit: &Limit, permit: Permit, clock: &ServerClock) -> Option<Lease> {
        let (now, lease) = (clock.now(), limit.lease());
        let decision = permit.decision();
        let id = self.draw();
        let ends = lease.map(|lease| now + lease);
        let mut kept = self.kept.lock().expect("nobody panics with it");
        let over = kept.take_over(now);
        if kept.permits.len() >= LEASES_MAX {
            drop(kept);
            return None;
        }
        kept.permits.insert(id, (ends, permit));
        if let Some(ends) = ends {
            kept.ends.insert((ends, id));
        }
        drop(kept);
        // Given back without the lock: others may be woken by it.
        drop(over);
        Some(Lease { id, decision, lease })
    }

    /// A place that costs nothing: there is nothing to give back.
    pub(super) fn free(&self, decision: Decision) -> Lease {
        Lease { id: self.draw(), decision, lease: None }
    }

    /// A place that nobody counts.
    pub(super) fn nothing(&self) -> Lease {
        self.free(Decision::UNLIMITED)
    }

    /// Takes out what somebody gives back; nothing if nobody has it.
    pub(super) fn take(&self, id: LeaseId, clock: &ServerClock) -> Option<Permit> {
        let now = clock.now();
        let mut kept = self.kept.lock().expect("nobody panics with it");
        let over = kept.take_over(now);
        let permit = kept.permits.remove(&id);
        if let Some((Some(ends), _)) = &permit {
            kept.ends.remove(&(*ends, id));
        }
        drop(kept);
        drop(over);
        permit.map(|(_, permit)| permit)
    }

    fn draw(&self) -> LeaseId {
        use std::hash::BuildHasher;
        let number = self.drawn.fetch_add(1, Ordering::Relaxed);
        let half = |which: u64| u128::from(self.secret.hash_one((number, which)));
        LeaseId(half(0) << 64 | half(1))
    }
}

impl Kept {
    /// Takes out those whose lease has run out.
    fn take_over(&mut self, now: Timestamp) -> Vec<Permit> {
        let mut over = Vec::new();
        while let Some(&(ends, id)) = self.ends.first()
            && ends <= now
        {
            self.ends.pop_first();
            over.extend(self.permits.remove(&id).map(|(_, permit)| permit));
        }
        over
    }
}

impl fmt::Display for LeaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl std::str::FromStr for LeaseId {
    type Err = NoLease;

    /// As it was written, and in no other way: one text for one lease.
    fn from_str(text: &str) -> Result<Self, NoLease> {
        let is_digit = |byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        if text.len() != 32 || !text.bytes().all(is_digit) {
            return Err(NoLease);
        }
        u128::from_str_radix(text, 16).map(Self).map_err(|_| NoLease)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::engine::{Ask, Engine};
    use crate::store::{Key, StoreError};
    use tidegate::Snapshot;

    fn engine() -> Engine {
        Engine::new(&Config::default(), ServerClock::system(), &Snapshot::default())
    }

    async fn take(engine: &Engine, cost: u64) -> Result<LeaseId, StoreError> {
        let limit = engine.find("concurrency 1000000000").expect("it is a rule");
        let taken = engine.acquire(&Ask { limit: &limit, key: Key(b"pool"), cost }).await?;
        Ok(taken.expect("there are places").id)
    }

    #[tokio::test]
    async fn so_many_places_are_held_and_no_more() {
        let engine = engine();
        let first = take(&engine, 1).await.expect("there is room");
        for _ in 1..LEASES_MAX {
            take(&engine, 1).await.expect("there is room");
        }
        let refused = take(&engine, 1).await.expect_err("there is no room");
        assert!(matches!(refused, StoreError::TooManyLeases { max: LEASES_MAX }));
        assert!(engine.release(first).await.expect("memory answers"));
        take(&engine, 1).await.expect("there is room again");
        let refused = take(&engine, 1).await.expect_err("there is no room");
        assert!(refused.to_string().contains("release some"));
    }

    #[tokio::test]
    async fn a_place_that_costs_nothing_is_not_remembered() {
        let engine = engine();
        let free = take(&engine, 0).await.expect("it costs nothing");
        assert!(engine.leases.kept.lock().expect("nobody panics").permits.is_empty());
        assert!(
            !engine.release(free).await.expect("memory answers"),
            "there is nothing to give back"
        );
    }
}

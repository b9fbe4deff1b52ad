//! Places under a concurrency limit that are held by somebody on the other end of a wire.
//!
//! Always   Who holds a place may die: it comes back when the lease runs out, by the limiter's own clock.
//!          The permit that is kept here for it goes then too, at the latest when the next one is taken.
//!          Under a rule without a lease a place is held until it is given back, as the rule says.
//! Always   At most [`LEASES_MAX`] are kept: a rule may have more places than there is memory to remember who
//!          holds them, and what costs nothing would be given without end.

use super::Limit;
use crate::clock::ServerClock;
use crate::store::{Key, Permit};
use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::hash::{BuildHasher as _, Hash};
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
    permits: HashMap<LeaseId, Held>,
    ends: BTreeSet<(Timestamp, LeaseId)>,
}

/// A place, until when it is held, and a hash of the limit and the key under which it is.
#[derive(Debug)]
struct Held {
    permit: Permit,
    ends: Option<Timestamp>,
    under: u128,
}

/// Places whose holders are being forgotten. They are known again if that is given up or fails.
#[derive(Debug)]
pub(super) struct Forgetting<'a> {
    leases: &'a Leases,
    held: Vec<(LeaseId, Held)>,
}

impl Forgetting<'_> {
    /// The store has forgotten them.
    pub(super) fn done(mut self) {
        self.held.clear();
    }
}

impl Drop for Forgetting<'_> {
    fn drop(&mut self) {
        let mut kept = self.leases.kept.lock().expect("nobody panics with it");
        for (id, held) in self.held.drain(..) {
            kept.insert(id, held);
        }
    }
}

impl Leases {
    /// Keeps a place for whoever took it. `None` if there are too many: then it is given back.
    pub(super) fn keep(
        &self,
        (limit, key): (&Limit, Key<'_>),
        permit: Permit,
        clock: &ServerClock,
    ) -> Option<Lease> {
        let (now, lease) = (clock.now(), limit.lease());
        let decision = permit.decision();
        let (id, under) = (self.draw(), self.under(limit, key));
        let ends = lease.map(|lease| now + lease);
        let mut kept = self.kept.lock().expect("nobody panics with it");
        let over = kept.take_over(now);
        if kept.permits.len() >= LEASES_MAX {
            drop(kept);
            return None;
        }
        kept.insert(id, Held { permit, ends, under });
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
        let held = kept.remove(id);
        drop(kept);
        drop(over);
        held.map(|held| held.permit)
    }

    /// Takes out those who hold places under this limit and key, before the store forgets them: who comes afterwards is another.
    pub(super) fn forget(&self, limit: &Limit, key: Key<'_>) -> Forgetting<'_> {
        if !limit.rule().is_concurrency() {
            return Forgetting { leases: self, held: Vec::new() };
        }
        let under = self.under(limit, key);
        let mut kept = self.kept.lock().expect("nobody panics with it");
        let ids = kept.permits.iter().filter(|(_, held)| held.under == under).map(|(id, _)| *id);
        let ids: Vec<LeaseId> = ids.collect();
        let held = ids.into_iter().filter_map(|id| Some((id, kept.remove(id)?)));
        let held = held.collect();
        drop(kept);
        Forgetting { leases: self, held }
    }

    fn under(&self, limit: &Limit, key: Key<'_>) -> u128 {
        self.hash(&(limit.name(), key.0))
    }

    /// Two that differ have the same with a chance of 2^-128.
    fn hash(&self, what: &impl Hash) -> u128 {
        let half = |which: u64| u128::from(self.secret.hash_one((which, what)));
        half(0) << 64 | half(1)
    }

    fn draw(&self) -> LeaseId {
        LeaseId(self.hash(&self.drawn.fetch_add(1, Ordering::Relaxed)))
    }
}

impl Kept {
    fn insert(&mut self, id: LeaseId, held: Held) {
        self.ends.extend(held.ends.map(|ends| (ends, id)));
        self.permits.insert(id, held);
    }

    fn remove(&mut self, id: LeaseId) -> Option<Held> {
        let held = self.permits.remove(&id)?;
        if let Some(ends) = held.ends {
            self.ends.remove(&(ends, id));
        }
        Some(held)
    }

    /// Takes out those whose lease has run out.
    fn take_over(&mut self, now: Timestamp) -> Vec<Permit> {
        let mut over = Vec::new();
        while let Some(&(ends, id)) = self.ends.first()
            && ends <= now
        {
            self.ends.pop_first();
            over.extend(self.permits.remove(&id).map(|held| held.permit));
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
    async fn a_reset_forgets_who_holds_places_there_and_nobody_else() {
        let engine = engine();
        let of = |text: &str| engine.find(text).expect("it is a rule");
        let (limit, other) = (of("concurrency 2"), of("concurrency 3"));
        let mut ids = Vec::new();
        for (limit, key) in [(&limit, "a"), (&limit, "a"), (&limit, "b"), (&other, "a")] {
            let ask = Ask { limit, key: Key(key.as_bytes()), cost: 1 };
            ids.push(engine.acquire(&ask).await.expect("memory answers").expect("a place").id);
        }
        engine.reset(&limit, Key(b"a")).await.expect("memory answers");
        assert_eq!(engine.leases.kept.lock().expect("nobody panics").permits.len(), 2);
        let ask = Ask { limit: &limit, key: Key(b"a"), cost: 2 };
        let both = engine.acquire(&ask).await.expect("memory answers").expect("both places").id;
        let mut released = Vec::new();
        for id in ids {
            released.push(engine.release(id).await.expect("memory answers"));
        }
        assert_eq!(released, [false, false, true, true]);
        let ask = Ask { cost: 1, ..ask };
        assert!(engine.acquire(&ask).await.expect("memory answers").is_err(), "both are taken");
        assert!(engine.release(both).await.expect("memory answers"));
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

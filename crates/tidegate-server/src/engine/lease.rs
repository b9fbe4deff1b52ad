//! Places under a concurrency limit that are held by somebody on the other end of a wire.
//!
//! Always   Who holds a place may die: it comes back when the lease runs out, by the limiter's own clock.
//!          The permit that is kept here for it goes then too, at the latest when the next one is taken.
//!          Under a rule without a lease a place is held until it is given back, as the rule says.
//! Always   At most [`LEASES_MAX`] are kept, and of rules without a name at most [`AD_HOC_LEASES_MAX`] more: a rule may have more
//!          places than there is memory to remember who holds them, and what costs nothing would be given without end.
//!          Nobody who brings rules takes places from limits that have a name, and a peer takes its [share](Shares) of either.
//! Always   Leases that end by themselves are in the snapshot, with their ids: a place that comes back after a restart can be
//!          given back, once. Ids are drawn by a secret of this process, so that none is drawn again after a restart.

use super::Limit;
use super::attached::{self, Reader};
use crate::clock::ServerClock;
use crate::shares::{PeerId, Shares};
use crate::store::{Key, Permit};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::hash::{BuildHasher as _, Hash};
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use tidegate::{Attached, Clock, Decision, PermitRecord, Snapshot, Span, Timestamp};

/// So many places of limits with a name may be held over wires.
pub(super) const LEASES_MAX: usize = 1 << 18;
/// So many places of rules without a name may be held over wires.
pub(super) const AD_HOC_LEASES_MAX: usize = 1 << 16;
/// A lease in a snapshot: its id and its key, who took it, and the record of its permit.
const LEASE_WORDS: usize = 9;
/// What leases are called in a snapshot.
const ATTACHED_NAME: &str = "leases";
/// So many are copied for a snapshot while the others wait.
const COPIED_AT_ONCE: usize = 1_024;

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

#[derive(Debug)]
pub(super) struct Leases {
    kept: Mutex<Kept>,
    drawn: AtomicU64,
    secret: std::hash::RandomState,
    named: Shares,
    ad_hoc: Shares,
}

#[derive(Debug, Default)]
struct Kept {
    permits: BTreeMap<LeaseId, Held>,
    ends: BTreeSet<(Timestamp, LeaseId)>,
}

/// A place that is held.
#[derive(Debug)]
struct Held {
    permit: Permit,
    /// Until when.
    ends: Option<Timestamp>,
    /// Under which limit, and which of its keys.
    under: Under,
    /// Who took it.
    owner: PeerId,
}

/// A limit, and a key by a hash that is its alone.
#[derive(Clone, Debug)]
struct Under {
    limit: Arc<str>,
    is_ad_hoc: bool,
    key: u128,
}

impl Default for Leases {
    fn default() -> Self {
        Self {
            kept: Mutex::default(),
            drawn: AtomicU64::default(),
            secret: std::hash::RandomState::default(),
            named: Shares::new(LEASES_MAX),
            ad_hoc: Shares::new(AD_HOC_LEASES_MAX),
        }
    }
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
        let held = std::mem::take(&mut self.held);
        for (_, held) in &held {
            self.leases.give_back(held);
        }
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
    /// Keeps a place for whoever took it. `None` if there are too many, or if the peer has its share: then the place is given
    /// back.
    pub(super) fn keep(
        &self,
        (limit, key): (&Limit, Key<'_>),
        permit: Permit,
        owner: PeerId,
        clock: &ServerClock,
    ) -> Option<Lease> {
        let (now, lease) = (clock.now(), limit.lease());
        let decision = permit.decision();
        let (id, under) = (self.draw(), self.under(limit, key));
        let ends = lease.map(|lease| now + lease);
        let mut kept = self.kept.lock().expect("nobody panics with it");
        let over = kept.take_over(now);
        for held in &over {
            self.give_back(held);
        }
        let has_room = self.shares(under.is_ad_hoc).take(owner);
        if has_room {
            kept.insert(id, Held { permit, ends, under, owner });
        }
        drop(kept);
        // Given back without the lock: others may be woken by it.
        drop(over);
        has_room.then_some(Lease { id, decision, lease })
    }

    fn shares(&self, is_ad_hoc: bool) -> &Shares {
        if is_ad_hoc { &self.ad_hoc } else { &self.named }
    }

    /// How many places of limits with this kind of name can be held.
    pub(super) fn max(limit: &Limit) -> usize {
        if limit.is_ad_hoc() { AD_HOC_LEASES_MAX } else { LEASES_MAX }
    }

    /// It is not kept any more.
    fn give_back(&self, held: &Held) {
        self.shares(held.under.is_ad_hoc).give_back(held.owner);
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
        for held in over.iter().chain(&held) {
            self.give_back(held);
        }
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
        let is_there = |held: &Held| held.under.key == under.key && held.under.limit == under.limit;
        let mut kept = self.kept.lock().expect("nobody panics with it");
        let ids = kept.permits.iter().filter(|(_, held)| is_there(held)).map(|(id, _)| *id);
        let ids: Vec<LeaseId> = ids.collect();
        let held = ids.into_iter().filter_map(|id| Some((id, kept.remove(id)?)));
        let held = held.collect();
        drop(kept);
        Forgetting { leases: self, held }
    }

    /// In memory, a key is told from others by what its limiter calls it, which stays the same after a restart.
    fn under(&self, limit: &Limit, key: Key<'_>) -> Under {
        let by_limiter = limit.counters().limiter().map(|limiter| limiter.fingerprint(&key));
        let by_us = || self.hash(&(limit.name(), key.0));
        let key = by_limiter.unwrap_or_else(by_us);
        Under { limit: limit.shared_name(), is_ad_hoc: limit.is_ad_hoc(), key }
    }

    /// For a snapshot: every lease that a limiter in memory has, limit by limit.
    pub(super) fn attached(&self) -> Attached {
        let mut by_limit: BTreeMap<Arc<str>, Vec<u64>> = BTreeMap::new();
        let mut last = None;
        loop {
            // A few at a time, so that nobody who takes or gives back a place waits for all.
            let kept = self.kept.lock().expect("nobody panics with it");
            let from = last.map_or(Unbounded, Excluded);
            let mut copied = 0;
            for (id, held) in kept.permits.range((from, Unbounded)).take(COPIED_AT_ONCE) {
                (copied, last) = (copied + 1, Some(*id));
                if let Some(record) = held.permit.record() {
                    let words = by_limit.entry(Arc::clone(&held.under.limit)).or_default();
                    words.extend([id.0, held.under.key].map(attached::halves).as_flattened());
                    words.push(held.owner.0);
                    words.extend(record.to_words());
                }
            }
            drop(kept);
            if copied < COPIED_AT_ONCE {
                break;
            }
        }
        let mut bytes = Vec::new();
        for (limit, words) in &by_limit {
            attached::write_text(&mut bytes, limit);
            attached::write_words(&mut bytes, &[(words.len() / LEASE_WORDS) as u64]);
            attached::write_words(&mut bytes, words);
        }
        (ATTACHED_NAME.to_owned(), bytes)
    }

    /// Takes back what a snapshot knows of leases whose places have come back. No more than there may be.
    pub(super) fn restore(
        &self,
        restored: &Snapshot,
        find: impl Fn(&str) -> Option<Arc<Limit>>,
        clock: &ServerClock,
    ) {
        let Some(bytes) = restored.attached(ATTACHED_NAME) else { return };
        if self.read(bytes, find, clock).is_none() {
            tracing::error!(
                "the snapshot's leases are not understood: their places come back when they end"
            );
        }
    }

    fn read(
        &self,
        bytes: &[u8],
        find: impl Fn(&str) -> Option<Arc<Limit>>,
        clock: &ServerClock,
    ) -> Option<()> {
        let mut reader = Reader(bytes);
        while !reader.is_at_end() {
            let limit = find(reader.text()?);
            for _ in 0..reader.word()? {
                let lease = reader.words::<LEASE_WORDS>()?;
                if let Some(limit) = &limit {
                    self.reclaim(limit, lease, clock);
                }
            }
        }
        Some(())
    }

    /// A place that is not held any more, or that belongs to a limit that does not count like this any more, has no lease.
    fn reclaim(&self, limit: &Limit, lease: [u64; LEASE_WORDS], clock: &ServerClock) -> Option<()> {
        let [id_high, id_low, key_high, key_low, owner, record @ ..] = lease;
        let limiter = limit.counters().limiter()?;
        let (permit, left) = limiter.reclaim(&PermitRecord::from_words(record))?;
        let (owner, is_ad_hoc) = (PeerId(owner), limit.is_ad_hoc());
        let key = attached::whole([key_high, key_low]);
        let under = Under { limit: limit.shared_name(), is_ad_hoc, key };
        let (id, ends) = (LeaseId(attached::whole([id_high, id_low])), Some(clock.now() + left));
        let mut kept = self.kept.lock().expect("nobody panics with it");
        // What is not kept goes on until its lease ends, and is not given back here.
        if kept.permits.contains_key(&id) || !self.shares(is_ad_hoc).take_again(owner) {
            permit.forget();
            return None;
        }
        kept.insert(id, Held { permit: Permit::Memory(permit), ends, under, owner });
        Some(())
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
    fn take_over(&mut self, now: Timestamp) -> Vec<Held> {
        let mut over = Vec::new();
        while let Some(&(ends, id)) = self.ends.first()
            && ends <= now
        {
            self.ends.pop_first();
            over.extend(self.permits.remove(&id));
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

    const UNNAMED: &str = "concurrency 1000000000";

    async fn take_under(
        engine: &Engine,
        limit: &str,
        (peer, cost): (u64, u64),
    ) -> Result<LeaseId, StoreError> {
        let limit = engine.find(limit).expect("it is a limit");
        let ask = Ask { limit: &limit, key: Key(b"pool"), cost };
        let taken = engine.by(PeerId(peer)).acquire(&ask).await?;
        Ok(taken.expect("there are places").id)
    }

    async fn take(engine: &Engine, cost: u64) -> Result<LeaseId, StoreError> {
        take_under(engine, UNNAMED, (1, cost)).await
    }

    #[tokio::test]
    async fn so_many_places_are_held_and_no_more() {
        let engine = engine();
        // Each by a peer of its own.
        let peer = |number: usize| (number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut held = Vec::new();
        let refused = loop {
            match take_under(&engine, UNNAMED, (peer(held.len()), 1)).await {
                Ok(lease) => held.push(lease),
                Err(refused) => break refused,
            }
        };
        assert!(matches!(refused, StoreError::TooManyLeases { max: AD_HOC_LEASES_MAX }));
        assert!(refused.to_string().contains("release some"));
        // Where that many peers have something, the counters that they share say no a little early.
        let all = AD_HOC_LEASES_MAX - AD_HOC_LEASES_MAX / 1_000..=AD_HOC_LEASES_MAX;
        assert!(all.contains(&held.len()), "{}", held.len());
        for lease in held.drain(..100) {
            assert!(engine.release(lease).await.expect("memory answers"));
        }
        take(&engine, 1).await.expect("there is room again");
    }

    #[tokio::test]
    async fn who_holds_places_of_a_rule_without_a_name_takes_none_from_others_or_from_names() {
        let config = "[limits.pool]\nrule = \"concurrency 1000000000\"\n";
        let config = crate::config::read(config, "t.toml").expect("it is good");
        let engine = Engine::new(&config, ServerClock::system(), &Snapshot::default());
        let mut held = 0;
        while take_under(&engine, UNNAMED, (1, 1)).await.is_ok() {
            held += 1;
        }
        assert_eq!(held, 3 * AD_HOC_LEASES_MAX / 4);
        take_under(&engine, UNNAMED, (2, 1)).await.expect("another peer has room");
        take_under(&engine, "pool", (1, 1)).await.expect("a limit with a name has its own");
    }

    /// A server's engine, and another one that goes on with what is written of it now.
    struct Restarted {
        config: Config,
        clock: tidegate::ManualClock,
        engine: Engine,
    }

    impl Restarted {
        fn new() -> Self {
            let config = "[limits.pool]\nrule = \"concurrency 2 lease 30s\"\n[limits.open]\nrule = \"concurrency 2\"\n";
            let config = crate::config::read(config, "t.toml").expect("it is good");
            let clock = tidegate::ManualClock::new();
            let server_clock = ServerClock::Manual(clock.clone());
            let engine = Engine::new(&config, server_clock, &Snapshot::default());
            Self { config, clock, engine }
        }

        fn written(&self, attached: Vec<Attached>) -> Snapshot {
            let (remembered, mut bytes) = (self.engine.remembered(), Vec::new());
            let named = remembered.iter().map(|(name, limiter)| (name.as_str(), limiter));
            Snapshot::write_with(&mut bytes, named, || attached).expect("a buffer takes all");
            Snapshot::read(&bytes).expect("it is whole")
        }

        fn restart(&mut self) {
            let written = self.written(self.engine.attached());
            let clock = ServerClock::Manual(self.clock.clone());
            self.engine = Engine::new(&self.config, clock, &written);
        }

        async fn take(&self, limit: &str, key: &[u8]) -> Option<LeaseId> {
            let limit = self.engine.find(limit).expect("it is a limit");
            let ask = Ask { limit: &limit, key: Key(key), cost: 1 };
            let taken = self.engine.by(PeerId(7)).acquire(&ask).await;
            taken.expect("memory answers").ok().map(|lease| lease.id)
        }

        async fn release(&self, lease: Option<LeaseId>) -> bool {
            self.engine.release(lease.expect("it was taken")).await.expect("memory answers")
        }

        fn kept(&self) -> usize {
            self.engine.leases.kept.lock().expect("nobody panics").permits.len()
        }
    }

    #[tokio::test]
    async fn a_place_that_comes_back_after_a_restart_is_given_back_once_and_in_its_place() {
        let mut server = Restarted::new();
        let first = server.take("pool", b"a").await;
        let other = server.take("pool", b"b").await;
        let unnamed = server.take("concurrency 1 lease 20s", b"a").await;
        server.clock.advance(Span::from_secs(10));
        let second = server.take("pool", b"a").await;
        let free = server.take("open", b"a").await;
        for _ in 0..3 {
            server.restart();
            assert_eq!(server.kept(), 4, "who holds a place without a lease is not known");
        }
        assert_eq!(server.take("pool", b"a").await, None, "both places are taken");
        assert!(server.release(first).await);
        assert!(!server.release(first).await, "once");
        assert!(!server.release(free).await, "its place came back with the restart");
        let third = server.take("pool", b"a").await;
        assert!(third.is_some() && third != first, "one place is free, under another id");
        assert_eq!(server.take("pool", b"a").await, None, "and no more than one");
        assert!(server.release(unnamed).await && server.release(other).await);
        assert!(server.take("concurrency 1 lease 20s", b"a").await.is_some());
        server.restart();
        server.clock.advance(Span::from_secs(25));
        assert!(server.release(second).await, "it lasts until 30 s after it was taken");
        server.clock.advance(Span::from_secs(5));
        assert!(!server.release(third).await, "its lease has run out");
        assert_eq!(server.engine.leases.named.taken(), 0, "nobody has a place less for it");
    }

    #[tokio::test]
    async fn a_reset_after_a_restart_forgets_who_holds_places() {
        let mut server = Restarted::new();
        let first = server.take("pool", b"a").await;
        server.restart();
        let limit = server.engine.find("pool").expect("it is there");
        server.engine.reset(&limit, Key(b"a")).await.expect("memory answers");
        assert!(!server.release(first).await);
    }

    #[tokio::test]
    async fn a_snapshot_without_leases_or_with_such_as_nobody_understands_is_used_without_them() {
        let mut server = Restarted::new();
        let first = server.take("pool", b"a").await;
        let [rules, (name, bytes)] = <[_; 2]>::try_from(server.engine.attached()).expect("both");
        let cut_off = bytes[..bytes.len() - 1].to_vec();
        for attached in [Vec::new(), vec![rules, (name, cut_off)]] {
            let written = server.written(attached);
            let clock = ServerClock::Manual(server.clock.clone());
            let engine = Engine::new(&server.config, clock, &written);
            let limit = engine.find("pool").expect("it is there");
            let ask = Ask { limit: &limit, key: Key(b"a"), cost: 2 };
            assert!(engine.acquire(&ask).await.expect("memory answers").is_err(), "it is held");
        }
        server.restart();
        assert!(server.release(first).await);
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

//! Places under a concurrency limit that are held by somebody on the other end of a wire.
//!
//! Always   Who holds a place may die: it comes back when the lease runs out, by the limiter's own clock.
//!          The permit that is kept here for it goes then too, at the latest when the next one is asked for.
//!          Under a limit with a name and without a lease a place is held until it is given back, as the rule says.
//! Always   A place under a rule without a name is given back a day after it was taken at the latest, whatever its rule says, and
//!          at once when the rule goes: the client that took it chose the rule, and may never come back.
//! Always   At most [`LEASES_MAX`] are kept, and of rules without a name at most [`AD_HOC_LEASES_MAX`] more: a rule may have more
//!          places than there is memory to remember who holds them, and what costs nothing would be given without end.
//!          Nobody who brings rules takes places from limits that have a name, and a peer takes its [share](Shares) of either.
//! Always   Leases that end by themselves are in the snapshot, with their ids: a place that comes back after a restart can be
//!          given back, once. Ids are drawn by a secret of this process, so that none is drawn again after a restart.

use super::Limit;
use super::attached::{self, Reader};
use crate::clock::ServerClock;
use crate::store::{Key, Permit};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt;
use std::hash::{BuildHasher as _, Hash};
use std::ops::Bound::{Excluded, Unbounded};
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use tidegate::snapshot::{Attached, Snapshot};
use tidegate::store::PermitRecord;
use tidegate::store::{ClientId, Shares};
use tidegate::{Clock, Decision, Span, Timestamp};

#[cfg(test)]
mod tests;

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
/// So many leases that have run out are given back before a place is taken or given back.
const ENDED_AT_ONCE: usize = 1_024;
/// A place under a rule without a name is held no longer.
const AD_HOC_LEASE_MAX: Span = Span::from_secs(86_400);

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
    /// How long it is held at the most, if its rule says so or has no name.
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
    /// The leases of each limit and key, so that a reset looks at no others.
    by_key: BTreeSet<(Under, LeaseId)>,
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
    owner: ClientId,
}

/// A limit, and a key by a hash that is its alone. In order, the keys of a limit are beside each other.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
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
        let mut kept = self.leases.lock();
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
        owner: ClientId,
        clock: &ServerClock,
    ) -> Option<Lease> {
        let (decision, lease) = (permit.decision(), longest(limit));
        let (id, under) = (self.draw(), self.under(limit, key));
        let ends = lease.map(|lease| clock.now() + lease);
        let mut kept = self.lock();
        let has_room = self.shares(under.is_ad_hoc).take(owner);
        if has_room {
            kept.insert(id, Held { permit, ends, under, owner });
        }
        drop(kept);
        has_room.then_some(Lease { id, decision, lease })
    }

    /// Gives back the places whose time is over.
    pub(super) fn end(&self, clock: &ServerClock) {
        let over = self.lock().take_over(clock.now());
        // Dropped without the lock: others may be woken by it.
        for held in over {
            self.give_back(&held);
        }
    }

    /// Takes out the places under these rules without a name, which are about to go.
    #[must_use = "they are given back when they are dropped, which wakes others: not while locks are held"]
    pub(super) fn forget_rules(&self, rules: &HashSet<&str>) -> Vec<Permit> {
        if self.ad_hoc.taken() == 0 {
            return Vec::new();
        }
        let mut held = Vec::new();
        for rule in rules {
            let key = |key| Under { limit: Arc::from(*rule), is_ad_hoc: true, key };
            held.extend(self.lock().take_out(key(0)..=key(u128::MAX)));
        }
        let give_back = |(_, held): (LeaseId, Held)| {
            self.give_back(&held);
            held.permit
        };
        held.into_iter().map(give_back).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().expect("nobody panics with it")
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
        self.end(clock);
        let held = self.lock().remove(id)?;
        self.give_back(&held);
        Some(held.permit)
    }

    /// Takes out those who hold places under this limit and key, before the store forgets them: who comes afterwards is another.
    pub(super) fn forget(&self, limit: &Limit, key: Key<'_>) -> Forgetting<'_> {
        if !limit.rule().is_concurrency() {
            return Forgetting { leases: self, held: Vec::new() };
        }
        let under = self.under(limit, key);
        let held = self.lock().take_out(under.clone()..=under);
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
            let kept = self.lock();
            let from = last.map_or(Unbounded, Excluded);
            let mut copied = 0;
            for (id, held) in kept.permits.range((from, Unbounded)).take(COPIED_AT_ONCE) {
                (copied, last) = (copied + 1, Some(*id));
                if let Some(record) = held.permit.record() {
                    let words = by_limit.entry(Arc::clone(&held.under.limit)).or_default();
                    words.extend([id.0, held.under.key].map(attached::halves).as_flattened());
                    words.push(held.owner.get());
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
        let (owner, is_ad_hoc) = (ClientId::from_u64(owner), limit.is_ad_hoc());
        let key = attached::whole([key_high, key_low]);
        let under = Under { limit: limit.shared_name(), is_ad_hoc, key };
        let left = left.saturating_sub(beyond_longest(limit));
        let (id, ends) = (LeaseId(attached::whole([id_high, id_low])), Some(clock.now() + left));
        let mut kept = self.lock();
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

/// How long a place under this limit is held at the most.
fn longest(limit: &Limit) -> Option<Span> {
    if !limit.is_ad_hoc() {
        return limit.lease();
    }
    Some(limit.lease().map_or(AD_HOC_LEASE_MAX, |lease| lease.min(AD_HOC_LEASE_MAX)))
}

/// How much longer the rule says that a place is held than it is.
fn beyond_longest(limit: &Limit) -> Span {
    let (lease, longest) = (limit.lease(), longest(limit));
    lease.zip(longest).map_or(Span::ZERO, |(lease, longest)| lease.saturating_sub(longest))
}

impl Kept {
    fn insert(&mut self, id: LeaseId, held: Held) {
        self.ends.extend(held.ends.map(|ends| (ends, id)));
        self.by_key.insert((held.under.clone(), id));
        self.permits.insert(id, held);
    }

    fn remove(&mut self, id: LeaseId) -> Option<Held> {
        let held = self.permits.remove(&id)?;
        if let Some(ends) = held.ends {
            self.ends.remove(&(ends, id));
        }
        self.by_key.remove(&(held.under.clone(), id));
        Some(held)
    }

    /// Takes out the leases under these limits and keys.
    fn take_out(&mut self, there: RangeInclusive<Under>) -> Vec<(LeaseId, Held)> {
        let (from, to) = there.into_inner();
        let there = self.by_key.range((from, LeaseId(0))..=(to, LeaseId(u128::MAX)));
        let ids: Vec<LeaseId> = there.map(|(_, id)| *id).collect();
        ids.into_iter().filter_map(|id| Some((id, self.remove(id)?))).collect()
    }

    /// Takes out leases that have run out: the first [`ENDED_AT_ONCE`], so that no request pays for all that end together.
    fn take_over(&mut self, now: Timestamp) -> Vec<Held> {
        let over = self.ends.iter().take_while(|(ends, _)| *ends <= now).take(ENDED_AT_ONCE);
        let ids: Vec<LeaseId> = over.map(|(_, id)| *id).collect();
        ids.into_iter().filter_map(|id| self.remove(id)).collect()
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

//! Leases: permits of concurrency limits that remote clients hold.
//!
//! Always   A client may disappear: its permit is released when the lease ends, by the limiter's clock; the entry here is removed by
//!          then or with the next acquire or release. Without a lease in its rule, a permit of a limit with a name is held until the
//!          client releases it.
//! Always   A permit of an ad-hoc rule is released after a day at the latest, and at once when the rule is evicted: the client that
//!          acquired the permit chose the rule, and may never come back.
//! Bound    At most [`LEASES_MAX`] leases, and [`AD_HOC_LEASES_MAX`] more of ad-hoc rules: a rule can have more permits than the
//!          server has memory for. Ad-hoc rules take no leases from limits with a name, and a client gets its [share](Shares) of
//!          either.
//! Always   Leases that end by themselves are in the snapshot with their ids: a permit that was restored can be released, once. A
//!          secret of this process makes the ids, so that no id is used again after a restart.

mod snapshot;
mod table;
#[cfg(test)]
mod tests;

use super::Limit;
use crate::clock::ServerClock;
use crate::sync::lock;
use std::collections::HashSet;
use std::fmt;
use std::hash::{BuildHasher as _, Hash};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use table::{HeldPermit, LeaseTable, LimitKey};
use tidegate::store::{ClientId, Shares, StorePermit};
use tidegate::{Clock, Decision, Span};

/// The maximum number of leases of limits with a name.
const LEASES_MAX: usize = 1 << 18;
/// The maximum number of leases of ad-hoc rules.
pub(super) const AD_HOC_LEASES_MAX: usize = 1 << 16;
/// The maximum time that a permit of an ad-hoc rule is held.
const AD_HOC_LEASE_MAX: Span = Span::from_secs(86_400);

/// The id by which a client releases its permit. No client can guess another's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LeaseId(u128);

/// A text is not the id of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the id of a lease has 32 lower-case hexadecimal digits")]
pub struct InvalidLeaseId;

/// The server holds as many leases as it can, or three quarters of them for this client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the server keeps at most {max} leases, three quarters of them for one client, and has no capacity left: release some, or give the \
     rule a lease"
)]
pub struct TooManyLeases {
    /// The maximum for this kind of limit.
    pub max: usize,
}

/// A permit that a client acquired.
#[derive(Clone, Copy, Debug)]
pub struct Lease {
    /// The id to release the permit by.
    pub id: LeaseId,
    /// The decision that granted the permit.
    pub decision: Decision,
    /// The maximum time that the permit is held; `None` until it is released.
    pub lease: Option<Span>,
}

#[derive(Debug)]
pub(super) struct Leases {
    table: Mutex<LeaseTable>,
    ids: AtomicU64,
    secret: std::hash::RandomState,
    named: Shares,
    ad_hoc: Shares,
}

impl Default for Leases {
    fn default() -> Self {
        Self {
            table: Mutex::default(),
            ids: AtomicU64::default(),
            secret: std::hash::RandomState::default(),
            named: Shares::new(LEASES_MAX),
            ad_hoc: Shares::new(AD_HOC_LEASES_MAX),
        }
    }
}

/// A reset that has not reached the store yet. The leases come back unless it [succeeds](Self::commit).
#[derive(Debug)]
pub(super) struct PendingReset<'a> {
    leases: &'a Leases,
    removed: Vec<(LeaseId, HeldPermit)>,
}

impl PendingReset<'_> {
    /// Ends the leases: the store has reset the key.
    pub(super) fn commit(mut self) {
        for (_, held) in std::mem::take(&mut self.removed) {
            self.leases.give_back_share(&held);
        }
    }
}

impl Drop for PendingReset<'_> {
    fn drop(&mut self) {
        let mut table = lock(&self.leases.table);
        for (id, held) in self.removed.drain(..) {
            table.insert(id, held);
        }
    }
}

impl Leases {
    /// Keeps a permit for the client that acquired it.
    ///
    /// # Errors
    /// If there are too many leases, or too many of the client. The permit is released.
    pub(super) fn add(
        &self,
        (limit, key): (&Limit, &[u8]),
        permit: Box<dyn StorePermit>,
        owner: ClientId,
        clock: &ServerClock,
    ) -> Result<Lease, TooManyLeases> {
        let (decision, lease) = (permit.decision(), lease_max(limit));
        let (id, limit_key) = (self.next_id(), self.limit_key(limit, key));
        let ends = lease.map(|lease| clock.now() + lease);
        let is_ad_hoc = limit.is_ad_hoc();
        if !self.shares(is_ad_hoc).take(owner) {
            return Err(TooManyLeases {
                max: if is_ad_hoc { AD_HOC_LEASES_MAX } else { LEASES_MAX },
            });
        }
        lock(&self.table).insert(id, HeldPermit { permit, ends, limit_key, owner });
        Ok(Lease { id, decision, lease })
    }

    /// Returns a lease without a permit: releasing it has no effect.
    pub(super) fn without_permit(&self, decision: Decision) -> Lease {
        Lease { id: self.next_id(), decision, lease: None }
    }

    /// Releases the permits whose leases have ended.
    pub(super) fn release_ended(&self, clock: &ServerClock) {
        let ended = lock(&self.table).remove_ended(clock.now());
        // Dropped without the lock: a released permit may wake a waiter.
        for held in ended {
            self.give_back_share(&held);
        }
    }

    /// Removes a lease and returns its permit, if it exists.
    pub(super) fn remove(&self, id: LeaseId, clock: &ServerClock) -> Option<Box<dyn StorePermit>> {
        self.release_ended(clock);
        let held = lock(&self.table).remove(id)?;
        self.give_back_share(&held);
        Some(held.permit)
    }

    /// Removes the leases of ad-hoc rules that are about to be evicted, and returns their permits.
    #[must_use = "a permit that is dropped may wake a waiter: not while locks are held"]
    pub(super) fn remove_rules(&self, rules: &HashSet<&str>) -> Vec<Box<dyn StorePermit>> {
        if self.ad_hoc.taken() == 0 {
            return Vec::new();
        }
        let mut removed = Vec::new();
        for rule in rules {
            let key = |key| LimitKey { limit: Arc::from(*rule), is_ad_hoc: true, key };
            removed.extend(lock(&self.table).remove_keys(key(0)..=key(u128::MAX)));
        }
        let give_back = |(_, held): (LeaseId, HeldPermit)| {
            self.give_back_share(&held);
            held.permit
        };
        removed.into_iter().map(give_back).collect()
    }

    /// Removes the leases of a key, before the store resets the key: leases that are acquired afterwards stay.
    pub(super) fn begin_reset(&self, limit: &Limit, key: &[u8]) -> PendingReset<'_> {
        if !limit.rule().is_concurrency() {
            return PendingReset { leases: self, removed: Vec::new() };
        }
        let key = self.limit_key(limit, key);
        PendingReset { leases: self, removed: lock(&self.table).remove_keys(key.clone()..=key) }
    }

    fn shares(&self, is_ad_hoc: bool) -> &Shares {
        if is_ad_hoc { &self.ad_hoc } else { &self.named }
    }

    fn give_back_share(&self, held: &HeldPermit) {
        self.shares(held.limit_key.is_ad_hoc).give_back(held.owner);
    }

    /// Returns a limit and a key. In memory, the key is the fingerprint of its limiter, which stays the same after a restart.
    fn limit_key(&self, limit: &Limit, key: &[u8]) -> LimitKey {
        let fingerprint = limit.counters().limiter().map(|limiter| limiter.fingerprint(key));
        let key = fingerprint.unwrap_or_else(|| self.hash(&(limit.name(), key)));
        LimitKey { limit: limit.shared_name(), is_ad_hoc: limit.is_ad_hoc(), key }
    }

    /// Returns 128 bits under this process's secret.
    fn hash(&self, value: &impl Hash) -> u128 {
        let half = |which: u64| u128::from(self.secret.hash_one((which, value)));
        half(0) << 64 | half(1)
    }

    fn next_id(&self) -> LeaseId {
        LeaseId(self.hash(&self.ids.fetch_add(1, Ordering::Relaxed)))
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        lock(&self.table).len()
    }
}

/// Returns the maximum time that a permit of this limit is held.
fn lease_max(limit: &Limit) -> Option<Span> {
    if !limit.is_ad_hoc() {
        return limit.lease();
    }
    Some(limit.lease().map_or(AD_HOC_LEASE_MAX, |lease| lease.min(AD_HOC_LEASE_MAX)))
}

impl fmt::Display for LeaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl std::str::FromStr for LeaseId {
    type Err = InvalidLeaseId;

    /// Parses the text that [`Display`](fmt::Display) writes, and no other: one text for one lease.
    fn from_str(text: &str) -> Result<Self, InvalidLeaseId> {
        let is_digit = |byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        if text.len() != 32 || !text.bytes().all(is_digit) {
            return Err(InvalidLeaseId);
        }
        u128::from_str_radix(text, 16).map(Self).map_err(|_| InvalidLeaseId)
    }
}

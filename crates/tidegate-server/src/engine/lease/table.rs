//! The table of leases: by id, by end, and by limit and key.

use super::LeaseId;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound::{Excluded, Unbounded};
use std::ops::RangeInclusive;
use std::sync::Arc;
use tidegate::Timestamp;
use tidegate::store::{ClientId, StorePermit};

/// The maximum number of ended leases that one request releases.
pub(super) const ENDED_BATCH_MAX: usize = 1_024;

#[derive(Debug, Default)]
pub(super) struct LeaseTable {
    permits: BTreeMap<LeaseId, HeldPermit>,
    ends: BTreeSet<(Timestamp, LeaseId)>,
    /// For resets, which look at no other leases.
    by_key: BTreeSet<(LimitKey, LeaseId)>,
}

#[derive(Debug)]
pub(super) struct HeldPermit {
    pub(super) permit: Box<dyn StorePermit>,
    pub(super) ends: Option<Timestamp>,
    pub(super) limit_key: LimitKey,
    /// The client that acquired the permit.
    pub(super) owner: ClientId,
}

/// A limit, and a 128-bit hash of one of its keys. In order, the keys of a limit are adjacent.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct LimitKey {
    pub(super) limit: Arc<str>,
    pub(super) is_ad_hoc: bool,
    pub(super) key: u128,
}

impl LeaseTable {
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.permits.len()
    }

    pub(super) fn contains(&self, id: LeaseId) -> bool {
        self.permits.contains_key(&id)
    }

    pub(super) fn insert(&mut self, id: LeaseId, held: HeldPermit) {
        self.ends.extend(held.ends.map(|ends| (ends, id)));
        self.by_key.insert((held.limit_key.clone(), id));
        self.permits.insert(id, held);
    }

    pub(super) fn remove(&mut self, id: LeaseId) -> Option<HeldPermit> {
        let held = self.permits.remove(&id)?;
        if let Some(ends) = held.ends {
            self.ends.remove(&(ends, id));
        }
        self.by_key.remove(&(held.limit_key.clone(), id));
        Some(held)
    }

    pub(super) fn remove_keys(
        &mut self,
        keys: RangeInclusive<LimitKey>,
    ) -> Vec<(LeaseId, HeldPermit)> {
        let (from, to) = keys.into_inner();
        let range = self.by_key.range((from, LeaseId(0))..=(to, LeaseId(u128::MAX)));
        let ids: Vec<LeaseId> = range.map(|(_, id)| *id).collect();
        ids.into_iter().filter_map(|id| Some((id, self.remove(id)?))).collect()
    }

    /// Removes the first [`ENDED_BATCH_MAX`] leases that have ended, so that no request pays for all that end together.
    pub(super) fn remove_ended(&mut self, now: Timestamp) -> Vec<HeldPermit> {
        let ended = self.ends.iter().take_while(|(ends, _)| *ends <= now).take(ENDED_BATCH_MAX);
        let ids: Vec<LeaseId> = ended.map(|(_, id)| *id).collect();
        ids.into_iter().filter_map(|id| self.remove(id)).collect()
    }

    /// Returns the leases after this one, in the order of their ids.
    pub(super) fn after(
        &self,
        last: Option<LeaseId>,
    ) -> impl Iterator<Item = (&LeaseId, &HeldPermit)> {
        self.permits.range((last.map_or(Unbounded, Excluded), Unbounded))
    }
}

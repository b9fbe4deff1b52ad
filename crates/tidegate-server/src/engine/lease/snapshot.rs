//! Leases in a snapshot: for each limit in memory, its name and its leases.

use super::table::{HeldPermit, LimitKey};
use super::{LeaseId, Leases, lease_max};
use crate::clock::ServerClock;
use crate::engine::Limit;
use crate::engine::snapshot_codec::{Reader, join, split, write_text, write_words};
use crate::sync::lock;
use std::collections::BTreeMap;
use std::sync::Arc;
use tidegate::snapshot::{Attached, Snapshot};
use tidegate::store::ClientId;
use tidegate::store::PermitRecord;
use tidegate::{Clock, Span};

/// The words of one lease: id, key, owner, and the record of its permit.
const LEASE_WORDS: usize = 9;
/// The name of the leases in a snapshot.
const ATTACHED_NAME: &str = "leases";
/// How many leases are copied under one lock, so that no request waits until all are copied.
const COPY_BATCH: usize = 1_024;

impl Leases {
    /// Encodes the leases of all limits in memory.
    pub(in crate::engine) fn attached(&self) -> Attached {
        let mut by_limit: BTreeMap<Arc<str>, Vec<u64>> = BTreeMap::new();
        let mut last = None;
        loop {
            let table = lock(&self.table);
            let mut copied = 0;
            for (id, held) in table.after(last).take(COPY_BATCH) {
                (copied, last) = (copied + 1, Some(*id));
                if let Some(record) = held.permit.record() {
                    let words = by_limit.entry(Arc::clone(&held.limit_key.limit)).or_default();
                    words.extend([id.0, held.limit_key.key].map(split).as_flattened());
                    words.push(held.owner.get());
                    words.extend(record.to_words());
                }
            }
            drop(table);
            if copied < COPY_BATCH {
                break;
            }
        }
        let mut bytes = Vec::new();
        for (limit, words) in &by_limit {
            write_text(&mut bytes, limit);
            write_words(&mut bytes, &[(words.len() / LEASE_WORDS) as u64]);
            write_words(&mut bytes, words);
        }
        (ATTACHED_NAME.to_owned(), bytes)
    }

    /// Restores the leases of a snapshot whose permits were restored, up to the maximum.
    pub(in crate::engine) fn restore(
        &self,
        restored: &Snapshot,
        find: impl Fn(&str) -> Option<Arc<Limit>>,
        clock: &ServerClock,
    ) {
        let Some(bytes) = restored.attached(ATTACHED_NAME) else { return };
        if self.decode(bytes, find, clock).is_none() {
            tracing::error!(
                "the leases in the snapshot cannot be read: their permits are released when the leases end"
            );
        }
    }

    fn decode(
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

    /// Restores one lease, unless its permit has ended or its limit's rule is of another kind now.
    fn reclaim(&self, limit: &Limit, lease: [u64; LEASE_WORDS], clock: &ServerClock) -> Option<()> {
        let [id_high, id_low, key_high, key_low, owner, record @ ..] = lease;
        let limiter = limit.counters().limiter()?;
        let (permit, left) = limiter.reclaim(&PermitRecord::from_words(record))?;
        let (owner, is_ad_hoc) = (ClientId::from_u64(owner), limit.is_ad_hoc());
        let key = join([key_high, key_low]);
        let limit_key = LimitKey { limit: limit.shared_name(), is_ad_hoc, key };
        let left = left.saturating_sub(beyond_lease_max(limit));
        let (id, ends) = (LeaseId(join([id_high, id_low])), Some(clock.now() + left));
        let mut table = lock(&self.table);
        // A permit that is not kept here is held until its lease ends.
        if table.contains(id) || !self.shares(is_ad_hoc).take_again(owner) {
            permit.forget();
            return None;
        }
        table.insert(id, HeldPermit { permit: Box::new(permit), ends, limit_key, owner });
        Some(())
    }
}

/// Returns by how much the lease of the rule exceeds the time that the server holds a permit.
fn beyond_lease_max(limit: &Limit) -> Span {
    let both = limit.lease().zip(lease_max(limit));
    both.map_or(Span::ZERO, |(lease, max)| lease.saturating_sub(max))
}

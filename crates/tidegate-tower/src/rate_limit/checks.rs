//! The checks that a request needs: for each limit that counts it, a key and a cost.

use super::limit_set::LimitSet;
use crate::head::Head;
use crate::key::{KeyBytes, PendingKey};
use crate::limit::{KeyRequired, RequestKey};
use smallvec::SmallVec;
use tidegate::{Clock, Decision, Timestamp};

/// What one limit is to decide.
pub(super) struct Check {
    /// The index of the limit in its layer.
    pub(super) limit: usize,
    pub(super) key: KeyBytes,
    pub(super) cost: u64,
    /// When nothing of the charge is left, so that a refund would be one too many; `None` if nothing was charged.
    pub(super) drained_at: Option<Timestamp>,
}

impl Check {
    pub(super) fn new(limit: usize, key: KeyBytes, cost: u64) -> Self {
        Self { limit, key, cost, drained_at: None }
    }

    /// Records that the cost was charged by this decision. A decision that was made without the key's state charged nothing.
    pub(super) fn charged(&mut self, now: Timestamp, decision: &Decision) {
        let is_known = decision.known_remaining().is_some();
        self.drained_at = Some(if is_known { now + decision.reset_after } else { now });
    }

    /// Returns whether some of the charge is left to refund.
    pub(super) fn is_refundable(&self, now: Timestamp) -> bool {
        self.drained_at.is_some_and(|drained_at| now < drained_at)
    }
}

/// The checks of a request, by the index of their limits. A layer with one limit does not allocate for them.
pub(super) type CheckList = SmallVec<[Check; 1]>;

/// A limit denies requests without a key, and this one has none.
#[derive(Clone, Copy)]
pub struct NoKey {
    pub(super) limit: usize,
}

/// All checks of a request, some of whose keys may not be known yet.
pub(super) struct Checks {
    pub(super) known: CheckList,
    /// The index and the cost, and the key to wait for.
    pending: Vec<(usize, u64, PendingKey)>,
}

impl Checks {
    pub(super) fn is_complete(&self) -> bool {
        self.pending.is_empty()
    }

    /// Waits for the keys that are not known yet.
    pub(super) async fn complete<C: Clock>(self, set: &LimitSet<C>) -> Result<CheckList, NoKey> {
        let mut checks = self.known;
        for (limit, cost, key) in self.pending {
            let key = set.limits[limit].awaited_key(key.await);
            let key = key.map_err(|KeyRequired| NoKey { limit })?;
            checks.extend(key.map(|key| Check::new(limit, key, cost)));
        }
        checks.sort_by_key(|check| check.limit);
        Ok(checks)
    }
}

impl<C: Clock> LimitSet<C> {
    /// Returns the checks that a request needs.
    #[inline]
    pub(super) fn checks(&self, head: &Head<'_>) -> Result<Checks, NoKey> {
        let mut checks = Checks { known: CheckList::new(), pending: Vec::new() };
        for (index, limit) in self.limits.iter().enumerate() {
            match limit.request_key(head) {
                Ok(RequestKey::Key(key)) => {
                    checks.known.push(Check::new(index, key, limit.cost_of(head)));
                }
                Ok(RequestKey::Pending(key)) => {
                    checks.pending.push((index, limit.cost_of(head), key));
                }
                Ok(RequestKey::Uncounted) => {}
                Err(KeyRequired) => return Err(NoKey { limit: index }),
            }
        }
        Ok(checks)
    }
}

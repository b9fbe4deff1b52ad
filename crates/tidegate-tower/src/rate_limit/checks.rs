//! What is asked of each limit that counts a request.

use super::admission::RejectReason;
use super::limit_set::LimitSet;
use crate::head::Head;
use crate::key::{KeyBytes, KeyLookup, MissingKey, PendingKey};
use crate::limit::OnMissing;
use tidegate::{Clock, Decision, Timestamp};

/// How much, for whom, under which limit.
pub(super) struct Check {
    pub(super) index: usize,
    pub(super) key: KeyBytes,
    pub(super) cost: u64,
    /// When nothing of the charge is left, and there is nothing to give back any more; unknown before it is charged.
    pub(super) drained_at: Option<Timestamp>,
}

impl Check {
    pub(super) fn new(index: usize, key: KeyBytes, cost: u64) -> Self {
        Self { index, key, cost, drained_at: None }
    }

    /// When nothing of what this decision charged is left. A decision without the key's state charged nothing.
    pub(super) fn drains_at(now: Timestamp, decision: &Decision) -> Timestamp {
        if decision.known_remaining().is_none() { now } else { now + decision.reset_after }
    }

    /// Whether there is nothing to give back any more. What has drained is back already; to give it back again would be
    /// to give it twice.
    pub(super) fn is_drained(&self, now: Timestamp) -> bool {
        self.drained_at.is_some_and(|drained| drained <= now)
    }
}

/// All checks about a request, some of whose keys may have to be waited for.
pub(super) struct Checks {
    pub(super) checks: Vec<Check>,
    later: Vec<(usize, u64, PendingKey)>,
}

impl Checks {
    pub(super) fn is_complete(&self) -> bool {
        self.later.is_empty()
    }

    /// Waits for the keys that were not there.
    pub(super) async fn complete<C: Clock>(
        self,
        shared: &LimitSet<C>,
    ) -> Result<Vec<Check>, RejectReason> {
        let mut checks = self.checks;
        for (index, cost, key) in self.later {
            let key = match key.await {
                Some(key) => Some(key),
                None => shared.without_key(index, MissingKey::Part)?,
            };
            checks.extend(key.map(|key| Check::new(index, key, cost)));
        }
        checks.sort_by_key(|check| check.index);
        Ok(checks)
    }
}

impl<C: Clock> LimitSet<C> {
    /// What the limits that count this request ask, or why it goes no further.
    pub(super) fn asked(&self, head: &Head<'_>) -> Result<Checks, RejectReason> {
        let mut asked = Checks { checks: Vec::with_capacity(self.limits.len()), later: Vec::new() };
        for (index, limit) in self.limits.iter().enumerate().filter(|(_, limit)| limit.counts(head))
        {
            let cost = limit.cost_of(head);
            let key = match limit.key_of(head) {
                KeyLookup::Key(key) => Some(key),
                KeyLookup::Missing(missing) => self.without_key(index, missing)?,
                KeyLookup::Pending => {
                    asked.later.push((index, cost, limit.later_key_of(head)));
                    None
                }
            };
            asked.checks.extend(key.map(|key| Check::new(index, key, cost)));
        }
        Ok(asked)
    }

    /// The key of those who have none, or none if they are not counted.
    fn without_key(
        &self,
        index: usize,
        missing: MissingKey,
    ) -> Result<Option<KeyBytes>, RejectReason> {
        match self.limits[index].without_key(missing) {
            Some(OnMissing::Shared) => Ok(Some(KeyBytes::new())),
            Some(OnMissing::Allow) => Ok(None),
            Some(OnMissing::Deny) | None => Err(RejectReason::NoKey { limit: index, missing }),
        }
    }
}

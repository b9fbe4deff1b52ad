//! Many requests at once: hashed first, prefetched next, decided last. Under a bucket, the clock is read once.
//!
//! Each request is decided on its own, in order. For requests that must all pass or all fail there is
//! [`check_all`](crate::check_all).

use super::{Fingerprint, KeyName, MemoryStore, prefetch};
use crate::clock::{Clock, SystemClock};
use crate::sync::Arc;
use std::fmt;
use std::hash::Hash;
use tidegate_core::{Decision, Timestamp};

/// Requests that are decided together; created by [`Limiter::batch`](crate::Limiter::batch).
///
/// Loading a key that is not in the processor's cache takes as long as ten decisions. A batch loads several keys at the
/// same time.
///
/// ```
/// use tidegate::{Limiter, ManualClock};
///
/// let limiter = Limiter::with_clock("2/s".parse()?, ManualClock::new());
/// let mut batch = limiter.batch();
/// for key in ["alice", "bob", "alice", "alice"] {
///     batch.push(key, 1);
/// }
/// let allowed: Vec<bool> = batch.decide().iter().map(|decision| decision.is_allow()).collect();
/// assert_eq!(allowed, [true, true, true, false]);
///
/// batch.push("bob", 1); // and so on: a batch can be used again
/// assert_eq!(batch.decide().len(), 1);
/// # Ok::<(), tidegate::RuleError>(())
/// ```
pub struct Batch<C: Clock = SystemClock> {
    store: Arc<MemoryStore<C>>,
    requests: Vec<(Fingerprint, u64)>,
    decisions: Vec<Decision>,
}

/// The number of keys whose rows are prefetched. To decide this many takes about as long as to load one row, and the
/// processor can wait for this many at once.
const AHEAD: usize = 12;
/// The number of cache lines of a shard that a decision in its row reads.
const SHARD_LINES: usize = 4;

impl<C: Clock> Batch<C> {
    pub(crate) fn new(store: Arc<MemoryStore<C>>) -> Self {
        Self { store, requests: Vec::new(), decisions: Vec::new() }
    }

    /// Adds a request of this key at this cost.
    #[inline]
    pub fn push<K: Hash + ?Sized>(&mut self, key: &K, cost: u64) {
        let key = self.store.secret.of(key);
        self.store.prefetch_shard(key);
        self.requests.push((key, cost));
    }

    /// Decides the requests in the order in which they were added, and empties the batch.
    pub fn decide(&mut self) -> &[Decision] {
        self.decisions.clear();
        if self.requests.is_empty() {
            return &self.decisions;
        }
        let now = self.store.quick_time();
        for (key, _) in self.requests.iter().take(AHEAD) {
            self.store.prefetch(*key);
        }
        for (at, (key, cost)) in self.requests.iter().enumerate() {
            if let Some((later, _)) = self.requests.get(at + AHEAD) {
                self.store.prefetch(*later);
            }
            self.decisions.push(match now {
                Some(now) => self.store.check_batched(*key, *cost, now),
                None => self.store.check_slowly(*key, *cost, KeyName::default),
            });
        }
        self.requests.clear();
        &self.decisions
    }

    /// Returns the number of requests since the last [`decide`](Self::decide).
    pub fn len(&self) -> usize {
        self.requests.len()
    }

    /// Returns whether no request was added since the last [`decide`](Self::decide).
    pub fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }
}

impl<C: Clock> MemoryStore<C> {
    /// Decides without the key's name: the sketch of busy keys learns names from single requests only.
    #[inline]
    fn check_batched(&self, key: Fingerprint, cost: u64, now: Timestamp) -> Decision {
        self.check_at((key, self.hot.find(key)), cost, now, KeyName::default)
    }

    /// Prefetches a key's shard.
    #[inline]
    pub(super) fn prefetch_shard(&self, key: Fingerprint) {
        prefetch::beginning::<SHARD_LINES, _>(&self.shards[self.shard_of(key)]);
    }

    /// Prefetches both. Not inlined, so that the code for a hot key stays short.
    #[inline(never)]
    pub(super) fn prefetch_apart(&self, key: Fingerprint) {
        // The row first, because it is further away.
        self.prefetch(key);
        self.prefetch_shard(key);
    }

    /// Prefetches a key's row.
    #[inline]
    pub(super) fn prefetch(&self, key: Fingerprint) {
        self.row_locations[self.shard_of(key)].prefetch(key);
    }
}

impl<C: Clock> fmt::Debug for Batch<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batch").field("len", &self.len()).finish_non_exhaustive()
    }
}

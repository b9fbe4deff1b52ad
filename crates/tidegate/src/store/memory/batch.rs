//! Many requests at once: hashed first, fetched next, decided last; for buckets, with one look at the
//! clock.
//!
//! Each is decided on its own, in the order they came; requests that must stand or fall together are
//! for [`check_all`](crate::check_all).

use super::{Fingerprint, KeyName, MemoryStore, prefetch};
use crate::clock::{Clock, SystemClock};
use crate::sync::Arc;
use std::fmt;
use std::hash::Hash;
use tidegate_core::{Decision, Timestamp};

/// Requests that are decided in one go; made by [`Limiter::batch`](crate::Limiter::batch).
///
/// A key that is not in the processor's cache takes as long to fetch as ten decisions take. A batch
/// fetches all of its keys at the same time.
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
    asked: Vec<(Fingerprint, u64)>,
    decisions: Vec<Decision>,
}

/// How many keys are fetched ahead: deciding about them takes about as long as fetching one, and the
/// processor can wait for that many at once.
const AHEAD: usize = 12;
/// How many cache lines of a shard a quick decision reads.
const SHARD_LINES: usize = 4;

impl<C: Clock> Batch<C> {
    pub(crate) fn new(store: Arc<MemoryStore<C>>) -> Self {
        Self { store, asked: Vec::new(), decisions: Vec::new() }
    }

    /// Adds a request: something of this cost for this key.
    ///
    /// ```
    /// # use tidegate::{Limiter, ManualClock};
    /// let limiter = Limiter::with_clock("10/s".parse()?, ManualClock::new());
    /// let mut batch = limiter.batch();
    /// batch.push("alice", 7);
    /// assert_eq!(batch.decide()[0].remaining, 3);
    /// # Ok::<(), tidegate::RuleError>(())
    /// ```
    #[inline]
    pub fn push<K: Hash + ?Sized>(&mut self, key: &K, cost: u64) {
        let key = self.store.secret.of(key);
        self.store.prefetch_shard(key);
        self.asked.push((key, cost));
    }

    /// Decides all that were added, in that order, and forgets them.
    ///
    /// ```
    /// # use tidegate::{Limiter, ManualClock};
    /// let limiter = Limiter::with_clock("10/s".parse()?, ManualClock::new());
    /// assert!(limiter.batch().decide().is_empty(), "nothing was asked");
    /// # Ok::<(), tidegate::RuleError>(())
    /// ```
    pub fn decide(&mut self) -> &[Decision] {
        self.decisions.clear();
        if self.asked.is_empty() {
            return &self.decisions;
        }
        let now = self.store.quick_time();
        for (key, _) in self.asked.iter().take(AHEAD) {
            self.store.prefetch(*key);
        }
        for (at, (key, cost)) in self.asked.iter().enumerate() {
            if let Some((later, _)) = self.asked.get(at + AHEAD) {
                self.store.prefetch(*later);
            }
            self.decisions.push(match now {
                Some(now) => self.store.check_batched(*key, *cost, now),
                None => self.store.check_slowly(*key, *cost, KeyName::default),
            });
        }
        self.asked.clear();
        &self.decisions
    }

    /// How many were added since the last [`decide`](Self::decide).
    ///
    /// ```
    /// # use tidegate::Limiter;
    /// let limiter = Limiter::new("10/s".parse()?);
    /// let mut batch = limiter.batch();
    /// batch.push("alice", 1);
    /// assert_eq!(batch.len(), 1);
    /// # Ok::<(), tidegate::RuleError>(())
    /// ```
    pub fn len(&self) -> usize {
        self.asked.len()
    }

    /// Whether nothing was added since the last [`decide`](Self::decide).
    ///
    /// ```
    /// # use tidegate::Limiter;
    /// assert!(Limiter::new("10/s".parse()?).batch().is_empty());
    /// # Ok::<(), tidegate::RuleError>(())
    /// ```
    pub fn is_empty(&self) -> bool {
        self.asked.is_empty()
    }
}

impl<C: Clock> MemoryStore<C> {
    /// Without the name: the sketch takes it from requests that are decided one at a time.
    #[inline]
    fn check_batched(&self, key: Fingerprint, cost: u64, now: Timestamp) -> Decision {
        self.check_at((key, self.hot.find(key)), cost, now, KeyName::default)
    }

    /// Fetches a key's shard.
    #[inline]
    pub(super) fn prefetch_shard(&self, key: Fingerprint) {
        prefetch::beginning::<SHARD_LINES, _>(&self.shards[self.shard_of(key)]);
    }

    /// Fetches both, without a word in the caller's code: the way to a hot key is to be short.
    #[inline(never)]
    pub(super) fn prefetch_apart(&self, key: Fingerprint) {
        // The row first: it takes longer to come.
        self.prefetch(key);
        self.prefetch_shard(key);
    }

    /// Fetches a key's row, whose shard should be there.
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

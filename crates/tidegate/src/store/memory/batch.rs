//! Many requests at once: hashed first, prefetched next, decided last. The clock is read once, except for rules other than
//! the first bucket.
//!
//! Each request is decided on its own, in order. For requests that must all pass or all fail there is
//! [`check_all`](crate::check_all).

use super::{Fingerprint, KeyName, MemoryStore};
use crate::clock::{Clock, SystemClock};
use crate::sync::Arc;
use std::fmt;
use std::hash::Hash;
use tidegate_core::{Decision, Throttle, Throttled};

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
    /// Each request with its cost.
    requests: HashedRequests<C, u64>,
    decisions: Vec<Decision>,
}

impl<C: Clock> Batch<C> {
    pub(crate) fn new(store: Arc<MemoryStore<C>>) -> Self {
        Self { requests: HashedRequests::new(store), decisions: Vec::new() }
    }

    /// Adds a request of this key at this cost.
    #[inline]
    pub fn push<K: Hash + ?Sized>(&mut self, key: &K, cost: u64) {
        self.requests.push(key, cost);
    }

    /// Decides the requests in the order in which they were added, and empties the batch.
    pub fn decide(&mut self) -> &[Decision] {
        self.decisions.clear();
        if !self.is_empty() {
            let now = self.requests.store.quick_time();
            // The key's name is not known here: the sketch of busy keys learns names from single requests only.
            self.requests.drain(|store, key, &cost| {
                self.decisions.push(match now {
                    Some(now) => {
                        store.check_at((key, store.hot.find(key)), cost, now, KeyName::default)
                    }
                    None => store.check_slowly(key, cost, KeyName::default),
                });
            });
        }
        &self.decisions
    }

    /// Returns the number of requests since the last [`decide`](Self::decide).
    pub fn len(&self) -> usize {
        self.requests.keyed.len()
    }

    /// Returns whether no request was added since the last [`decide`](Self::decide).
    pub fn is_empty(&self) -> bool {
        self.requests.keyed.is_empty()
    }
}

impl<C: Clock> fmt::Debug for Batch<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batch").field("len", &self.len()).finish_non_exhaustive()
    }
}

/// Requests with a rate each that are decided together; created by
/// [`Throttles::batch`](crate::throttle::Throttles::batch).
///
/// ```
/// use tidegate::ManualClock;
/// use tidegate::throttle::{Throttle, Throttles};
///
/// let throttles = Throttles::with_clock(ManualClock::new());
/// let mut batch = throttles.batch();
/// batch.push("alice", Throttle::new(4, 1, 1, 1)?);
/// batch.push("bob", Throttle::new(9, 1, 1, 1)?);
/// let mut remaining = Vec::new();
/// batch.decide(|throttled| remaining.push(throttled.remaining));
/// assert_eq!(remaining, [4, 9]);
/// # Ok::<(), tidegate::throttle::ZeroRate>(())
/// ```
pub struct ThrottleBatch<C: Clock = SystemClock> {
    requests: HashedRequests<C, Throttle>,
}

impl<C: Clock> ThrottleBatch<C> {
    pub(crate) fn new(store: Arc<MemoryStore<C>>) -> Self {
        Self { requests: HashedRequests::new(store) }
    }

    /// Adds a request.
    #[inline]
    pub fn push<K: Hash + ?Sized>(&mut self, key: &K, throttle: Throttle) {
        self.requests.push(key, throttle);
    }

    /// Decides the requests in the order in which they were added, passes each decision to `reply`, and empties the batch.
    #[inline]
    pub fn decide(&mut self, mut reply: impl FnMut(Throttled)) {
        if !self.is_empty() {
            let now = self.requests.store.steady_now();
            self.requests.drain(|store, key, throttle| {
                reply(store.throttle_at((key, store.hot.find(key)), throttle, now));
            });
        }
    }

    /// Returns the number of requests since the last [`decide`](Self::decide).
    pub fn len(&self) -> usize {
        self.requests.keyed.len()
    }

    /// Returns whether no request was added since the last [`decide`](Self::decide).
    pub fn is_empty(&self) -> bool {
        self.requests.keyed.is_empty()
    }
}

impl<C: Clock> fmt::Debug for ThrottleBatch<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ThrottleBatch").field("len", &self.len()).finish_non_exhaustive()
    }
}

/// Requests of one store whose keys are hashed.
struct HashedRequests<C, R> {
    store: Arc<MemoryStore<C>>,
    keyed: Vec<(Fingerprint, R)>,
}

/// The number of keys whose rows are prefetched. To decide this many takes about as long as to load one row, and the
/// processor can wait for this many at once.
const AHEAD: usize = 12;

impl<C: Clock, R> HashedRequests<C, R> {
    fn new(store: Arc<MemoryStore<C>>) -> Self {
        Self { store, keyed: Vec::new() }
    }

    #[inline]
    fn push<K: Hash + ?Sized>(&mut self, key: &K, request: R) {
        let key = self.store.secret.of(key);
        self.store.prefetch_shard(key);
        self.keyed.push((key, request));
    }

    /// Calls `decide` with each request in order, while the rows of the next ones are prefetched, and removes them all.
    #[inline]
    fn drain(&mut self, mut decide: impl FnMut(&MemoryStore<C>, Fingerprint, &R)) {
        for (key, _) in self.keyed.iter().take(AHEAD) {
            self.store.prefetch_row(*key);
        }
        for (at, (key, request)) in self.keyed.iter().enumerate() {
            if let Some((later, _)) = self.keyed.get(at + AHEAD) {
                self.store.prefetch_row(*later);
            }
            decide(&self.store, *key, request);
        }
        self.keyed.clear();
    }
}

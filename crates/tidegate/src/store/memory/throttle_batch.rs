//! Many `CL.THROTTLE` at once: hashed first, prefetched next, decided last. The clock is read once.

use super::{Fingerprint, MemoryStore};
use crate::clock::{Clock, SystemClock};
use crate::sync::Arc;
use std::fmt;
use std::hash::Hash;
use tidegate_core::{Throttle, Throttled};

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
    store: Arc<MemoryStore<C>>,
    requests: Vec<(Fingerprint, Throttle)>,
}

/// The number of keys whose rows are prefetched, as in every batch.
const AHEAD: usize = 12;

impl<C: Clock> ThrottleBatch<C> {
    pub(crate) fn new(store: Arc<MemoryStore<C>>) -> Self {
        Self { store, requests: Vec::new() }
    }

    /// Adds a request.
    #[inline]
    pub fn push<K: Hash + ?Sized>(&mut self, key: &K, throttle: Throttle) {
        let key = self.store.secret.of(key);
        self.store.prefetch_shard(key);
        self.requests.push((key, throttle));
    }

    /// Decides the requests in the order in which they were added, passes each answer to `reply`, and empties the batch.
    #[inline]
    pub fn decide(&mut self, mut reply: impl FnMut(Throttled)) {
        if self.requests.is_empty() {
            return;
        }
        let now = self.store.steady_now();
        for (key, _) in self.requests.iter().take(AHEAD) {
            self.store.prefetch(*key);
        }
        for (at, (key, throttle)) in self.requests.iter().enumerate() {
            if let Some((later, _)) = self.requests.get(at + AHEAD) {
                self.store.prefetch(*later);
            }
            reply(self.store.throttle_batched(*key, throttle, now));
        }
        self.requests.clear();
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

impl<C: Clock> fmt::Debug for ThrottleBatch<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ThrottleBatch").field("len", &self.len()).finish_non_exhaustive()
    }
}

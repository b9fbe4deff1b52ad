//! Many `CL.THROTTLE` at once: hashed first, fetched next, decided last, with one look at the clock.

use super::{Fingerprint, MemoryStore};
use crate::clock::{Clock, SystemClock};
use crate::sync::Arc;
use std::fmt;
use std::hash::Hash;
use tidegate_core::{Throttle, Throttled};

/// Requests with a rate each that are decided in one go; made by
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
    asked: Vec<(Fingerprint, Throttle)>,
}

/// So many keys are fetched ahead, as in every batch.
const AHEAD: usize = 12;

impl<C: Clock> ThrottleBatch<C> {
    pub(crate) fn new(store: Arc<MemoryStore<C>>) -> Self {
        Self { store, asked: Vec::new() }
    }

    /// Adds a request.
    ///
    /// ```
    /// # use tidegate::ManualClock;
    /// # use tidegate::throttle::{Throttle, Throttles};
    /// let mut batch = Throttles::with_clock(ManualClock::new()).batch();
    /// batch.push("alice", Throttle::new(0, 1, 1, 1)?);
    /// assert_eq!(batch.len(), 1);
    /// # Ok::<(), tidegate::throttle::ZeroRate>(())
    /// ```
    #[inline]
    pub fn push<K: Hash + ?Sized>(&mut self, key: &K, throttle: Throttle) {
        let key = self.store.secret.of(key);
        self.store.prefetch_shard(key);
        self.asked.push((key, throttle));
    }

    /// Decides all that were added, in that order, says each answer, and forgets them.
    ///
    /// ```
    /// # use tidegate::ManualClock;
    /// # use tidegate::throttle::{Throttle, Throttles};
    /// let mut batch = Throttles::with_clock(ManualClock::new()).batch();
    /// batch.push("alice", Throttle::new(0, 1, 1, 1)?);
    /// batch.decide(|throttled| assert_eq!(throttled.reply(), [0, 1, 0, -1, 1]));
    /// assert!(batch.is_empty());
    /// # Ok::<(), tidegate::throttle::ZeroRate>(())
    /// ```
    #[inline]
    pub fn decide(&mut self, mut say: impl FnMut(Throttled)) {
        if self.asked.is_empty() {
            return;
        }
        let now = self.store.steady_now();
        for (key, _) in self.asked.iter().take(AHEAD) {
            self.store.prefetch(*key);
        }
        for (at, (key, throttle)) in self.asked.iter().enumerate() {
            if let Some((later, _)) = self.asked.get(at + AHEAD) {
                self.store.prefetch(*later);
            }
            say(self.store.throttle_batched(*key, throttle, now));
        }
        self.asked.clear();
    }

    /// How many were added since the last [`decide`](Self::decide).
    ///
    /// ```
    /// # use tidegate::throttle::Throttles;
    /// assert_eq!(Throttles::new().batch().len(), 0);
    /// ```
    pub fn len(&self) -> usize {
        self.asked.len()
    }

    /// Whether nothing was added since the last [`decide`](Self::decide).
    ///
    /// ```
    /// # use tidegate::throttle::Throttles;
    /// assert!(Throttles::new().batch().is_empty());
    /// ```
    pub fn is_empty(&self) -> bool {
        self.asked.is_empty()
    }
}

impl<C: Clock> fmt::Debug for ThrottleBatch<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ThrottleBatch").field("len", &self.len()).finish_non_exhaustive()
    }
}

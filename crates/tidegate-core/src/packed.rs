//! States in a few words: for stores that keep millions of them.
//!
//! Always   A state that is packed and unpacked is the same state: nothing is rounded. What does not
//!          fit is not packed, and its owner keeps it whole.

use crate::algorithm::NarrowBucket;
use crate::closed_set::Algorithms;
use crate::limit::{Limit, State};
use crate::time::Timestamp;
use alloc::vec::Vec;

impl Limit {
    /// How many words a packed state has: one for buckets and queues, two or three for other rules,
    /// and none where a state has no largest size (`sliding-log`, `concurrency`).
    ///
    /// ```
    /// # use tidegate_core::Limit;
    /// assert_eq!("100/s burst 20".parse::<Limit>()?.packed_words(), 1);
    /// assert_eq!("100/s sliding".parse::<Limit>()?.packed_words(), 2);
    /// assert_eq!("100/s sliding-log".parse::<Limit>()?.packed_words(), 0);
    /// # Ok::<(), tidegate_core::RuleError>(())
    /// ```
    pub fn packed_words(&self) -> usize {
        self.algorithm.words()
    }

    /// The state in [`packed_words`](Self::packed_words) words (the others are zero), with times
    /// counted from `epoch`; `None` if it does not fit. A bucket's word is the state of its
    /// [`NarrowBucket`], and is never `u64::MAX`.
    ///
    /// ```
    /// # use tidegate_core::{Limit, Timestamp};
    /// let limit: Limit = "1/s burst 2".parse()?;
    /// let epoch = Timestamp::from_micros(500);
    /// let mut state = limit.fresh(epoch);
    /// limit.decide(&mut state, epoch, 1);
    ///
    /// let words = limit.pack(&state, epoch).expect("it fits");
    /// assert_eq!(words, [1_000_000, 0, 0], "full in a second");
    /// assert_eq!(limit.peek(&limit.unpack(&words, epoch), epoch, 0).remaining, 1);
    /// # Ok::<(), tidegate_core::RuleError>(())
    /// ```
    #[inline]
    pub fn pack(&self, state: &State, epoch: Timestamp) -> Option<[u64; 3]> {
        self.algorithm.pack(&state.0, epoch)
    }

    /// The way back from [`pack`](Self::pack), under the same limit and with the same epoch.
    ///
    /// ```
    /// # use tidegate_core::{Limit, Timestamp};
    /// let limit: Limit = "1/s burst 2".parse()?;
    /// let full_in_a_second = limit.unpack(&[1_000_000, 0, 0], Timestamp::EPOCH);
    /// assert_eq!(limit.peek(&full_in_a_second, Timestamp::EPOCH, 0).remaining, 1);
    /// # Ok::<(), tidegate_core::RuleError>(())
    /// ```
    #[inline]
    pub fn unpack(&self, words: &[u64; 3], epoch: Timestamp) -> State {
        State(self.algorithm.unpack(words, epoch))
    }

    /// All of a state in words, whatever its size: for those who write it down. Of a concurrency limit,
    /// only what has a lease is written: who reads it later cannot know whether the others still run.
    ///
    /// ```
    /// # use tidegate_core::{Limit, Timestamp};
    /// let limit: Limit = "2/s sliding-log".parse()?;
    /// let mut state = limit.fresh(Timestamp::EPOCH);
    /// limit.decide(&mut state, Timestamp::EPOCH, 2);
    ///
    /// let words = limit.write_state(&state);
    /// let read = limit.read_state(&words).expect("it was written by the same rule");
    /// assert_eq!(limit.peek(&read, Timestamp::EPOCH, 0).remaining, 0);
    /// # Ok::<(), tidegate_core::RuleError>(())
    /// ```
    pub fn write_state(&self, state: &State) -> Vec<u64> {
        self.algorithm.write(&state.0)
    }

    /// The way back from [`write_state`](Self::write_state), under the same rule; `None` for what it has not
    /// written.
    ///
    /// ```
    /// # use tidegate_core::Limit;
    /// assert!("2/s".parse::<Limit>()?.read_state(&[1, 2, 3]).is_none());
    /// # Ok::<(), tidegate_core::RuleError>(())
    /// ```
    pub fn read_state(&self, words: &[u64]) -> Option<State> {
        self.algorithm.read(words).map(State)
    }

    /// The bucket in one word, when the rule is a bucket and its capacity is small enough.
    ///
    /// ```
    /// # use tidegate_core::Limit;
    /// assert!("100/s burst 20".parse::<Limit>()?.narrow_bucket().is_some());
    /// assert!("100/s sliding".parse::<Limit>()?.narrow_bucket().is_none());
    /// # Ok::<(), tidegate_core::RuleError>(())
    /// ```
    pub fn narrow_bucket(&self) -> Option<NarrowBucket> {
        match &self.algorithm {
            Algorithms::TokenBucket(bucket) => bucket.narrow(),
            Algorithms::Leaky(bucket) => bucket.narrow(),
            _ => None,
        }
    }
}

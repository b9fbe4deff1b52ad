//! A limit's states as words and as Lua numbers, for the stores that keep them.

use super::{Limit, State};
use crate::algorithm::NarrowBucket;
use crate::algorithm::dispatch::Algorithms;
use crate::codec::lua::TooLargeForLua;
use crate::decision::Decision;
use crate::time::Timestamp;
use alloc::vec::Vec;

/// Packed states.
impl Limit {
    /// Returns the number of words of a packed state: one for buckets and queues, two or three for other rules,
    /// and zero for `sliding-log` and `concurrency`, whose states have no maximum size.
    pub fn packed_words(&self) -> usize {
        self.algorithm.packed_words()
    }

    /// Packs a state into [`packed_words`](Self::packed_words) words (the others are zero), with times counted
    /// from `epoch`.
    ///
    /// Returns `None` if the state does not fit. A token bucket's word is the state of its [`NarrowBucket`], and
    /// is never `u64::MAX`.
    ///
    /// ```
    /// # use tidegate_core::{Limit, Timestamp};
    /// let limit: Limit = "1/s burst 2".parse()?;
    /// let epoch = Timestamp::from_micros(500);
    /// let mut state = limit.fresh(epoch);
    /// let _ = limit.decide(&mut state, epoch, 1);
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

    /// Restores a state from the words that [`pack`](Self::pack) returned for the same limit and epoch.
    #[inline]
    pub fn unpack(&self, words: &[u64; 3], epoch: Timestamp) -> State {
        State(self.algorithm.unpack(words, epoch))
    }

    /// Decides about a request on a packed state: unpacks it, decides as [`decide`](Self::decide) does, and packs
    /// the new state into the same words.
    ///
    /// Returns `None`, and leaves the words as they are, if the new state does not fit into them.
    ///
    /// ```
    /// # use tidegate_core::{Limit, Timestamp};
    /// let limit: Limit = "2/min sliding".parse()?;
    /// let (epoch, now) = (Timestamp::EPOCH, Timestamp::from_micros(5));
    /// let mut words = limit.pack(&limit.fresh(epoch), epoch).expect("it fits");
    /// let decision = limit.decide_packed(&mut words, epoch, now, 2).expect("it fits");
    /// assert_eq!(decision, limit.peek(&limit.unpack(&words, epoch), now, 0));
    /// # Ok::<(), tidegate_core::RuleError>(())
    /// ```
    #[inline]
    pub fn decide_packed(
        &self,
        words: &mut [u64; 3],
        epoch: Timestamp,
        now: Timestamp,
        cost: u64,
    ) -> Option<Decision> {
        self.algorithm.decide_packed(words, epoch, now, cost)
    }

    /// Returns the token bucket whose whole state is one word, if the rule is a bucket with a capacity small
    /// enough.
    pub fn narrow_bucket(&self) -> Option<NarrowBucket> {
        match &self.algorithm {
            Algorithms::TokenBucket(bucket) => bucket.narrow,
            Algorithms::Leaky(bucket) => bucket.narrow(),
            _ => None,
        }
    }
}

/// States in snapshots.
impl Limit {
    /// Returns the complete state as words, whatever its size.
    ///
    /// Permits of a concurrency limit are included only if they have a lease: a reader of the snapshot cannot
    /// know whether the other requests still run.
    ///
    /// ```
    /// # use tidegate_core::{Limit, Timestamp};
    /// let limit: Limit = "2/s sliding-log".parse()?;
    /// let mut state = limit.fresh(Timestamp::EPOCH);
    /// let _ = limit.decide(&mut state, Timestamp::EPOCH, 2);
    ///
    /// let words = limit.write_state(&state);
    /// let restored = limit.read_state(&words).expect("the same rule wrote it");
    /// assert_eq!(limit.peek(&restored, Timestamp::EPOCH, 0).remaining, 0);
    /// # Ok::<(), tidegate_core::RuleError>(())
    /// ```
    pub fn write_state(&self, state: &State) -> Vec<u64> {
        self.algorithm.to_words(&state.0)
    }

    /// Restores a state from the words that [`write_state`](Self::write_state) returned for the same rule.
    ///
    /// Returns `None` for words that this rule cannot have written.
    pub fn read_state(&self, words: &[u64]) -> Option<State> {
        self.algorithm.read_words(words).map(State)
    }
}

/// States in Redis.
impl Limit {
    /// Returns the name that the algorithm's files share: its spec page, its Rust module and its Lua script.
    ///
    /// ```
    /// # use tidegate_core::Limit;
    /// assert_eq!("100/min sliding-log".parse::<Limit>()?.stem(), "sliding_log");
    /// # Ok::<(), tidegate_core::RuleError>(())
    /// ```
    pub fn stem(&self) -> &'static str {
        self.algorithm.stem()
    }

    /// Returns the rule's parameters for the Lua script.
    ///
    /// # Errors
    /// If a double cannot represent one of them exactly.
    ///
    /// ```
    /// # use tidegate_core::Limit;
    /// let limit: Limit = "10/s burst 3".parse()?;
    /// let capacity_us = limit.lua_params().expect("they are small")[0];
    /// assert_eq!(capacity_us, 300_000.0);
    /// # Ok::<(), tidegate_core::RuleError>(())
    /// ```
    pub fn lua_params(&self) -> Result<Vec<f64>, TooLargeForLua> {
        self.algorithm.lua_params().ok_or(TooLargeForLua)
    }

    /// Returns a request's cost in the units of the Lua script.
    ///
    /// # Errors
    /// If a double cannot represent it exactly.
    pub fn lua_cost(&self, cost: u64) -> Result<Vec<f64>, TooLargeForLua> {
        self.algorithm.lua_cost(cost).ok_or(TooLargeForLua)
    }

    /// Returns a state as the Lua script stores it.
    ///
    /// # Errors
    /// If a double cannot represent a number of it exactly.
    ///
    /// ```
    /// # use tidegate_core::{Limit, Timestamp};
    /// let limit: Limit = "10/s burst 3".parse()?;
    /// let mut state = limit.fresh(Timestamp::EPOCH);
    /// let _ = limit.decide(&mut state, Timestamp::from_micros(7), 1);
    /// assert_eq!(limit.state_to_lua(&state), Ok([100_007.0, 0.0].to_vec()));
    /// # Ok::<(), tidegate_core::RuleError>(())
    /// ```
    pub fn state_to_lua(&self, state: &State) -> Result<Vec<f64>, TooLargeForLua> {
        self.algorithm.state_to_lua(&state.0).ok_or(TooLargeForLua)
    }

    /// Restores a state from the numbers that the Lua script returned.
    ///
    /// Returns `None` for numbers that the script of this rule cannot have returned.
    ///
    /// ```
    /// # use tidegate_core::{Limit, Timestamp};
    /// let limit: Limit = "10/s burst 3".parse()?;
    /// let state = limit.state_from_lua(&[200_000.0, 0.0]).expect("a bucket has two numbers");
    /// assert_eq!(limit.peek(&state, Timestamp::EPOCH, 0).remaining, 1);
    /// # Ok::<(), tidegate_core::RuleError>(())
    /// ```
    pub fn state_from_lua(&self, numbers: &[f64]) -> Option<State> {
        self.algorithm.state_from_lua(numbers).map(State)
    }
}

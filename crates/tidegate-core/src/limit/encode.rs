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
            Algorithms::TokenBucket(bucket) | Algorithms::Leaky(bucket) => bucket.narrow,
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
    pub fn stem(&self) -> &'static str {
        self.algorithm.stem()
    }

    /// Returns the rule's parameters for the Lua script.
    ///
    /// # Errors
    /// If a double cannot represent one of them exactly.
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
    pub fn state_to_lua(&self, state: &State) -> Result<Vec<f64>, TooLargeForLua> {
        self.algorithm.state_to_lua(&state.0).ok_or(TooLargeForLua)
    }

    /// Restores a state from the numbers that the Lua script returned.
    ///
    /// Returns `None` for numbers that the script of this rule cannot have returned.
    pub fn state_from_lua(&self, numbers: &[f64]) -> Option<State> {
        self.algorithm.state_from_lua(numbers).map(State)
    }
}

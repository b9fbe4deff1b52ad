//! Leaky bucket as a meter: each request pours its cost in, the rate drains it, an overflow is
//! refused (A5).
//!
//! The water that may still be poured in is the tokens that may still be taken out: this is the
//! token bucket seen from below, so it *is* the token bucket, with `capacity` for `burst`. It has
//! its own name because people look for it, and its own page because they compare the two.
//!
//! Always   Water never stands above `capacity`: capacity + 1 is refused (seed flaw 5).
//! Spec     `spec/leaky.md`.

use super::token_bucket::{NarrowBucket, TokenBucket};
use super::{Algorithm, Usage};
use crate::codec::packed::PackedWords;
use crate::decision::Decision;
use crate::rate::Rate;
use crate::time::Timestamp;
use alloc::vec::Vec;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Leaky(TokenBucket);

impl Leaky {
    pub(crate) fn new(rate: Rate, capacity: u64) -> Self {
        Self(TokenBucket::new(rate, capacity, false))
    }

    pub(crate) fn narrow(&self) -> Option<NarrowBucket> {
        self.0.narrow
    }
}

impl Algorithm for Leaky {
    type State = u128;

    fn fresh(&self, birth: Timestamp) -> u128 {
        self.0.fresh(birth)
    }

    fn decide(&self, empty_at: &mut u128, now: Timestamp, cost: u64) -> Decision {
        self.0.decide(empty_at, now, cost)
    }

    fn refund(&self, empty_at: &mut u128, now: Timestamp, cost: u64) {
        self.0.refund(empty_at, now, cost);
    }

    fn usage(&self, empty_at: &u128, now: Timestamp) -> Usage {
        self.0.usage(empty_at, now)
    }

    fn adopt(&self, usage: Usage, now: Timestamp) -> u128 {
        self.0.adopt(usage, now)
    }

    fn to_words(&self, empty_at: &u128) -> Vec<u64> {
        self.0.to_words(empty_at)
    }

    fn read_words(&self, words: &[u64]) -> Option<u128> {
        self.0.read_words(words)
    }

    fn lua_params(&self) -> Option<Vec<f64>> {
        self.0.lua_params()
    }

    fn lua_cost(&self, cost: u64) -> Option<Vec<f64>> {
        self.0.lua_cost(cost)
    }

    fn state_to_lua(&self, full_at: &u128) -> Option<Vec<f64>> {
        self.0.state_to_lua(full_at)
    }

    fn state_from_lua(&self, numbers: &[f64]) -> Option<u128> {
        self.0.state_from_lua(numbers)
    }

    fn decide_packed(
        &self,
        words: &mut PackedWords,
        epoch: Timestamp,
        now: Timestamp,
        cost: u64,
    ) -> Option<Decision> {
        self.0.decide_packed(words, epoch, now, cost)
    }

    fn packed_words(&self) -> usize {
        self.0.packed_words()
    }

    fn pack(&self, empty_at: &u128, epoch: Timestamp) -> Option<PackedWords> {
        self.0.pack(empty_at, epoch)
    }

    fn unpack(&self, words: &PackedWords, epoch: Timestamp) -> u128 {
        self.0.unpack(words, epoch)
    }
}

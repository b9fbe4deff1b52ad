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
use super::{Algorithm, Usage, Words};
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
        self.0.narrow()
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

    fn write(&self, empty_at: &u128) -> Vec<u64> {
        self.0.write(empty_at)
    }

    fn read(&self, words: &[u64]) -> Option<u128> {
        self.0.read(words)
    }

    fn twin_numbers(&self) -> Option<Vec<f64>> {
        self.0.twin_numbers()
    }

    fn twin_price(&self, cost: u64) -> Option<Vec<f64>> {
        self.0.twin_price(cost)
    }

    fn to_twin(&self, full_at: &u128) -> Option<Vec<f64>> {
        self.0.to_twin(full_at)
    }

    fn of_twin(&self, numbers: &[f64]) -> Option<u128> {
        self.0.of_twin(numbers)
    }

    fn words(&self) -> usize {
        self.0.words()
    }

    fn pack(&self, empty_at: &u128, epoch: Timestamp) -> Option<Words> {
        self.0.pack(empty_at, epoch)
    }

    fn unpack(&self, words: &Words, epoch: Timestamp) -> u128 {
        self.0.unpack(words, epoch)
    }
}

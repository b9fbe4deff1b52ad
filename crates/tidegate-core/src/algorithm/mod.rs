//! Every limiting algorithm, one file each, behind one interface.
//!
//! To add an algorithm, write `spec/<name>.md` and `<name>.rs` here, and add it to the list in `dispatch.rs` and to the rule
//! language. The compiler reports every place that lacks it.

pub(crate) mod calendar;
pub(crate) mod concurrency;
pub(crate) mod dispatch;
pub(crate) mod fixed;
pub(crate) mod leaky;
pub(crate) mod nginx;
pub(crate) mod queue;
pub(crate) mod sliding;
pub(crate) mod sliding_log;
pub(crate) mod smooth;
pub(crate) mod token_bucket;
pub(crate) mod warmup;
mod window;

pub use calendar::{CalendarUnit, Windows};
pub use token_bucket::NarrowBucket;
pub use window::Window;

use crate::codec::lua::exact_f64;
use crate::codec::packed::PackedWords;
use crate::decision::Decision;
use crate::rate::Ticks;
use crate::time::{Span, Timestamp};
use alloc::vec::Vec;
use core::fmt;

/// The operations of an algorithm, as pure functions of a state, the time and a cost.
pub(crate) trait Algorithm: fmt::Debug {
    /// The state of one key.
    type State: Clone + fmt::Debug;

    /// Returns the state of a key that no request has used since the limit's birth.
    fn fresh(&self, birth: Timestamp) -> Self::State;

    /// Decides about a request of `cost`, and charges it unless it is denied. A cost of zero is never denied.
    fn decide(&self, state: &mut Self::State, now: Timestamp, cost: u64) -> Decision;

    /// Returns what `decide` would return, without charging.
    fn peek(&self, state: &Self::State, now: Timestamp, cost: u64) -> Decision {
        self.decide(&mut state.clone(), now, cost)
    }

    /// Refunds `cost` of the latest charges, and at most what is charged.
    fn refund(&self, state: &mut Self::State, now: Timestamp, cost: u64);

    /// Returns the usage of a key in units that every algorithm understands.
    fn usage(&self, state: &Self::State, now: Timestamp) -> Usage;

    /// Returns a state with this usage. It has at most the capacity free, and admits a request of cost 1 within
    /// `usage.drain`.
    fn adopt(&self, usage: Usage, now: Timestamp) -> Self::State;

    /// Returns the state under `self` of a key whose state under `old` is `state`.
    fn inherit(&self, old: &Self, state: &Self::State, now: Timestamp) -> Self::State {
        self.adopt(old.usage(state, now), now)
    }

    /// Returns the number of words that [`pack`](Self::pack) uses; 0 if states have no maximum size.
    fn packed_words(&self) -> usize {
        0
    }

    /// Packs the state into words, with times counted from `epoch`; `None` if it does not fit.
    fn pack(&self, _state: &Self::State, _epoch: Timestamp) -> Option<PackedWords> {
        None
    }

    /// Restores the state from the words that [`pack`](Self::pack) returned.
    fn unpack(&self, _words: &PackedWords, epoch: Timestamp) -> Self::State {
        self.fresh(epoch)
    }

    /// Decides on a packed state. Returns `None`, and leaves the words as they are, if the new state does not fit.
    fn decide_packed(
        &self,
        words: &mut PackedWords,
        epoch: Timestamp,
        now: Timestamp,
        cost: u64,
    ) -> Option<Decision> {
        decide_unpacked(self, words, epoch, now, cost)
    }

    /// Returns the complete state as words, whatever its size, for snapshots.
    fn to_words(&self, state: &Self::State) -> Vec<u64>;

    /// Restores the state from the words of [`to_words`](Self::to_words); `None` for words that this algorithm cannot have
    /// written.
    fn read_words(&self, words: &[u64]) -> Option<Self::State>;

    /// Returns the rule's parameters for the Lua script; `None` if a double cannot represent one exactly.
    fn lua_params(&self) -> Option<Vec<f64>>;

    /// Returns a cost in the units of the Lua script; `None` if a double cannot represent it exactly.
    fn lua_cost(&self, cost: u64) -> Option<Vec<f64>> {
        Some([exact_f64(cost)?].to_vec())
    }

    /// Returns the state as the Lua script stores it; `None` if a double cannot represent a number of it exactly.
    fn state_to_lua(&self, state: &Self::State) -> Option<Vec<f64>>;

    /// Restores the state from the numbers that the Lua script returned. Of a long state, the script returns a summary that
    /// suffices for the decision about one request.
    fn state_from_lua(&self, numbers: &[f64]) -> Option<Self::State>;

    /// Returns the window that contains `now`; `None` for algorithms without windows.
    fn window(&self, _state: &Self::State, _now: Timestamp) -> Option<Window> {
        None
    }
}

/// Unpacks a state, decides, and packs the new state.
#[inline]
fn decide_unpacked<A: Algorithm + ?Sized>(
    algorithm: &A,
    words: &mut PackedWords,
    epoch: Timestamp,
    now: Timestamp,
    cost: u64,
) -> Option<Decision> {
    let mut state = algorithm.unpack(words, epoch);
    let decision = algorithm.decide(&mut state, now, cost);
    *words = algorithm.pack(&state, epoch)?;
    Some(decision)
}

/// The used part of a limit, and the time until it has recovered completely.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Usage {
    pub(crate) units: u64,
    /// The used fraction of another unit is `part / parts`.
    pub(crate) part: u128,
    pub(crate) parts: u128,
    /// The time until nothing is used.
    pub(crate) drain: Span,
}

impl Usage {
    pub(crate) fn whole(units: u64, drain: Span) -> Self {
        Self { units, part: 0, parts: 1, drain }
    }

    fn units_ceil(self) -> u64 {
        self.units.saturating_add(u64::from(self.part > 0))
    }

    /// Returns the usage in ticks, rounded up, so that a change of the rule refunds nothing.
    fn in_ticks(self, ticks: Ticks) -> u128 {
        // Both factors are below 2^53, so the product does not overflow.
        let part = (self.part * u128::from(ticks.per_unit)).div_ceil(self.parts);
        ticks.of_cost(self.units) + part
    }
}

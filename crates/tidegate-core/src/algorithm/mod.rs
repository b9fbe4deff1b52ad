//! Every limiting algorithm, one file each, behind one interface.
//!
//! They are a closed set, declared in `dispatch.rs`: the compiler lists what a new algorithm still lacks.
//! To add one: `spec/<name>.md`, `<name>.rs` here, a variant there, and its rule text.

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

/// The operations of every algorithm. Pure: the state and the time come in, the answer goes out.
pub(crate) trait Algorithm: fmt::Debug {
    /// All that is remembered of one key.
    type State: Clone + fmt::Debug;

    /// Returns the state of a key that no request has used since the limit's birth.
    fn fresh(&self, birth: Timestamp) -> Self::State;

    /// Decides about `cost` and charges it if the answer is not a denial. A cost of zero charges
    /// nothing and is never denied.
    fn decide(&self, state: &mut Self::State, now: Timestamp, cost: u64) -> Decision;

    /// Returns what `decide` would return, without charging.
    fn peek(&self, state: &Self::State, now: Timestamp, cost: u64) -> Decision {
        self.decide(&mut state.clone(), now, cost)
    }

    /// Gives back `cost` of what was charged last, and never more than is charged.
    fn refund(&self, state: &mut Self::State, now: Timestamp, cost: u64);

    /// Returns what a key has used up, in terms that another rule understands.
    fn usage(&self, state: &Self::State, now: Timestamp) -> Usage;

    /// A state in which that is used up: no more is free than the capacity, and a request of cost 1
    /// is admitted within `usage.drain`.
    fn adopt(&self, usage: Usage, now: Timestamp) -> Self::State;

    /// The state to go on with when `self` takes over from `old`, which is the same algorithm.
    fn inherit(&self, old: &Self, state: &Self::State, now: Timestamp) -> Self::State {
        self.adopt(old.usage(state, now), now)
    }

    /// How many words [`pack`](Self::pack) needs; none where a state has no largest size.
    fn packed_words(&self) -> usize {
        0
    }

    /// Packs the state into that many words, with times counted from `epoch`; `None` if it does not fit.
    fn pack(&self, _state: &Self::State, _epoch: Timestamp) -> Option<PackedWords> {
        None
    }

    /// The way back: exactly the state that was packed.
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

    /// The way back; `None` for what this algorithm has not written.
    fn read_words(&self, words: &[u64]) -> Option<Self::State>;

    /// The rule in numbers that a double holds exactly, for the Lua twin; `None` where one does not.
    fn lua_params(&self) -> Option<Vec<f64>>;

    /// The same for what a cost amounts to.
    fn lua_cost(&self, cost: u64) -> Option<Vec<f64>> {
        Some([exact_f64(cost)?].to_vec())
    }

    /// The state as the twin keeps it.
    fn state_to_lua(&self, state: &Self::State) -> Option<Vec<f64>>;

    /// The way back. What the twin tells of a long state may be less than all of it: enough for the answer
    /// to one request.
    fn state_from_lua(&self, numbers: &[f64]) -> Option<Self::State>;

    /// The window of `now`, for algorithms that have windows.
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

/// How much of a limit is used up, and how long until none of it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Usage {
    pub(crate) units: u64,
    /// And `part / parts` of a unit.
    pub(crate) part: u128,
    pub(crate) parts: u128,
    pub(crate) drain: Span,
}

impl Usage {
    pub(crate) fn whole(units: u64, drain: Span) -> Self {
        Self { units, part: 0, parts: 1, drain }
    }

    fn units_ceil(self) -> u64 {
        self.units.saturating_add(u64::from(self.part > 0))
    }

    /// Rounded up to whole ticks: a change of rule refunds nothing.
    fn in_ticks(self, ticks: Ticks) -> u128 {
        // Both factors are below 2^53, so the product is not near the end of the range.
        let part = (self.part * u128::from(ticks.per_unit)).div_ceil(self.parts);
        ticks.of_cost(self.units) + part
    }
}

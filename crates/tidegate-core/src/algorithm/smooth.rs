//! Guava's `SmoothBursty`: saves up to `burst` permits while idle, and admits on credit, so that the next request waits
//! for the cost of this one (A9).
//!
//! State    The time of the latest decision, and as of then either the saved permits or the time until the next request may
//!          pass. Both are exact.
//! Always   A request is never denied and never split: it waits for the requests before it, then passes whole.
//! Rounding Waits up. Guava drops the fraction of a microsecond of every charge, so at 3/s it gains a second in three
//!          million; here the state includes the fraction.
//! Bound    In any interval of length L, `burst + ⌊L · rate⌋` plus the cost of the last request, which passes on credit.
//! Spec     `spec/smooth.md`.

use super::{Algorithm, Usage};
use crate::codec::lua::{exact_f64, exact_f64_addend, exact_u64};
use crate::codec::packed::PackedWords;
use crate::codec::snapshot::{join_words, split_words};
use crate::decision::{Decision, Verdict};
use crate::rate::{Rate, Ticks, share_floor};
use crate::time::{Span, Timestamp};
use alloc::vec::Vec;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Smooth {
    ticks: Ticks,
    /// The most that is saved, in ticks: `burst`, or one second's worth, which need not be whole units.
    saved_max: i128,
    /// The number of units that pass at once after a long rest.
    limit: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SmoothState {
    /// The saved permits as of `seen`; if negative, the time until the next request may pass. In ticks.
    balance: i128,
    /// The time of the latest decision. An earlier `now` means that the clock has stepped back.
    seen: Timestamp,
}

impl SmoothState {
    fn saved(&self) -> u128 {
        self.balance.max(0).unsigned_abs()
    }

    fn owed(&self) -> u128 {
        self.balance.min(0).unsigned_abs()
    }
}

impl Smooth {
    pub(crate) fn new(rate: Rate, burst: Option<u64>) -> Self {
        let ticks = rate.ticks();
        let second = ticks.in_span(Span::from_secs(1));
        let saved_max = burst.map_or(second, |burst| ticks.of_cost(burst));
        let limit = ticks.units_floor(saved_max).saturating_add(1);
        Self { ticks, saved_max: signed(saved_max), limit }
    }

    /// Updates the state to `now`, and saves the idle time. After a step back of the clock that is short enough to be
    /// absorbed, the state does not change until the clock has caught up.
    fn sync(&self, state: &mut SmoothState, now: Timestamp) {
        if now < state.seen {
            let step = self.ticks.in_span(state.seen.since(now));
            if step > self.saved_max.unsigned_abs().saturating_add(state.owed()) {
                // The step is too long to be absorbed. The debt stays the same, counted from now.
                state.seen = now;
            }
            return;
        }
        let passed = signed(self.ticks.in_span(now.since(state.seen)));
        state.balance = (state.balance + passed).min(self.saved_max);
        state.seen = now;
    }

    /// Returns the state with `saved` permits in which the next request may pass at `free_at`.
    fn state(&self, saved: u128, free_at: u128, seen: Timestamp) -> SmoothState {
        let owed = free_at.saturating_sub(self.ticks.at(seen));
        let saved = signed(saved).min(self.saved_max);
        SmoothState { balance: if owed > 0 { -signed(owed) } else { saved }, seen }
    }

    fn free_at(&self, state: &SmoothState) -> u128 {
        self.ticks.at(state.seen).saturating_add(state.owed())
    }

    fn answer(&self, verdict: Verdict, state: &SmoothState) -> Decision {
        // One more request passes on credit.
        let on_credit = |saved: u128| self.ticks.units_floor(saved).saturating_add(1);
        Decision {
            verdict,
            limit: self.limit,
            remaining: if state.balance < 0 { 0 } else { on_credit(state.saved()) },
            reset_after: self.ticks.span_ceil(self.used(state)),
        }
    }

    /// Returns the ticks until everything is saved again.
    fn used(&self, state: &SmoothState) -> u128 {
        self.saved_max.saturating_sub(state.balance).unsigned_abs()
    }
}

/// Converts a number of ticks. Only a corrupt one exceeds the range, and saturates.
fn signed(ticks: u128) -> i128 {
    i128::try_from(ticks).unwrap_or(i128::MAX)
}

impl Algorithm for Smooth {
    type State = SmoothState;

    fn fresh(&self, birth: Timestamp) -> SmoothState {
        SmoothState { balance: 0, seen: birth }
    }

    fn decide(&self, state: &mut SmoothState, now: Timestamp, cost: u64) -> Decision {
        self.sync(state, now);
        let mut verdict = Verdict::Allow;
        if cost > 0 {
            if state.balance < 0 {
                verdict = Verdict::Wait(self.ticks.span_ceil(state.owed()));
            }
            state.balance = state.balance.saturating_sub(signed(self.ticks.of_cost(cost)));
        }
        self.answer(verdict, state)
    }

    fn refund(&self, state: &mut SmoothState, now: Timestamp, cost: u64) {
        self.sync(state, now);
        let refund = signed(self.ticks.of_cost(cost));
        state.balance = (state.balance + refund).min(self.saved_max);
    }

    fn usage(&self, state: &SmoothState, now: Timestamp) -> Usage {
        let mut state = *state;
        self.sync(&mut state, now);
        let used = self.used(&state);
        let per_unit = u128::from(self.ticks.per_unit);
        Usage {
            units: self.ticks.units_floor(used),
            part: used % per_unit,
            parts: per_unit,
            drain: self.ticks.span_ceil(used),
        }
    }

    fn adopt(&self, usage: Usage, now: Timestamp) -> SmoothState {
        let used = signed(usage.in_ticks(self.ticks));
        let owed_max = signed(self.ticks.in_span(usage.drain));
        SmoothState { balance: (self.saved_max - used).max(-owed_max), seen: now }
    }

    /// Scales the saved permits with their maximum and keeps the debt, like Guava's `setRate`.
    fn inherit(&self, old: &Self, state: &SmoothState, now: Timestamp) -> SmoothState {
        let mut state = *state;
        old.sync(&mut state, now);
        let [most, old_most] = [self.saved_max, old.saved_max].map(i128::unsigned_abs);
        let saved = signed(share_floor(most, state.saved(), old_most));
        let owed = signed(self.ticks.in_span(old.ticks.span_ceil(state.owed())));
        SmoothState { balance: saved - owed, seen: state.seen }
    }

    fn to_words(&self, state: &SmoothState) -> Vec<u64> {
        let [saved, free_at] = [state.saved(), self.free_at(state)].map(split_words);
        [saved[0], saved[1], free_at[0], free_at[1], state.seen.as_micros()].to_vec()
    }

    fn read_words(&self, words: &[u64]) -> Option<SmoothState> {
        let [saved_high, saved_low, free_high, free_low, seen] = *words else { return None };
        let (saved, free_at) = (join_words(saved_high, saved_low), join_words(free_high, free_low));
        let state = self.state(saved, free_at, Timestamp::from_micros(seen));
        // A debt arises only when no permit is saved.
        (saved == 0 || state.owed() == 0).then_some(state)
    }

    fn lua_params(&self) -> Option<Vec<f64>> {
        let [us, rest] = self.ticks.split_parts(self.saved_max.unsigned_abs())?;
        Some([us, rest, exact_f64_addend(self.ticks.per_us)?].to_vec())
    }

    fn lua_cost(&self, cost: u64) -> Option<Vec<f64>> {
        self.ticks.cost_to_lua(cost)
    }

    fn state_to_lua(&self, state: &SmoothState) -> Option<Vec<f64>> {
        let saved = self.ticks.split_parts(state.saved())?;
        let free_at = self.ticks.split_instant(self.free_at(state))?;
        let mut numbers = [saved, free_at].concat();
        numbers.push(exact_f64(state.seen.as_micros())?);
        Some(numbers)
    }

    fn state_from_lua(&self, numbers: &[f64]) -> Option<SmoothState> {
        let [saved, saved_rest, free_at, free_rest, seen] = *numbers else { return None };
        let (saved, free_at) =
            (self.ticks.join_parts(saved, saved_rest)?, self.ticks.join_parts(free_at, free_rest)?);
        Some(self.state(saved, free_at, Timestamp::from_micros(exact_u64(seen)?)))
    }

    fn packed_words(&self) -> usize {
        2
    }

    fn pack(&self, state: &SmoothState, _epoch: Timestamp) -> Option<PackedWords> {
        let balance = i64::try_from(state.balance).ok()?;
        Some([state.seen.as_micros(), balance.cast_unsigned(), 0])
    }

    fn unpack(&self, words: &PackedWords, _epoch: Timestamp) -> SmoothState {
        let balance = i128::from(words[1].cast_signed());
        SmoothState { balance, seen: Timestamp::from_micros(words[0]) }
    }
}

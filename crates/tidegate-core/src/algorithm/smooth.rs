//! Guava's `SmoothBursty`: saves up to `burst` while idle, and grants on credit — the next caller
//! pays (A9).
//!
//! State    What is saved, when the next caller may pass, and when we last looked, all exact.
//! Always   A request is never refused and never split: it waits for those before it, then passes
//!          whole. Its own cost is charged to whoever comes next.
//! Rounding Waits up. Guava drops the fraction of a microsecond of every charge, so that at 3/s it
//!          runs ahead by a second in three million; with us the fraction stays in the state.
//! Bound    In any interval of length L: `burst + ⌊L · rate⌋` plus the cost of the last one (credit).
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
    /// What may be saved: `burst`, or one second's worth, which need not be whole units.
    saved_max: u128,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SmoothState {
    saved: u128,
    /// When the next request may pass.
    free_at: u128,
    /// The last time we looked: an earlier `now` means that the clock went back.
    seen: Timestamp,
}

impl Smooth {
    pub(crate) fn new(rate: Rate, burst: Option<u64>) -> Self {
        let ticks = rate.ticks();
        let second = ticks.in_span(Span::from_secs(1));
        Self { ticks, saved_max: burst.map_or(second, |burst| ticks.of_cost(burst)) }
    }

    /// Brings the state to `now` and says what time that is: time that nobody used is saved. After
    /// a step back of the clock that can be ridden out, time stands still until it has caught up.
    fn sync(&self, state: &mut SmoothState, now: Timestamp) -> Timestamp {
        let step = self.ticks.in_span(state.seen.since(now));
        let owed = state.free_at.saturating_sub(self.ticks.at(state.seen));
        if step > self.saved_max.saturating_add(owed) {
            // Too long to be ridden out: what is owed goes along, and is paid in the same time.
            state.free_at = state.free_at.saturating_sub(step);
            state.seen = now;
        }
        let now = state.seen.max(now);
        state.seen = now;
        let now_ticks = self.ticks.at(now);
        if now_ticks > state.free_at {
            let saved = state.saved.saturating_add(now_ticks - state.free_at);
            state.saved = saved.min(self.saved_max);
            state.free_at = now_ticks;
        }
        now
    }

    /// How many pass at once: what is saved, and one that the next caller pays.
    fn with_credit(&self, saved: u128) -> u64 {
        self.ticks.units_floor(saved).saturating_add(1)
    }

    fn answer(&self, verdict: Verdict, state: &SmoothState, now: Timestamp) -> Decision {
        let owed = state.free_at - self.ticks.at(now);
        Decision {
            verdict,
            limit: self.with_credit(self.saved_max),
            remaining: if owed == 0 { self.with_credit(state.saved) } else { 0 },
            reset_after: self.ticks.span_ceil(owed.saturating_add(self.saved_max - state.saved)),
        }
    }
}

impl Algorithm for Smooth {
    type State = SmoothState;

    fn fresh(&self, birth: Timestamp) -> SmoothState {
        SmoothState { saved: 0, free_at: self.ticks.at(birth), seen: birth }
    }

    fn decide(&self, state: &mut SmoothState, now: Timestamp, cost: u64) -> Decision {
        let now = self.sync(state, now);
        if cost == 0 {
            return self.answer(Verdict::Allow, state, now);
        }
        let wait = self.ticks.span_ceil(state.free_at - self.ticks.at(now));
        let price = self.ticks.of_cost(cost);
        let from_saved = price.min(state.saved);
        state.saved -= from_saved;
        state.free_at = state.free_at.saturating_add(price - from_saved);
        let verdict = if wait.is_zero() { Verdict::Allow } else { Verdict::Wait(wait) };
        self.answer(verdict, state, now)
    }

    fn refund(&self, state: &mut SmoothState, now: Timestamp, cost: u64) {
        let now = self.sync(state, now);
        let refund = self.ticks.of_cost(cost);
        let from_owed = refund.min(state.free_at - self.ticks.at(now));
        state.free_at -= from_owed;
        state.saved = state.saved.saturating_add(refund - from_owed).min(self.saved_max);
    }

    fn usage(&self, state: &SmoothState, now: Timestamp) -> Usage {
        let mut state = *state;
        let now = self.sync(&mut state, now);
        let owed = state.free_at - self.ticks.at(now);
        let used = owed.saturating_add(self.saved_max - state.saved);
        let per_unit = u128::from(self.ticks.per_unit);
        Usage {
            units: self.ticks.units_floor(used),
            part: used % per_unit,
            parts: per_unit,
            drain: self.ticks.span_ceil(used),
        }
    }

    fn adopt(&self, usage: Usage, now: Timestamp) -> SmoothState {
        let used = usage.in_ticks(self.ticks);
        let from_saved = used.min(self.saved_max);
        let owed = (used - from_saved).min(self.ticks.in_span(usage.drain));
        SmoothState {
            saved: self.saved_max - from_saved,
            free_at: self.ticks.at(now) + owed,
            seen: now,
        }
    }

    /// Guava's `setRate`: what is saved scales with what may be saved, what is owed stays owed.
    fn inherit(&self, old: &Self, state: &SmoothState, now: Timestamp) -> SmoothState {
        let mut state = *state;
        let now = old.sync(&mut state, now);
        let owed = old.ticks.span_ceil(state.free_at - old.ticks.at(now));
        SmoothState {
            saved: share_floor(self.saved_max, state.saved, old.saved_max),
            free_at: self.ticks.at(now).saturating_add(self.ticks.in_span(owed)),
            seen: now,
        }
    }

    fn to_words(&self, state: &SmoothState) -> Vec<u64> {
        let [saved, free_at] = [state.saved, state.free_at].map(split_words);
        [saved[0], saved[1], free_at[0], free_at[1], state.seen.as_micros()].to_vec()
    }

    fn from_words(&self, words: &[u64]) -> Option<SmoothState> {
        let [saved_high, saved_low, free_high, free_low, seen] = *words else { return None };
        let seen = Timestamp::from_micros(seen);
        // What every state that this limit has made obeys, whatever was written.
        Some(SmoothState {
            saved: join_words(saved_high, saved_low).min(self.saved_max),
            free_at: join_words(free_high, free_low).max(self.ticks.at(seen)),
            seen,
        })
    }

    fn lua_params(&self) -> Option<Vec<f64>> {
        let [us, rest] = self.ticks.split_parts(self.saved_max)?;
        Some([us, rest, exact_f64_addend(self.ticks.per_us)?].to_vec())
    }

    fn lua_cost(&self, cost: u64) -> Option<Vec<f64>> {
        self.ticks.split_parts(self.ticks.of_cost(cost)).map(|price| price.to_vec())
    }

    fn state_to_lua(&self, state: &SmoothState) -> Option<Vec<f64>> {
        let saved = self.ticks.split_parts(state.saved)?;
        let free_at = self.ticks.split_instant(state.free_at)?;
        let mut numbers = [saved, free_at].concat();
        numbers.push(exact_f64(state.seen.as_micros())?);
        Some(numbers)
    }

    fn state_from_lua(&self, numbers: &[f64]) -> Option<SmoothState> {
        let [saved, saved_rest, free_at, free_rest, seen] = *numbers else { return None };
        Some(SmoothState {
            saved: self.ticks.join_parts(saved, saved_rest)?,
            free_at: self.ticks.join_parts(free_at, free_rest)?,
            seen: Timestamp::from_micros(exact_u64(seen)?),
        })
    }

    fn packed_words(&self) -> usize {
        2
    }

    /// Who owes has nothing saved, so the two are one number with a sign.
    fn pack(&self, state: &SmoothState, _epoch: Timestamp) -> Option<PackedWords> {
        let owed = state.free_at.checked_sub(self.ticks.at(state.seen))?;
        if owed > 0 && state.saved > 0 {
            return None;
        }
        let balance = i64::try_from(state.saved).ok()? - i64::try_from(owed).ok()?;
        Some([state.seen.as_micros(), balance.cast_unsigned(), 0])
    }

    fn unpack(&self, words: &PackedWords, _epoch: Timestamp) -> SmoothState {
        let (seen, balance) = (Timestamp::from_micros(words[0]), words[1].cast_signed());
        let owed = u128::from(balance.min(0).unsigned_abs());
        SmoothState {
            saved: u128::from(balance.max(0).unsigned_abs()),
            free_at: self.ticks.at(seen) + owed,
            seen,
        }
    }
}

//! Sliding window by two counters: an estimate in constant memory (A4).
//!
//! The requests of the previous window are assumed to have been evenly spread, so the part of them that still counts is
//! `previous · (W − elapsed) / W`. The count of the current window is added to it.
//!
//! State    The current window's start, its count, and the count of the previous window.
//! Always   `previous · (W − elapsed) + current · W <= count · W` after an admission, compared as whole numbers, so nothing
//!          is rounded. A denial changes nothing.
//! Bound    Less than twice the count in any interval of length W; `spec/sliding.md` shows how an attacker reaches that.
//!          Evenly spread requests are limited to the count.
//! Spec     `spec/sliding.md`.

use super::window::{self, Window};
use super::{Algorithm, Usage};
use crate::codec::lua::{exact_f64, exact_f64_addend, exact_u64};
use crate::codec::packed::PackedWords;
use crate::decision::{Decision, Retry, Verdict};
use crate::rate::{Rate, div_floor};
use crate::time::{Span, Timestamp};
use alloc::vec::Vec;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Sliding {
    rate: Rate,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct TwoCounters {
    start: Timestamp,
    previous: u64,
    current: u64,
}

impl Sliding {
    pub(crate) fn new(rate: Rate) -> Self {
        Self { rate }
    }

    fn window_of(&self, counters: &TwoCounters, now: Timestamp) -> Window {
        self.window_at(self.rate.period.absorb_skew(counters.start, now))
    }

    fn window_at(&self, now: Timestamp) -> Window {
        window::aligned(now, self.rate.period, Span::ZERO)
    }

    /// Moves the counters to the window of `now`, and returns how much of the window is left. Clock skew at the start of a
    /// window does not open the window twice: the counters stay in the later window.
    fn roll(&self, counters: &mut TwoCounters, now: Timestamp) -> Span {
        let window = self.window_of(counters, now);
        if counters.start < window.start {
            let is_next = window.start.since(counters.start) == self.rate.period;
            counters.previous = if is_next { counters.current } else { 0 };
            counters.current = 0;
        }
        // After a step back of the clock the counts are kept, which blocks a key for at most two windows.
        counters.start = window.start;
        // `window.end - now` would be too short in the last window, whose end saturates.
        self.rate.period.saturating_sub(now.since(window.start)) + window.start.since(now)
    }

    /// Returns the part of the previous window's count that still counts, times W, so that it is a whole number.
    fn weight(previous: u64, left: Span) -> u128 {
        u128::from(previous) * u128::from(left.as_micros())
    }

    /// Returns `units` times W.
    fn scaled(&self, units: u64) -> u128 {
        u128::from(units) * u128::from(self.rate.period.as_micros())
    }

    /// Returns the time until the weight of `previous` has decreased so far that `current` fits beside it, with `left` of
    /// the window to go. It is zero only if `current` fits now.
    fn until_fits(&self, previous: u64, current: u64, left: Span) -> Span {
        // The largest whole `left_then` with previous · left_then <= (count − current) · W.
        let free = self.scaled(self.rate.count - current);
        let left_then = Span::from_wide(div_floor(free, previous));
        left.saturating_sub(left_then)
    }

    fn retry_after(&self, counters: &TwoCounters, cost: u64, left: Span) -> Span {
        let with_current = counters.current.saturating_add(cost);
        if with_current <= self.rate.count {
            return self.until_fits(counters.previous, with_current, left);
        }
        // The request does not fit into this window. In the next one, this window's count is the previous one.
        left + self.until_fits(counters.current, cost, self.rate.period)
    }

    fn answer(&self, verdict: Verdict, counters: &TwoCounters, left: Span) -> Decision {
        let used = Self::weight(counters.previous, left) + self.scaled(counters.current);
        let free = self.scaled(self.rate.count).saturating_sub(used);
        let reset_after = match (counters.previous, counters.current) {
            (0, 0) => Span::ZERO,
            (_, 0) => left,
            _ => left + self.rate.period,
        };
        let remaining = div_floor(free, self.rate.period.as_micros());
        Decision {
            verdict,
            limit: self.rate.count,
            remaining: u64::try_from(remaining).unwrap_or(self.rate.count),
            reset_after,
        }
    }
}

impl Algorithm for Sliding {
    type State = TwoCounters;

    fn fresh(&self, _birth: Timestamp) -> TwoCounters {
        TwoCounters::default()
    }

    fn decide(&self, counters: &mut TwoCounters, now: Timestamp, cost: u64) -> Decision {
        let left = self.roll(counters, now);
        if cost > self.rate.count {
            return self.answer(Verdict::Deny(Retry::Never), counters, left);
        }
        let used = Self::weight(counters.previous, left) + self.scaled(counters.current);
        // After the limit was lowered, the counters may exceed it. A cost of zero is admitted even then.
        if cost == 0 || used + self.scaled(cost) <= self.scaled(self.rate.count) {
            counters.current += cost;
            return self.answer(Verdict::Allow, counters, left);
        }
        let retry = Retry::After(self.retry_after(counters, cost, left));
        self.answer(Verdict::Deny(retry), counters, left)
    }

    fn refund(&self, counters: &mut TwoCounters, now: Timestamp, cost: u64) {
        self.roll(counters, now);
        let from_current = cost.min(counters.current);
        counters.current -= from_current;
        // The rest was charged in the previous window.
        counters.previous = counters.previous.saturating_sub(cost - from_current);
    }

    fn usage(&self, counters: &TwoCounters, now: Timestamp) -> Usage {
        let mut counters = *counters;
        let decision = self.decide(&mut counters, now, 0);
        Usage::whole(self.rate.count - decision.remaining, decision.reset_after)
    }

    fn adopt(&self, usage: Usage, now: Timestamp) -> TwoCounters {
        let window = self.window_at(now);
        let used = usage.units_ceil().min(self.rate.count);
        let mut counters = TwoCounters { start: window.start, previous: 0, current: used };
        let next = self.decide(&mut counters.clone(), now, 1);
        if next.retry_after().is_some_and(|wait| wait > usage.drain) {
            counters.current = self.rate.count - 1;
        }
        counters
    }

    /// Keeps the counters if the windows stay the same, even if they exceed a lowered count.
    fn inherit(&self, old: &Self, counters: &TwoCounters, now: Timestamp) -> TwoCounters {
        if self.rate.period == old.rate.period {
            return *counters;
        }
        self.adopt(old.usage(counters, now), now)
    }

    fn to_words(&self, counters: &TwoCounters) -> Vec<u64> {
        [counters.start.as_micros(), counters.previous, counters.current].to_vec()
    }

    fn read_words(&self, words: &[u64]) -> Option<TwoCounters> {
        let [start, previous, current] = *words else { return None };
        Some(TwoCounters { start: Timestamp::from_micros(start), previous, current })
    }

    fn lua_params(&self) -> Option<Vec<f64>> {
        Some(
            [exact_f64(self.rate.count)?, exact_f64_addend(self.rate.period.as_micros())?].to_vec(),
        )
    }

    fn state_to_lua(&self, counters: &TwoCounters) -> Option<Vec<f64>> {
        let numbers = [counters.start.as_micros(), counters.previous, counters.current];
        numbers.into_iter().map(exact_f64).collect()
    }

    fn state_from_lua(&self, numbers: &[f64]) -> Option<TwoCounters> {
        let [start, previous, current] = *numbers else { return None };
        let start = Timestamp::from_micros(exact_u64(start)?);
        Some(TwoCounters { start, previous: exact_u64(previous)?, current: exact_u64(current)? })
    }

    fn packed_words(&self) -> usize {
        2
    }

    /// Packs both counts into one word; `None` if one of them does not fit into half of it.
    fn pack(&self, counters: &TwoCounters, _epoch: Timestamp) -> Option<PackedWords> {
        let previous = u32::try_from(counters.previous).ok()?;
        let current = u32::try_from(counters.current).ok()?;
        let counts = u64::from(previous) << 32 | u64::from(current);
        Some([counters.start.as_micros(), counts, 0])
    }

    fn unpack(&self, words: &PackedWords, _epoch: Timestamp) -> TwoCounters {
        TwoCounters {
            start: Timestamp::from_micros(words[0]),
            previous: words[1] >> 32,
            current: words[1] & u64::from(u32::MAX),
        }
    }

    fn window(&self, counters: &TwoCounters, now: Timestamp) -> Option<Window> {
        Some(self.window_of(counters, now))
    }
}

//! Fixed window: `count` per window, then wait for the next one (A1).
//!
//! State    The window's start and what has been used of it.
//! Always   At most `count` per window; a refused request is not counted (seed flaw 3), and the
//!          count is not given back when a request ends (seed flaw 6).
//! Bound    Twice the count in any interval of one period: all of one window at its end, all of the
//!          next at its start. `spec/fixed.md` shows it happening.
//! Spec     `spec/fixed.md`.

use super::window::{self, Counter, Window};
use super::{Algorithm, Usage};
use crate::codec::lua::{exact_f64, exact_f64_addend};
use crate::codec::packed::PackedWords;
use crate::decision::Decision;
use crate::rate::Rate;
use crate::time::{Span, Timestamp};
use alloc::vec::Vec;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Fixed {
    rate: Rate,
    start: Alignment,
}

/// Where the windows begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Alignment {
    /// One of them this long after the epoch, the others a whole number of periods from it.
    Aligned(Span),
    /// With the first request that is counted.
    FirstRequest,
}

impl Fixed {
    pub(crate) fn new(rate: Rate, start: Alignment) -> Self {
        Self { rate, start }
    }

    fn window_at(&self, counter: &Counter, now: Timestamp) -> Window {
        match self.start {
            Alignment::Aligned(offset) => {
                let now = self.rate.period.absorb_skew(counter.start, now);
                window::aligned(now, self.rate.period, offset)
            }
            Alignment::FirstRequest => {
                let open = counter.used > 0
                    && counter.start <= now
                    && now.since(counter.start) < self.rate.period;
                let start = if open { counter.start } else { now };
                Window { start, end: start + self.rate.period }
            }
        }
    }
}

impl Algorithm for Fixed {
    type State = Counter;

    fn fresh(&self, _birth: Timestamp) -> Counter {
        Counter::default()
    }

    fn decide(&self, counter: &mut Counter, now: Timestamp, cost: u64) -> Decision {
        let window = self.window_at(counter, now);
        counter.decide(self.rate.count, window, now, cost)
    }

    fn refund(&self, counter: &mut Counter, now: Timestamp, cost: u64) {
        counter.refund(self.window_at(counter, now), cost);
    }

    fn usage(&self, counter: &Counter, now: Timestamp) -> Usage {
        counter.usage(self.window_at(counter, now), now)
    }

    fn adopt(&self, usage: Usage, now: Timestamp) -> Counter {
        let window = self.window_at(&Counter::default(), now);
        Counter::adopt(usage, self.rate.count, window, now)
    }

    /// The same windows: the same count, also where it stands above a lowered one.
    fn inherit(&self, old: &Self, counter: &Counter, now: Timestamp) -> Counter {
        if self.rate.period == old.rate.period && self.start == old.start {
            return *counter;
        }
        self.adopt(old.usage(counter, now), now)
    }

    fn to_words(&self, counter: &Counter) -> Vec<u64> {
        counter.pack()[..2].to_vec()
    }

    fn read_words(&self, words: &[u64]) -> Option<Counter> {
        let [start, used] = *words else { return None };
        Some(Counter::unpack(&[start, used, 0]))
    }

    fn lua_params(&self) -> Option<Vec<f64>> {
        let offset = match self.start {
            Alignment::Aligned(offset) => exact_f64_addend(offset.as_micros())?,
            // No offset is below zero.
            Alignment::FirstRequest => -1.0,
        };
        let period = exact_f64_addend(self.rate.period.as_micros())?;
        Some([exact_f64(self.rate.count)?, period, offset].to_vec())
    }

    fn state_to_lua(&self, counter: &Counter) -> Option<Vec<f64>> {
        counter.state_to_lua()
    }

    fn state_from_lua(&self, numbers: &[f64]) -> Option<Counter> {
        Counter::state_from_lua(numbers)
    }

    fn packed_words(&self) -> usize {
        2
    }

    fn pack(&self, counter: &Counter, _epoch: Timestamp) -> Option<PackedWords> {
        Some(counter.pack())
    }

    fn unpack(&self, words: &PackedWords, _epoch: Timestamp) -> Counter {
        Counter::unpack(words)
    }

    fn window(&self, counter: &Counter, now: Timestamp) -> Option<Window> {
        Some(self.window_at(counter, now))
    }
}

//! Fixed window: up to `count` in each window (A1).
//!
//! State    The window's start, and the cost admitted in it.
//! Always   At most `count` per window. A denied request is not counted (seed flaw 3), and the end of a request does
//!          not reduce the count (seed flaw 6).
//! Bound    Twice the count in any interval of one period: all of one window at its end, and all of the next at its
//!          start. `spec/fixed.md` has an example.
//! Spec     `spec/fixed.md`.

use super::window::{self, CountedWindows, Counter, Window};
use crate::codec::lua::{exact_f64, exact_f64_addend};
use crate::rate::Rate;
use crate::time::{Span, Timestamp};
use alloc::vec::Vec;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Fixed {
    rate: Rate,
    start: Alignment,
}

/// The start of the windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Alignment {
    /// One window starts this long after the epoch, and the others a whole number of periods before or after it.
    Aligned(Span),
    /// A window starts with the first request that is counted in it.
    FirstRequest,
}

impl Fixed {
    pub(crate) fn new(rate: Rate, start: Alignment) -> Self {
        Self { rate, start }
    }
}

impl CountedWindows for Fixed {
    fn count(&self) -> u64 {
        self.rate.count
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

    fn has_windows_of(&self, old: &Self) -> bool {
        self.rate.period == old.rate.period && self.start == old.start
    }

    fn lua_params(&self) -> Option<Vec<f64>> {
        let offset = match self.start {
            Alignment::Aligned(offset) => exact_f64_addend(offset.as_micros())?,
            // Marks windows that start with a request: no offset is negative.
            Alignment::FirstRequest => -1.0,
        };
        let period = exact_f64_addend(self.rate.period.as_micros())?;
        Some([exact_f64(self.rate.count)?, period, offset].to_vec())
    }
}

//! Counting within a window, for `fixed` and `calendar`, which differ only in when a window starts.
//!
//! State    The start of the window that the count belongs to, and the count.
//! Always   At most `count` per window. Clock skew at the start of a window does not open the window twice: the counter
//!          stays in the later window. After a longer step back of the clock, the count moves to the current window, so
//!          the step refunds nothing and blocks a key for at most one window.

use super::{Algorithm, Usage};
use crate::codec::lua::{exact_f64, exact_u64};
use crate::codec::packed::PackedWords;
use crate::decision::{Decision, Retry, Verdict};
use crate::time::{Span, Timestamp};
use alloc::vec::Vec;
use core::fmt;

/// The time in which requests are counted together: `start <= t < end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// The first instant in the window.
    pub start: Timestamp,
    /// The first instant after the window, at which the next window starts.
    pub end: Timestamp,
}

/// Returns the window that contains `now`, of windows of length `period`, one of which starts `offset` after the epoch.
pub(super) fn aligned(now: Timestamp, period: Span, offset: Span) -> Window {
    let (period_us, offset_us) = (period.as_micros(), offset.as_micros());
    debug_assert!(offset_us < period_us);
    let now_us = now.as_micros();
    let phase = now_us % period_us;
    // The time from the start of the window to `now`.
    let into = if phase >= offset_us { phase - offset_us } else { phase + period_us - offset_us };
    Window { start: now - Span::from_micros(into), end: now + Span::from_micros(period_us - into) }
}

/// The rule of an algorithm that counts the requests of each window, up to a maximum.
pub(crate) trait CountedWindows: fmt::Debug {
    /// Returns the largest cost that is admitted in a window.
    fn count(&self) -> u64;

    /// Returns the window in which a request at `now` is counted, for a key with this counter.
    fn window_at(&self, counter: &Counter, now: Timestamp) -> Window;

    /// Returns whether `old` has the same windows, so that a change of the rule can keep the counts.
    fn has_windows_of(&self, old: &Self) -> bool;

    /// Returns the rule's parameters for the Lua script, as [`Algorithm::lua_params`] does.
    fn lua_params(&self) -> Option<Vec<f64>>;
}

impl<W: CountedWindows> Algorithm for W {
    type State = Counter;

    fn fresh(&self, _birth: Timestamp) -> Counter {
        Counter::default()
    }

    fn decide(&self, counter: &mut Counter, now: Timestamp, cost: u64) -> Decision {
        let (count, window) = (self.count(), self.window_at(counter, now));
        counter.enter(window);
        if cost <= count.saturating_sub(counter.used) {
            counter.used += cost;
            return counter.answer(Verdict::Allow, count, window, now);
        }
        let retry = if cost > count { Retry::Never } else { Retry::After(time_left(window, now)) };
        counter.answer(Verdict::Deny(retry), count, window, now)
    }

    fn refund(&self, counter: &mut Counter, now: Timestamp, cost: u64) {
        counter.enter(self.window_at(counter, now));
        counter.used = counter.used.saturating_sub(cost);
    }

    fn usage(&self, counter: &Counter, now: Timestamp) -> Usage {
        let (mut counter, window) = (*counter, self.window_at(counter, now));
        counter.enter(window);
        Usage::whole(counter.used, window.end.since(now))
    }

    fn adopt(&self, usage: Usage, now: Timestamp) -> Counter {
        let (count, window) = (self.count(), self.window_at(&Counter::default(), now));
        let mut used = usage.units_ceil().min(count);
        if used == count && window.end.since(now) > usage.drain {
            // A full window would deny requests for longer than the old rule would have.
            used = count.saturating_sub(1);
        }
        Counter { start: window.start, used }
    }

    /// Keeps the count if the windows stay the same, even if it exceeds a lowered maximum.
    fn inherit(&self, old: &Self, counter: &Counter, now: Timestamp) -> Counter {
        if self.has_windows_of(old) { *counter } else { self.adopt(old.usage(counter, now), now) }
    }

    fn to_words(&self, counter: &Counter) -> Vec<u64> {
        [counter.start.as_micros(), counter.used].to_vec()
    }

    fn read_words(&self, words: &[u64]) -> Option<Counter> {
        let [start, used] = *words else { return None };
        Some(Counter { start: Timestamp::from_micros(start), used })
    }

    fn lua_params(&self) -> Option<Vec<f64>> {
        CountedWindows::lua_params(self)
    }

    fn state_to_lua(&self, counter: &Counter) -> Option<Vec<f64>> {
        Some([exact_f64(counter.start.as_micros())?, exact_f64(counter.used)?].to_vec())
    }

    fn state_from_lua(&self, numbers: &[f64]) -> Option<Counter> {
        let [start, used] = *numbers else { return None };
        Some(Counter { start: Timestamp::from_micros(exact_u64(start)?), used: exact_u64(used)? })
    }

    fn packed_words(&self) -> usize {
        2
    }

    fn pack(&self, counter: &Counter, _epoch: Timestamp) -> Option<PackedWords> {
        Some([counter.start.as_micros(), counter.used, 0])
    }

    fn unpack(&self, words: &PackedWords, _epoch: Timestamp) -> Counter {
        Counter { start: Timestamp::from_micros(words[0]), used: words[1] }
    }

    fn window(&self, counter: &Counter, now: Timestamp) -> Option<Window> {
        Some(self.window_at(counter, now))
    }
}

/// The cost that was admitted in a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct Counter {
    pub(super) start: Timestamp,
    pub(super) used: u64,
}

impl Counter {
    /// Moves the counter to `window`, and resets the count if it belongs to an earlier window.
    fn enter(&mut self, window: Window) {
        if self.start < window.start {
            self.used = 0;
        }
        self.start = window.start;
    }

    fn answer(self, verdict: Verdict, count: u64, window: Window, now: Timestamp) -> Decision {
        Decision {
            verdict,
            limit: count,
            remaining: count.saturating_sub(self.used),
            reset_after: if self.used == 0 { Span::ZERO } else { time_left(window, now) },
        }
    }
}

/// Returns the time until the window ends, at least a microsecond.
fn time_left(window: Window, now: Timestamp) -> Span {
    window.end.since(now).at_least_1us()
}

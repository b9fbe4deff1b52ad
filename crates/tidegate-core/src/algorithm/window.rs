//! Counting within a window: what `fixed` and `calendar` share, once each knows its windows.
//!
//! State    Which window the count belongs to, and the count.
//! Always   At most `count` per window. A clock that trembles around an edge stays in the later
//!          window: it must not open that one twice. A count from further ahead (the clock went
//!          back) is kept, in now's window: it costs at most one window, and refunds nothing.

use super::Usage;
use crate::codec::lua::{exact_f64, exact_u64};
use crate::codec::packed::PackedWords;
use crate::decision::{Decision, Retry, Verdict};
use crate::time::{Span, Timestamp};
use alloc::vec::Vec;

/// A stretch of time in which requests are counted together: `start <= t < end`.
///
/// ```
/// use tidegate_core::{Limit, Timestamp};
///
/// let limit: Limit = "10/min fixed".parse()?;
/// let now = Timestamp::from_micros(90_000_000);
/// let window = limit.window(&limit.fresh(now), now).expect("it has windows");
/// assert_eq!(window.start, Timestamp::from_micros(60_000_000));
/// assert_eq!(window.end, Timestamp::from_micros(120_000_000));
/// # Ok::<(), tidegate_core::RuleError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// The first instant inside.
    pub start: Timestamp,
    /// The first instant after it, when the next one starts.
    pub end: Timestamp,
}

/// The windows of a period, one after the other, with one of them starting `offset` after the epoch.
pub(super) fn aligned(now: Timestamp, period: Span, offset: Span) -> Window {
    let (period_us, offset_us) = (period.as_micros(), offset.as_micros());
    debug_assert!(offset_us < period_us);
    let now_us = now.as_micros();
    // How far into its window `now` is.
    let phase = now_us % period_us;
    let into = if phase >= offset_us { phase - offset_us } else { phase + period_us - offset_us };
    Window { start: now - Span::from_micros(into), end: now + Span::from_micros(period_us - into) }
}

/// The count of what one window has admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct Counter {
    pub(super) start: Timestamp,
    pub(super) used: u64,
}

impl Counter {
    /// Makes the counter speak of `window`, forgetting what belongs to an earlier one.
    pub(super) fn enter(&mut self, window: Window) {
        if self.start < window.start {
            self.used = 0;
        }
        self.start = window.start;
    }

    pub(super) fn decide(
        &mut self,
        count: u64,
        window: Window,
        now: Timestamp,
        cost: u64,
    ) -> Decision {
        self.enter(window);
        let room = count.saturating_sub(self.used);
        if cost <= room {
            self.used += cost;
            return self.answer(Verdict::Allow, count, window, now);
        }
        let retry = if cost > count { Retry::Never } else { Retry::After(left(window, now)) };
        self.answer(Verdict::Deny(retry), count, window, now)
    }

    pub(super) fn refund(&mut self, window: Window, cost: u64) {
        self.enter(window);
        self.used = self.used.saturating_sub(cost);
    }

    pub(super) fn usage(mut self, window: Window, now: Timestamp) -> Usage {
        self.enter(window);
        Usage::whole(self.used, window.end.since(now))
    }

    pub(super) fn adopt(usage: Usage, count: u64, window: Window, now: Timestamp) -> Self {
        let mut used = usage.units_ceil().min(count);
        if used == count && window.end.since(now) > usage.drain {
            // Full until the window ends would be longer than the old rule would have refused.
            used = count.saturating_sub(1);
        }
        Self { start: window.start, used }
    }

    pub(super) fn pack(self) -> PackedWords {
        [self.start.as_micros(), self.used, 0]
    }

    pub(super) fn unpack(words: &PackedWords) -> Self {
        Self { start: Timestamp::from_micros(words[0]), used: words[1] }
    }

    pub(super) fn state_to_lua(self) -> Option<Vec<f64>> {
        Some([exact_f64(self.start.as_micros())?, exact_f64(self.used)?].to_vec())
    }

    pub(super) fn state_from_lua(numbers: &[f64]) -> Option<Self> {
        let [start, used] = *numbers else { return None };
        Some(Self { start: Timestamp::from_micros(exact_u64(start)?), used: exact_u64(used)? })
    }

    fn answer(self, verdict: Verdict, count: u64, window: Window, now: Timestamp) -> Decision {
        Decision {
            verdict,
            limit: count,
            remaining: count.saturating_sub(self.used),
            reset_after: if self.used == 0 { Span::ZERO } else { left(window, now) },
        }
    }
}

fn left(window: Window, now: Timestamp) -> Span {
    window.end.since(now).at_least_1us()
}

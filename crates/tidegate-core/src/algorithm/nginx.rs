//! nginx's `limit_req`, number for number: milliseconds, thousandths of a request, and its
//! rounding (P9).
//!
//! State    `level`, in thousandths of a request, and the millisecond it is of. nginx keeps the
//!          *excess*, which is the level less the one request that is always free.
//! Always   What nginx does. That includes what we would not do: `1r/m` is 16 thousandths a second,
//!          one in 62.5 s. The one exception is a clock that steps far back, see `touch`.
//! Rounding nginx's: rate, leak and delay are cut. `retry_after` is exact for that arithmetic.
//! Spec     `spec/nginx.md`.

use super::{Algorithm, Usage};
use crate::codec::lua::{exact_f64, exact_f64_addend, exact_u64};
use crate::codec::packed::PackedWords;
use crate::decision::{Decision, Retry, Verdict};
use crate::rate::{div_ceil, div_floor};
use crate::time::{Span, Timestamp};
use alloc::vec::Vec;

/// A step back of the clock that is ridden out.
const CLOCK_SKEW_MS: u64 = 1;
/// One request, in thousandths.
const REQUEST: u64 = 1_000;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Nginx {
    /// Thousandths of a request per second.
    rate: u64,
    burst: u64,
    /// Requests beyond this many wait; `None` when none does (`nodelay`).
    delay: Option<u64>,
    /// The longest step back of the clock that is absorbed, in milliseconds.
    skew_ms: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct NginxState {
    level: u64,
    last_ms: u64,
}

impl Nginx {
    /// `per_second` is `r/s`; otherwise the count is `r/m`, cut to thousandths a second as nginx does.
    pub(crate) fn new(count: u64, per_second: bool, burst: u64, delay: Option<u64>) -> Self {
        let scale = if per_second { 1 } else { 60 };
        let nginx = Self { rate: count * REQUEST / scale, burst, delay, skew_ms: CLOCK_SKEW_MS };
        Self { skew_ms: nginx.ms_to_leak(nginx.room()).min(CLOCK_SKEW_MS), ..nginx }
    }

    fn room(&self) -> u64 {
        (self.burst + 1) * REQUEST
    }

    /// Milliseconds since the node was touched. A node from the future stands still until the clock
    /// has caught up, as nginx has it, but only for a tremble of the clock: beyond, it is touched
    /// now, because standing still locks out for as long as the step.
    fn touch(&self, node: &mut NginxState, now: Timestamp) -> u64 {
        let now_ms = now.as_micros() / 1_000;
        if node.last_ms.saturating_sub(now_ms) > self.skew_ms {
            node.last_ms = now_ms;
        }
        now_ms.saturating_sub(node.last_ms)
    }

    fn leaked(&self, elapsed_ms: u64) -> u64 {
        let leaked = div_floor(u128::from(self.rate) * u128::from(elapsed_ms), 1_000);
        u64::try_from(leaked).unwrap_or(u64::MAX)
    }

    /// Milliseconds of leaking after which at least `level` has gone.
    fn ms_to_leak(&self, level: u64) -> u64 {
        let ms = div_ceil(u128::from(level) * 1_000, self.rate);
        u64::try_from(ms).unwrap_or(u64::MAX)
    }

    /// How long until `level` of what the node holds has leaked, counted from `now`.
    fn until_leaked(&self, node: &NginxState, now: Timestamp, level: u64) -> Span {
        let due_ms = node.last_ms.saturating_add(self.ms_to_leak(level));
        Timestamp::from_micros(due_ms.saturating_mul(1_000)).since(now).at_least_1us()
    }

    fn wait(&self, level: u64) -> Span {
        let Some(delay) = self.delay else { return Span::ZERO };
        // `level` counts the request itself, which is free.
        let beyond = level.saturating_sub((delay + 1) * REQUEST);
        Span::from_millis(beyond * 1_000 / self.rate)
    }

    /// Returns what the node holds after `elapsed_ms` of leaking.
    fn level(&self, node: &NginxState, elapsed_ms: u64) -> u64 {
        node.level.saturating_sub(self.leaked(elapsed_ms))
    }

    /// Returns the answer while the node holds `level` as of now.
    fn answer(&self, verdict: Verdict, node: &NginxState, now: Timestamp, level: u64) -> Decision {
        Decision {
            verdict,
            limit: self.burst + 1,
            remaining: self.room().saturating_sub(level) / REQUEST,
            reset_after: if level == 0 {
                Span::ZERO
            } else {
                self.until_leaked(node, now, node.level)
            },
        }
    }
}

impl Algorithm for Nginx {
    type State = NginxState;

    fn fresh(&self, _birth: Timestamp) -> NginxState {
        NginxState::default()
    }

    fn decide(&self, node: &mut NginxState, now: Timestamp, cost: u64) -> Decision {
        let elapsed_ms = self.touch(node, now);
        let before = self.level(node, elapsed_ms);
        if cost == 0 {
            return self.answer(Verdict::Allow, node, now, before);
        }
        if cost > self.burst + 1 {
            return self.answer(Verdict::Deny(Retry::Never), node, now, before);
        }
        let level = before + cost * REQUEST;
        if level > self.room() {
            let missing = node.level + cost * REQUEST - self.room();
            let retry = Retry::After(self.until_leaked(node, now, missing));
            return self.answer(Verdict::Deny(retry), node, now, before);
        }
        *node = NginxState { level, last_ms: node.last_ms.max(now.as_micros() / 1_000) };
        let verdict = match self.wait(level) {
            Span::ZERO => Verdict::Allow,
            wait => Verdict::Wait(wait),
        };
        self.answer(verdict, node, now, level)
    }

    fn refund(&self, node: &mut NginxState, _now: Timestamp, cost: u64) {
        node.level = node.level.saturating_sub(cost.saturating_mul(REQUEST));
    }

    fn usage(&self, node: &NginxState, now: Timestamp) -> Usage {
        let level = self.level(node, self.touch(&mut node.clone(), now));
        let decision = self.answer(Verdict::Allow, node, now, level);
        Usage::whole(self.burst + 1 - decision.remaining, decision.reset_after)
    }

    fn adopt(&self, usage: Usage, now: Timestamp) -> NginxState {
        let used = usage.units_ceil().min(self.burst + 1);
        let mut node = NginxState { level: used * REQUEST, last_ms: now.as_micros() / 1_000 };
        let next = self.decide(&mut node.clone(), now, 1);
        if next.retry_after().is_some_and(|wait| wait > usage.drain) {
            node.level = self.burst * REQUEST;
        }
        node
    }

    /// The level goes on, to the thousandth, as far as there is room for it and as far as the next
    /// one comes no later than under the old rate.
    fn inherit(&self, old: &Self, node: &NginxState, now: Timestamp) -> NginxState {
        let drain = old.usage(node, now).drain;
        let mut node = *node;
        let elapsed_ms = old.touch(&mut node, now);
        let level = old.level(&node, elapsed_ms);
        let bearable =
            (self.burst * REQUEST).saturating_add(self.leaked(drain.as_micros() / 1_000));
        let last_ms = now.as_micros() / 1_000;
        NginxState { level: level.min(self.room()).min(bearable), last_ms }
    }

    fn to_words(&self, node: &NginxState) -> Vec<u64> {
        [node.level, node.last_ms].to_vec()
    }

    fn read_words(&self, words: &[u64]) -> Option<NginxState> {
        let [level, last_ms] = *words else { return None };
        Some(NginxState { level, last_ms })
    }

    fn lua_params(&self) -> Option<Vec<f64>> {
        // All that leaks until a full node is empty, in millionths, must still be exact.
        let full_ms = self.ms_to_leak(self.room());
        exact_f64(self.rate.checked_mul(full_ms.checked_add(1)?)?)?;
        let numbers = [self.rate, self.room(), full_ms, self.skew_ms].map(exact_f64_addend);
        numbers.into_iter().collect()
    }

    fn lua_cost(&self, cost: u64) -> Option<Vec<f64>> {
        Some([exact_f64_addend(cost.checked_mul(REQUEST)?)?].to_vec())
    }

    fn state_to_lua(&self, node: &NginxState) -> Option<Vec<f64>> {
        Some([exact_f64(node.level)?, exact_f64(node.last_ms)?].to_vec())
    }

    fn state_from_lua(&self, numbers: &[f64]) -> Option<NginxState> {
        let [level, last_ms] = *numbers else { return None };
        Some(NginxState { level: exact_u64(level)?, last_ms: exact_u64(last_ms)? })
    }

    fn packed_words(&self) -> usize {
        2
    }

    fn pack(&self, node: &NginxState, _epoch: Timestamp) -> Option<PackedWords> {
        Some([node.level, node.last_ms, 0])
    }

    fn unpack(&self, words: &PackedWords, _epoch: Timestamp) -> NginxState {
        NginxState { level: words[0], last_ms: words[1] }
    }
}

//! nginx's `limit_req`, number for number: milliseconds, thousandths of a request, and its
//! rounding (P9).
//!
//! State    `level`, in thousandths of a request, and the millisecond at which it was computed. nginx stores the
//!          *excess*: the level minus the one request that is always admitted.
//! Always   Decisions equal nginx's, also where its arithmetic surprises: `1r/m` is 16 thousandths a second, so one
//!          request in 62.5 s. The only exception is a clock that steps far back, see `touch`.
//! Rounding As nginx: rate, leak and delay are truncated. `retry_after` is exact for that arithmetic.
//! Spec     `spec/nginx.md`.

use super::{Algorithm, Usage};
use crate::codec::lua::{exact_f64, exact_f64_addend, exact_u64};
use crate::codec::packed::PackedWords;
use crate::decision::{Decision, Retry, Verdict};
use crate::rate::{div_ceil, div_floor};
use crate::time::{Span, Timestamp};
use alloc::vec::Vec;

/// The longest step back of the clock that is absorbed, in milliseconds.
const CLOCK_SKEW_MS: u64 = 1;
/// One request, in thousandths.
const REQUEST: u64 = 1_000;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Nginx {
    /// Thousandths of a request per second.
    rate: u64,
    burst: u64,
    /// The number of requests that pass without delay; `None` if none is ever delayed (`nodelay`).
    delay: Option<u64>,
    /// The same as [`CLOCK_SKEW_MS`], or less if the limit recovers within less time.
    skew_ms: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct NginxState {
    level: u64,
    last_ms: u64,
}

impl Nginx {
    /// `count` is per second (`r/s`) or else per minute (`r/m`), which is truncated to thousandths a second as nginx does.
    pub(crate) fn new(count: u64, per_second: bool, burst: u64, delay: Option<u64>) -> Self {
        let scale = if per_second { 1 } else { 60 };
        let nginx = Self { rate: count * REQUEST / scale, burst, delay, skew_ms: CLOCK_SKEW_MS };
        Self { skew_ms: nginx.ms_to_leak(nginx.level_max()).min(CLOCK_SKEW_MS), ..nginx }
    }

    /// Returns the highest level: `burst`, and the request that is always admitted.
    fn level_max(&self) -> u64 {
        (self.burst + 1) * REQUEST
    }

    /// Returns the milliseconds since the latest decision about this node.
    ///
    /// While the clock is behind that decision, nothing leaks, as in nginx. After a step back that exceeds clock skew,
    /// leaking continues from now. In nginx it does not, and the key stays blocked until the clock has caught up.
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

    /// Returns the milliseconds in which at least `level` leaks.
    fn ms_to_leak(&self, level: u64) -> u64 {
        let ms = div_ceil(u128::from(level) * 1_000, self.rate);
        u64::try_from(ms).unwrap_or(u64::MAX)
    }

    /// Returns the time from `now` until `level` of the node's level has leaked.
    fn until_leaked(&self, node: &NginxState, now: Timestamp, level: u64) -> Span {
        let due_ms = node.last_ms.saturating_add(self.ms_to_leak(level));
        Timestamp::from_micros(due_ms.saturating_mul(1_000)).since(now).at_least_1us()
    }

    fn wait(&self, level: u64) -> Span {
        let Some(delay) = self.delay else { return Span::ZERO };
        // `level` includes the request itself, which passes without delay.
        let excess = level.saturating_sub((delay + 1) * REQUEST);
        Span::from_millis(excess * 1_000 / self.rate)
    }

    /// Returns the node's level after `elapsed_ms` of leaking.
    fn level(&self, node: &NginxState, elapsed_ms: u64) -> u64 {
        node.level.saturating_sub(self.leaked(elapsed_ms))
    }

    /// Returns the decision for a node that has `level` left now.
    fn answer(&self, verdict: Verdict, node: &NginxState, now: Timestamp, level: u64) -> Decision {
        Decision {
            verdict,
            limit: self.burst + 1,
            remaining: self.level_max().saturating_sub(level) / REQUEST,
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
        if level > self.level_max() {
            let missing = node.level + cost * REQUEST - self.level_max();
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

    /// Keeps the level, to the thousandth, reduced to the new maximum, and reduced so far that the next request is admitted no
    /// later than under the old rule.
    fn inherit(&self, old: &Self, node: &NginxState, now: Timestamp) -> NginxState {
        let drain = old.usage(node, now).drain;
        let mut node = *node;
        let elapsed_ms = old.touch(&mut node, now);
        let level = old.level(&node, elapsed_ms);
        let admitted_in_time =
            (self.burst * REQUEST).saturating_add(self.leaked(drain.as_micros() / 1_000));
        let last_ms = now.as_micros() / 1_000;
        NginxState { level: level.min(self.level_max()).min(admitted_in_time), last_ms }
    }

    fn to_words(&self, node: &NginxState) -> Vec<u64> {
        [node.level, node.last_ms].to_vec()
    }

    fn read_words(&self, words: &[u64]) -> Option<NginxState> {
        let [level, last_ms] = *words else { return None };
        Some(NginxState { level, last_ms })
    }

    fn lua_params(&self) -> Option<Vec<f64>> {
        // The script multiplies the rate by the time that a full node takes to empty, and the product must be exact.
        let full_ms = self.ms_to_leak(self.level_max());
        exact_f64(self.rate.checked_mul(full_ms.checked_add(1)?)?)?;
        let numbers = [self.rate, self.level_max(), full_ms, self.skew_ms].map(exact_f64_addend);
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

//! Guava's `SmoothWarmingUp`: after idle time the first requests are slow, and the rate rises during the warm-up time (A10).
//!
//! Saved permits make a request *slower* here, because they mean that the system has been idle and is cold. The time that
//! saved permits take is the area under the ramp from the cold interval to the warm one.
//!
//! State    The saved permits and the time at which the next request may pass. As in Guava, permits are floating point: the
//!          area under the ramp is a product of four quantities, which does not fit into an integer.
//! Always   A request is never denied; it waits for the cost of the requests before it.
//! Rounding A wait is truncated to whole microseconds, as in Guava, so the numbers are equal. Unlike in Guava, the fraction is
//!          carried into the next wait, so the rate drifts by less than a microsecond in four thousand million requests.
//! Spec     `spec/warmup.md`.

use super::{Algorithm, Usage};
use crate::codec::lua::{exact_f64, exact_f64_addend, exact_u64};
use crate::codec::packed::PackedWords;
use crate::decision::{Decision, Verdict};
use crate::rate::Rate;
use crate::time::{Span, Timestamp};
use alloc::vec::Vec;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Warmup {
    /// Microseconds between two permits once warm.
    interval: f64,
    /// The saved permits beyond this number are on the ramp.
    threshold: f64,
    saved_max: f64,
    /// The microseconds that each saved permit beyond the threshold adds to the interval.
    slope: f64,
    /// Microseconds of idle time that save one permit.
    cool_down: f64,
    /// The length of the warm-up, and of the idle time after which the system is cold again.
    cooling: Span,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct WarmupState {
    saved: f64,
    /// The time at which the next request may pass.
    free_at: Timestamp,
    /// The fraction of a microsecond that `free_at` lacks, in 2^-32 µs.
    carry: u32,
    /// The time of the latest decision. An earlier `now` means that the clock has stepped back.
    seen: Timestamp,
}

impl Warmup {
    pub(crate) fn new(rate: Rate, warmup: Span, cold: u64) -> Self {
        let interval = float(rate.period.as_micros()) / float(rate.count);
        let warmup_us = float(warmup.as_micros());
        let cold_interval = interval * float(cold);
        let threshold = 0.5 * warmup_us / interval;
        let saved_max = threshold + 2.0 * warmup_us / (interval + cold_interval);
        let slope = (cold_interval - interval) / (saved_max - threshold);
        Self {
            interval,
            threshold,
            saved_max,
            slope,
            cool_down: warmup_us / saved_max,
            cooling: warmup,
        }
    }

    /// Stores the time of a decision and returns the time to decide at. After a step back of the clock that is short enough
    /// to be absorbed, that is the time of the latest decision until the clock has caught up.
    fn note_time(&self, engine: &mut WarmupState, now: Timestamp) -> Timestamp {
        if now < engine.seen {
            let step = engine.seen.since(now);
            if step <= engine.free_at.since(engine.seen) + self.cooling {
                return engine.seen;
            }
            // The step is too long to be absorbed. The debt stays the same, counted from now.
            engine.free_at = engine.free_at - step;
        }
        engine.seen = now;
        now
    }

    /// Updates the state to `now`, and saves the idle time. Two updates save the same as one, except for rounding, so a request
    /// of cost 0 does not store the result.
    fn sync(&self, engine: &mut WarmupState, now: Timestamp) -> Timestamp {
        let now = self.note_time(engine, now);
        if now > engine.free_at {
            let idle_us = float(now.since(engine.free_at).as_micros()) - engine.carried();
            engine.saved = lesser(self.saved_max, engine.saved + idle_us / self.cool_down);
            engine.free_at = now;
            engine.carry = 0;
        }
        now
    }

    /// Returns the time until the next request may pass: unlimited if that is at the last instant.
    fn owed(engine: &WarmupState, now: Timestamp) -> Span {
        match engine.free_at {
            Timestamp::MAX => Span::MAX,
            free_at => free_at.since(now),
        }
    }

    /// Returns the microseconds that `take` of the saved permits take: the area under the ramp.
    fn price_of_saved(&self, saved: f64, take: f64) -> f64 {
        let above = saved - self.threshold;
        if above <= 0.0 {
            return self.interval * take;
        }
        let on_ramp = lesser(above, take);
        let pace = |permits: f64| self.interval + permits * self.slope;
        let ramp = on_ramp * (pace(above) + pace(above - on_ramp)) / 2.0;
        ramp + self.interval * (take - on_ramp)
    }

    fn answer(&self, verdict: Verdict, engine: &WarmupState, now: Timestamp) -> Decision {
        let owed = Self::owed(engine, now);
        let cooling = (self.saved_max - engine.saved) * self.cool_down;
        Decision {
            verdict,
            limit: 1,
            remaining: u64::from(owed.is_zero()),
            reset_after: owed + Span::from_micros(whole(cooling)),
        }
    }
}

impl Algorithm for Warmup {
    type State = WarmupState;

    /// Returns a cold state.
    fn fresh(&self, birth: Timestamp) -> WarmupState {
        WarmupState { saved: self.saved_max, free_at: birth, carry: 0, seen: birth }
    }

    fn decide(&self, engine: &mut WarmupState, now: Timestamp, cost: u64) -> Decision {
        if cost == 0 {
            self.note_time(engine, now);
            let mut synced = *engine;
            let now = self.sync(&mut synced, now);
            return self.answer(Verdict::Allow, &synced, now);
        }
        let now = self.sync(engine, now);
        let wait = Self::owed(engine, now);
        let permits = float(cost);
        let from_saved = lesser(permits, engine.saved);
        let price = self.price_of_saved(engine.saved, from_saved)
            + self.interval * (permits - from_saved)
            + engine.carried();
        let whole_us = whole(price);
        engine.saved -= from_saved;
        engine.free_at = engine.free_at + Span::from_micros(whole_us);
        // A price that saturates has no fraction.
        engine.carry = if whole_us == u64::MAX { 0 } else { fraction(price - float(whole_us)) };
        let verdict = if wait.is_zero() { Verdict::Allow } else { Verdict::Wait(wait) };
        self.answer(verdict, engine, now)
    }

    /// Refunds at the warm interval. A request that the ramp made slower has warmed the system up, and a refund does not cool
    /// it down.
    fn refund(&self, engine: &mut WarmupState, now: Timestamp, cost: u64) {
        let now = self.sync(engine, now);
        let refund = Span::from_micros(whole(self.interval * float(cost)));
        engine.free_at = (engine.free_at - refund).max(now);
    }

    fn usage(&self, engine: &WarmupState, now: Timestamp) -> Usage {
        let mut engine = *engine;
        let now = self.sync(&mut engine, now);
        let owed = Self::owed(&engine, now);
        Usage::whole(whole(float(owed.as_micros()) / self.interval), owed)
    }

    fn adopt(&self, usage: Usage, now: Timestamp) -> WarmupState {
        let owed = Span::from_micros(whole(self.interval * float(usage.units_ceil())));
        let free_at = now + owed.min(usage.drain);
        WarmupState { saved: self.saved_max, free_at, carry: 0, seen: now }
    }

    /// Scales the saved permits with their maximum and keeps the debt, like Guava's `setRate`.
    fn inherit(&self, old: &Self, engine: &WarmupState, now: Timestamp) -> WarmupState {
        let mut engine = *engine;
        old.sync(&mut engine, now);
        engine.saved *= self.saved_max / old.saved_max;
        engine
    }

    fn to_words(&self, engine: &WarmupState) -> Vec<u64> {
        let times = [engine.free_at, engine.seen].map(Timestamp::as_micros);
        [engine.saved.to_bits(), times[0], u64::from(engine.carry), times[1]].to_vec()
    }

    fn read_words(&self, words: &[u64]) -> Option<WarmupState> {
        let [saved, free_at, carry, seen] = *words else { return None };
        let saved = f64::from_bits(saved);
        // NaN fails both comparisons.
        (saved >= 0.0 && saved <= self.saved_max).then_some(WarmupState {
            saved,
            free_at: Timestamp::from_micros(free_at),
            carry: u32::try_from(carry).ok()?,
            seen: Timestamp::from_micros(seen),
        })
    }

    fn lua_params(&self) -> Option<Vec<f64>> {
        let cooling = exact_f64_addend(self.cooling.as_micros())?;
        let ramp = [self.interval, self.threshold, self.saved_max, self.slope, self.cool_down];
        Some([&ramp[..], &[cooling]].concat())
    }

    fn state_to_lua(&self, engine: &WarmupState) -> Option<Vec<f64>> {
        let [free_at, seen] = [engine.free_at, engine.seen].map(|at| exact_f64(at.as_micros()));
        Some([engine.saved, free_at?, f64::from(engine.carry), seen?].to_vec())
    }

    fn state_from_lua(&self, numbers: &[f64]) -> Option<WarmupState> {
        let [saved, free_at, carry, seen] = *numbers else { return None };
        self.read_words(&[
            saved.to_bits(),
            exact_u64(free_at)?,
            exact_u64(carry)?,
            exact_u64(seen)?,
        ])
    }

    fn packed_words(&self) -> usize {
        3
    }

    /// Packs two times of 48 bits each, which suffice for nine years after the epoch, each with half of the carry.
    fn pack(&self, engine: &WarmupState, epoch: Timestamp) -> Option<PackedWords> {
        let time = |at: Timestamp| {
            let us = at.as_micros().checked_sub(epoch.as_micros())?;
            (us < 1 << TIME_BITS).then_some(us)
        };
        let carry = u64::from(engine.carry);
        Some([
            engine.saved.to_bits(),
            time(engine.free_at)? | (carry >> 16) << TIME_BITS,
            time(engine.seen)? | (carry & 0xffff) << TIME_BITS,
        ])
    }

    fn unpack(&self, words: &PackedWords, epoch: Timestamp) -> WarmupState {
        let time = |word: u64| epoch + Span::from_micros(word & ((1 << TIME_BITS) - 1));
        let [high, low] = [words[1], words[2]].map(|word| (word >> TIME_BITS) as u32);
        WarmupState {
            saved: f64::from_bits(words[0]),
            free_at: time(words[1]),
            carry: high << 16 | low,
            seen: time(words[2]),
        }
    }
}

/// The bits of a packed word that hold a time.
const TIME_BITS: u32 = 48;

impl WarmupState {
    fn carried(&self) -> f64 {
        f64::from(self.carry) / PARTS
    }
}

/// The parts of a microsecond in which the carry is counted.
const PARTS: f64 = 4_294_967_296.0;

/// Converts a fraction below one into parts, rounding down.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "`as` saturates, as intended"
)]
fn fraction(part: f64) -> u32 {
    (part * PARTS) as u32
}

fn lesser(a: f64, b: f64) -> f64 {
    if a < b { a } else { b }
}

#[expect(clippy::cast_precision_loss, reason = "beyond 2^53 µs or permits a unit does not matter")]
fn float(value: u64) -> f64 {
    value as f64
}

/// Truncates to a whole number. A negative number and NaN become zero, and a number that is too large the maximum.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "`as` saturates, as intended"
)]
fn whole(value: f64) -> u64 {
    value as u64
}

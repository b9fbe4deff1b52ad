//! Token bucket: up to `burst` requests at once, then evenly at the rate (A7, A8).
//!
//! State    One instant, `full_at`: when the bucket is full again, in ticks of 1/n µs.
//! Always   `full_at <= now + capacity` after a decision; a denial charges nothing. A later `full_at` means that the clock
//!          has stepped back. A step of up to a millisecond (or the time that the bucket takes to fill, if that is shorter)
//!          is absorbed: the debt is kept. After a longer step the bucket is empty as of now.
//! Rounding Waits up, `remaining` down. Nothing else is rounded: see `rate.rs`.
//! Bound    At most `burst + ⌊L · rate⌋` in any interval of length L.
//! Spec     `spec/token_bucket.md`.

use super::{Algorithm, Usage, decide_unpacked};
use crate::codec::lua::exact_f64_addend;
use crate::codec::packed::PackedWords;
use crate::codec::snapshot::{join_words, split_words};
use crate::decision::{Decision, Retry, Verdict};
use crate::rate::{Rate, Ticks};
use crate::time::{Span, Timestamp};
use alloc::vec::Vec;
use core::num::NonZeroU64;

#[derive(Clone, Copy, Debug)]
pub(crate) struct TokenBucket {
    ticks: Ticks,
    burst: u64,
    /// `burst` in ticks.
    capacity: u128,
    /// The largest debt without a step back of the clock: `capacity`, and the clock skew that is absorbed.
    debt_max: u128,
    starts_empty: bool,
    /// The same bucket in 64-bit numbers, if the capacity is small enough.
    pub(crate) narrow: Option<NarrowBucket>,
}

impl TokenBucket {
    pub(crate) fn new(rate: Rate, burst: u64, starts_empty: bool) -> Self {
        let ticks = rate.ticks();
        let capacity = ticks.of_cost(burst);
        let debt_max = capacity + ticks.in_span(Span::MAX.skew_tolerance()).min(capacity);
        let bucket = Self { ticks, burst, capacity, debt_max, starts_empty, narrow: None };
        Self { narrow: bucket.narrowed(), ..bucket }
    }

    fn narrowed(&self) -> Option<NarrowBucket> {
        // A quarter of the range, so that the sum of a debt and a cost does not overflow.
        let capacity = u64::try_from(self.capacity).ok().filter(|ticks| *ticks <= u64::MAX / 4)?;
        let per_us = NonZeroU64::new(self.ticks.per_us)?;
        let per_unit = NonZeroU64::new(self.ticks.per_unit)?;
        let debt_max = u64::try_from(self.debt_max).ok()?;
        let units_per_tick = u64::MAX / per_unit;
        let burst = self.burst;
        Some(NarrowBucket { per_us, per_unit, units_per_tick, capacity, debt_max, burst })
    }

    /// Returns the ticks until the bucket is full.
    fn debt(&self, full_at: &mut u128, now: u128) -> u128 {
        let debt = full_at.saturating_sub(now);
        if debt > self.debt_max {
            // With the whole debt, requests would be denied for as long as the clock stepped back.
            *full_at = now + self.capacity;
            return self.capacity;
        }
        debt
    }

    fn answer(&self, verdict: Verdict, debt: u128) -> Decision {
        Decision {
            verdict,
            limit: self.burst,
            remaining: self.ticks.units_floor(self.capacity.saturating_sub(debt)),
            reset_after: self.ticks.span_ceil(debt),
        }
    }
}

impl Algorithm for TokenBucket {
    type State = u128;

    fn fresh(&self, birth: Timestamp) -> u128 {
        if self.starts_empty { self.ticks.at(birth) + self.capacity } else { 0 }
    }

    fn decide(&self, full_at: &mut u128, now: Timestamp, cost: u64) -> Decision {
        let now = self.ticks.at(now);
        let debt = self.debt(full_at, now);
        if cost > self.burst {
            return self.answer(Verdict::Deny(Retry::Never), debt);
        }
        let after = debt + self.ticks.of_cost(cost);
        if after > self.capacity && cost > 0 {
            let retry_after = self.ticks.span_ceil(after - self.capacity);
            return self.answer(Verdict::Deny(Retry::After(retry_after)), debt);
        }
        if cost > 0 {
            *full_at = now + after;
        }
        self.answer(Verdict::Allow, after)
    }

    fn refund(&self, full_at: &mut u128, now: Timestamp, cost: u64) {
        let now = self.ticks.at(now);
        let debt = self.debt(full_at, now);
        *full_at = now + debt.saturating_sub(self.ticks.of_cost(cost));
    }

    fn usage(&self, full_at: &u128, now: Timestamp) -> Usage {
        let debt = self.debt(&mut full_at.clone(), self.ticks.at(now));
        let per_unit = u128::from(self.ticks.per_unit);
        Usage {
            units: self.ticks.units_floor(debt),
            part: debt % per_unit,
            parts: per_unit,
            drain: self.ticks.span_ceil(debt),
        }
    }

    fn adopt(&self, usage: Usage, now: Timestamp) -> u128 {
        let used = usage.in_ticks(self.ticks);
        let one = self.ticks.of_cost(1);
        // A request of cost 1 is admitted no later than under the old rule.
        let admitted_in_time =
            (self.capacity - one).saturating_add(self.ticks.in_span(usage.drain));
        self.ticks.at(now) + used.min(self.capacity).min(admitted_in_time)
    }

    fn to_words(&self, instant: &u128) -> Vec<u64> {
        split_words(*instant).to_vec()
    }

    fn read_words(&self, words: &[u64]) -> Option<u128> {
        let [high, low] = *words else { return None };
        Some(join_words(high, low))
    }

    fn lua_params(&self) -> Option<Vec<f64>> {
        let [capacity, debt_max] =
            [self.capacity, self.debt_max].map(|t| self.ticks.split_parts(t));
        let per_us = exact_f64_addend(self.ticks.per_us)?;
        Some([capacity?, debt_max?, [per_us, 0.0]].concat()[..5].to_vec())
    }

    fn lua_cost(&self, cost: u64) -> Option<Vec<f64>> {
        self.ticks.cost_to_lua(cost)
    }

    fn state_to_lua(&self, full_at: &u128) -> Option<Vec<f64>> {
        self.ticks.instant_to_lua(*full_at)
    }

    fn state_from_lua(&self, numbers: &[f64]) -> Option<u128> {
        self.ticks.instant_from_lua(numbers)
    }

    fn packed_words(&self) -> usize {
        1
    }

    /// Decides in 64-bit numbers, unless the capacity is too large for them, the time is before the epoch, or the clock has
    /// stepped back by more than is absorbed.
    fn decide_packed(
        &self,
        words: &mut PackedWords,
        epoch: Timestamp,
        now: Timestamp,
        cost: u64,
    ) -> Option<Decision> {
        if let Some(bucket) = &self.narrow
            && now >= epoch
            && let Some(ticks) = bucket.at(now.since(epoch))
            && !bucket.is_ahead_of_clock(words[0], ticks)
        {
            let taken = bucket.take(words[0], ticks, cost);
            words[0] = taken.unwrap_or(words[0]);
            return Some(bucket.decision(words[0], ticks, cost, taken.is_some()));
        }
        decide_unpacked(self, words, epoch, now, cost)
    }

    fn pack(&self, full_at: &u128, epoch: Timestamp) -> Option<PackedWords> {
        self.ticks.pack(*full_at, epoch)
    }

    fn unpack(&self, words: &PackedWords, epoch: Timestamp) -> u128 {
        self.ticks.unpack(words, epoch)
    }
}

/// A token bucket whose whole state is one word: `full_at`, in ticks since an epoch that the caller chooses.
///
/// It decides exactly as [`Limit::decide`](crate::Limit::decide), as long as `now` fits into its ticks. Where it does not,
/// [`at`](Self::at) returns `None`, and the caller has to use the limit.
///
/// Gain: a keyed check takes 314 instructions with it and 724 without it (`cargo xtask instructions`, cases `limiter-allowed` and
/// `limiter-wide-bucket`). `tests/narrow_bucket.rs` and the properties in `tidegate-conformance` hold it to the limit's decisions.
///
/// ```
/// use tidegate_core::{Limit, Span};
///
/// let limit: Limit = "10/s burst 3".parse()?;
/// let bucket = limit.narrow_bucket().expect("a token bucket with a small burst");
/// let now = bucket.at(Span::from_secs(1)).expect("a second is not long");
///
/// let full_at = bucket.take(0, now, 3).expect("it starts full");
/// assert_eq!(bucket.take(full_at, now, 1), None);
/// assert_eq!(bucket.decision(full_at, now, 1, false).retry_after(), Some(Span::from_millis(100)));
/// # Ok::<(), tidegate_core::RuleError>(())
/// ```
// Divisors are `NonZeroU64` and sums saturate, so the compiler can see that nothing here panics. It then leaves the divisions
// out for a caller that uses only the verdict.
#[derive(Clone, Copy, Debug)]
pub struct NarrowBucket {
    per_us: NonZeroU64,
    per_unit: NonZeroU64,
    /// The inverse of `per_unit` times 2^64. Multiplying by it is faster than dividing.
    units_per_tick: u64,
    capacity: u64,
    debt_max: u64,
    burst: u64,
}

impl NarrowBucket {
    /// Returns the same bucket with costs in ticks instead of units, and a capacity of at most `capacity` ticks: for rates
    /// that come with each request.
    #[inline]
    #[must_use]
    pub fn by_the_tick(&self, capacity: u64) -> Self {
        let capacity = capacity.min(self.capacity);
        let (per_unit, units_per_tick) = (NonZeroU64::MIN, u64::MAX);
        Self { per_unit, units_per_tick, capacity, burst: capacity, ..*self }
    }

    /// Returns the instant `since_epoch` after the epoch in ticks, or `None` if it is too late for one word.
    #[inline]
    pub fn at(&self, since_epoch: Span) -> Option<u64> {
        let now = since_epoch.as_micros().checked_mul(self.per_us.get())?;
        // The upper half is not used, so that sums need no check and callers can use `u64::MAX` as a marker.
        if now > u64::MAX / 2 { None } else { Some(now) }
    }

    /// Returns the new `full_at` if a request of `cost` is admitted now, or `None` if it is denied. A cost of zero charges
    /// nothing.
    #[inline]
    pub fn take(&self, full_at: u64, now: u64, cost: u64) -> Option<u64> {
        if cost > self.burst {
            return None;
        }
        if cost == 0 {
            return Some(if self.is_ahead_of_clock(full_at, now) {
                self.clamped(now)
            } else {
                full_at
            });
        }
        let after = Self::debt(full_at, now).saturating_add(self.price(cost));
        if after > self.capacity { None } else { Some(now.saturating_add(after)) }
    }

    /// Returns whether `full_at` is so late that the clock must have stepped back by more than is absorbed. The caller then has
    /// to store [`clamped`](Self::clamped) and decide again, also if the request was denied.
    #[inline]
    pub fn is_ahead_of_clock(&self, full_at: u64, now: u64) -> bool {
        full_at.saturating_sub(now) > self.debt_max
    }

    /// Returns the `full_at` of an empty bucket.
    #[inline]
    pub fn clamped(&self, now: u64) -> u64 {
        now.saturating_add(self.capacity)
    }

    /// Returns the decision about a request of `cost`, where `taken` says whether [`take`](Self::take) admitted it. `full_at`
    /// is the state afterwards: the new one if it was admitted, else the old one.
    #[inline]
    pub fn decision(&self, full_at: u64, now: u64, cost: u64, taken: bool) -> Decision {
        let debt = Self::debt(full_at, now);
        Decision {
            verdict: if taken { Verdict::Allow } else { self.denial(debt, cost) },
            limit: self.burst,
            remaining: self.whole_units(self.capacity.saturating_sub(debt)),
            reset_after: self.span_ceil(debt),
        }
    }

    #[inline]
    fn denial(&self, debt: u64, cost: u64) -> Verdict {
        if cost > self.burst {
            return Verdict::Deny(Retry::Never);
        }
        let missing = debt.saturating_add(self.price(cost)).saturating_sub(self.capacity);
        Verdict::Deny(Retry::After(self.span_ceil(missing)))
    }

    /// Returns a cost of at most `burst` in ticks, which are at most `capacity`.
    #[inline]
    fn price(&self, cost: u64) -> u64 {
        cost.saturating_mul(self.per_unit.get())
    }

    /// Returns `ticks / per_unit`, rounded down.
    #[inline]
    fn whole_units(&self, ticks: u64) -> u64 {
        let units = ((u128::from(ticks) * u128::from(self.units_per_tick)) >> 64) as u64;
        // The inverse is rounded down, so the product may be one unit too small.
        let rest = ticks.wrapping_sub(units.wrapping_mul(self.per_unit.get()));
        units.wrapping_add(u64::from(rest >= self.per_unit.get()))
    }

    #[inline]
    fn span_ceil(&self, ticks: u64) -> Span {
        if self.per_us.get() == 1 {
            // Most rules have one tick in a microsecond, and need no division.
            return Span::from_micros(ticks);
        }
        let has_rest = ticks % self.per_us != 0;
        Span::from_micros((ticks / self.per_us).saturating_add(u64::from(has_rest)))
    }

    #[inline]
    fn debt(full_at: u64, now: u64) -> u64 {
        full_at.saturating_sub(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bucket(per_unit: u64) -> NarrowBucket {
        let per_unit = NonZeroU64::new(per_unit).expect("not zero");
        NarrowBucket {
            per_us: NonZeroU64::MIN,
            per_unit,
            units_per_tick: u64::MAX / per_unit,
            capacity: 0,
            debt_max: 0,
            burst: 0,
        }
    }

    #[test]
    fn multiplying_by_the_inverse_divides_exactly() {
        let mut random = 1_u64;
        let mut draw = || {
            random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            // Numbers of every size.
            random >> (random % 64)
        };
        for _ in 0..200_000 {
            let (per_unit, any) = (draw().max(1), draw());
            for ticks in [any, any / per_unit * per_unit] {
                assert_eq!(bucket(per_unit).whole_units(ticks), ticks / per_unit);
            }
        }
    }

    #[test]
    fn multiplying_by_the_inverse_divides_exactly_at_the_edges() {
        let edges = [0, 1, 2, 3, 7, 1 << 32, u64::MAX / 2, u64::MAX - 1, u64::MAX];
        for per_unit in edges.into_iter().filter(|edge| *edge > 0) {
            for ticks in edges.into_iter().flat_map(|edge| [edge, edge.saturating_sub(1)]) {
                assert_eq!(bucket(per_unit).whole_units(ticks), ticks / per_unit);
            }
        }
    }
}

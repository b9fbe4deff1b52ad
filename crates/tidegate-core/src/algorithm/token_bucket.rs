//! Token bucket: up to `burst` at once, then evenly at the rate (A7, A8).
//!
//! State    One instant, `full_at`: when the bucket will be full again, in ticks of 1/n µs.
//! Always   `full_at - now <= capacity`; more than that means that the clock went back. By up to a
//!          millisecond (and no more than the bucket takes to fill) that is absorbed: nothing is
//!          forgotten, so clock skew gains nothing. Beyond, it is repaired.
//!          A denial charges nothing.
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
    /// `burst`, in ticks: how far `full_at` may lie ahead.
    capacity: u128,
    /// The largest debt that is believed: `capacity`, and the clock skew that is absorbed.
    debt_max: u128,
    starts_empty: bool,
    /// The same numbers in one word each, if the capacity is small enough.
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
        // A quarter of the range, so that debt and cost can be added without a thought.
        let capacity = u64::try_from(self.capacity).ok().filter(|ticks| *ticks <= u64::MAX / 4)?;
        let per_us = NonZeroU64::new(self.ticks.per_us)?;
        let per_unit = NonZeroU64::new(self.ticks.per_unit)?;
        let debt_max = u64::try_from(self.debt_max).ok()?;
        let units_per_tick = u64::MAX / per_unit;
        let burst = self.burst;
        Some(NarrowBucket { per_us, per_unit, units_per_tick, capacity, debt_max, burst })
    }

    /// Returns what is owed: how long, in ticks, until the bucket is full.
    fn debt(&self, full_at: &mut u128, now: u128) -> u128 {
        let debt = full_at.saturating_sub(now);
        if debt > self.debt_max {
            // Keeping all of it would be a lock-out as long as the step.
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
        // The next one must come no later than it would have under the old rule.
        let bearable = (self.capacity - one).saturating_add(self.ticks.in_span(usage.drain));
        self.ticks.at(now) + used.min(self.capacity).min(bearable)
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
        self.ticks.split_parts(self.ticks.of_cost(cost)).map(|price| price.to_vec())
    }

    fn state_to_lua(&self, full_at: &u128) -> Option<Vec<f64>> {
        self.ticks.split_instant(*full_at).map(|instant| instant.to_vec())
    }

    fn state_from_lua(&self, numbers: &[f64]) -> Option<u128> {
        let [us, rest] = *numbers else { return None };
        self.ticks.join_parts(us, rest)
    }

    fn packed_words(&self) -> usize {
        1
    }

    /// In one word, unless the clock stands before the epoch or went back by more than is absorbed.
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

/// A token bucket whose whole state fits into one word, counted from an epoch of the owner's.
///
/// It decides exactly as its wide twin as long as `now` can be said in its ticks; where it cannot,
/// [`at`](Self::at) is `None` and the owner goes back to the wide one.
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
// Nothing in here can panic, not even in the compiler's eyes: divisors are not zero, sums saturate.
// So a caller who looks only at the verdict does not pay for the divisions.
#[derive(Clone, Copy, Debug)]
pub struct NarrowBucket {
    per_us: NonZeroU64,
    per_unit: NonZeroU64,
    /// Its inverse, times 2^64: to multiply by, since a division is slow.
    units_per_tick: u64,
    capacity: u64,
    debt_max: u64,
    burst: u64,
}

impl NarrowBucket {
    /// Returns the same bucket, counted in ticks instead of units, for a key that may owe no more than `capacity`
    /// of them: for rates that come with each request.
    ///
    /// ```
    /// # use tidegate_core::{Limit, Span};
    /// let bucket = "1/s burst 9".parse::<Limit>()?.narrow_bucket().unwrap();
    /// assert_eq!(bucket.take(0, 5, 3), Some(3_000_005));
    /// assert_eq!(bucket.by_the_tick(2_000_000).take(0, 5, 2_000_000), Some(2_000_005));
    /// assert_eq!(bucket.by_the_tick(2_000_000).take(3_000_005, 5, 1), None, "others owe more");
    /// # Ok::<(), tidegate_core::RuleError>(())
    /// ```
    #[inline]
    #[must_use]
    pub fn by_the_tick(&self, capacity: u64) -> Self {
        let capacity = capacity.min(self.capacity);
        let (per_unit, units_per_tick) = (NonZeroU64::MIN, u64::MAX);
        Self { per_unit, units_per_tick, capacity, burst: capacity, ..*self }
    }

    /// The instant this long after the epoch, in ticks; `None` when that is too far.
    ///
    /// ```
    /// # use tidegate_core::{Limit, Span};
    /// let bucket = "7/min".parse::<Limit>()?.narrow_bucket().unwrap();
    /// assert_eq!(bucket.at(Span::from_micros(2)), Some(14));
    /// assert_eq!(bucket.at(Span::MAX), None);
    /// # Ok::<(), tidegate_core::RuleError>(())
    /// ```
    #[inline]
    pub fn at(&self, since_epoch: Span) -> Option<u64> {
        let now = since_epoch.as_micros().checked_mul(self.per_us.get())?;
        // The upper half is left free: sums need no check, and the top value is the owner's mark.
        if now > u64::MAX / 2 { None } else { Some(now) }
    }

    /// The new `full_at` if `cost` may pass now; `None` if it may not. A cost of zero takes nothing.
    ///
    /// ```
    /// # use tidegate_core::{Limit, Span};
    /// let bucket = "1/s".parse::<Limit>()?.narrow_bucket().unwrap();
    /// assert_eq!(bucket.take(0, 5, 1), Some(1_000_005));
    /// assert_eq!(bucket.take(1_000_005, 5, 1), None);
    /// # Ok::<(), tidegate_core::RuleError>(())
    /// ```
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

    /// Whether `full_at` lies further ahead than can be ridden out: the clock has stepped back, and
    /// the owner must store [`clamped`](Self::clamped), also if the answer is no, and ask again.
    ///
    /// ```
    /// # use tidegate_core::{Limit, Span};
    /// let bucket = "1/s".parse::<Limit>()?.narrow_bucket().unwrap();
    /// assert!(!bucket.is_ahead_of_clock(1_001_005, 5), "a second, and a millisecond's tremble");
    /// assert!(bucket.is_ahead_of_clock(1_001_006, 5));
    /// # Ok::<(), tidegate_core::RuleError>(())
    /// ```
    #[inline]
    pub fn is_ahead_of_clock(&self, full_at: u64, now: u64) -> bool {
        full_at.saturating_sub(now) > self.debt_max
    }

    /// The latest `full_at` that can be true now: an empty bucket.
    ///
    /// ```
    /// # use tidegate_core::{Limit, Span};
    /// let bucket = "1/s".parse::<Limit>()?.narrow_bucket().unwrap();
    /// assert_eq!(bucket.clamped(5), 1_000_005);
    /// # Ok::<(), tidegate_core::RuleError>(())
    /// ```
    #[inline]
    pub fn clamped(&self, now: u64) -> u64 {
        now.saturating_add(self.capacity)
    }

    /// The whole answer, given what [`take`](Self::take) said about `cost`. `full_at` is the
    /// state after that: the new one if it was taken, the old one if not.
    ///
    /// ```
    /// # use tidegate_core::{Limit, Span};
    /// let bucket = "10/s".parse::<Limit>()?.narrow_bucket().unwrap();
    /// let full_at = bucket.take(0, 0, 4).unwrap();
    /// assert_eq!(bucket.decision(full_at, 0, 4, true).remaining, 6);
    /// # Ok::<(), tidegate_core::RuleError>(())
    /// ```
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

    /// A cost that fits the burst, in ticks; it fits the capacity then.
    #[inline]
    fn price(&self, cost: u64) -> u64 {
        cost.saturating_mul(self.per_unit.get())
    }

    /// `ticks / per_unit`, rounded down.
    #[inline]
    fn whole_units(&self, ticks: u64) -> u64 {
        let units = ((u128::from(ticks) * u128::from(self.units_per_tick)) >> 64) as u64;
        // The inverse is rounded down, by so little that at most one unit is missing.
        let rest = ticks.wrapping_sub(units.wrapping_mul(self.per_unit.get()));
        units.wrapping_add(u64::from(rest >= self.per_unit.get()))
    }

    #[inline]
    fn span_ceil(&self, ticks: u64) -> Span {
        if self.per_us.get() == 1 {
            // So for most rules, and a division is slow.
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
    fn multiplying_by_the_inverse_is_dividing() {
        let mut random = 1_u64;
        let mut draw = || {
            random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            // Of every size.
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
    fn multiplying_by_the_inverse_is_dividing_at_the_edges() {
        let edges = [0, 1, 2, 3, 7, 1 << 32, u64::MAX / 2, u64::MAX - 1, u64::MAX];
        for per_unit in edges.into_iter().filter(|edge| *edge > 0) {
            for ticks in edges.into_iter().flat_map(|edge| [edge, edge.saturating_sub(1)]) {
                assert_eq!(bucket(per_unit).whole_units(ticks), ticks / per_unit);
            }
        }
    }
}

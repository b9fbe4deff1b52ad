//! `CL.THROTTLE` as redis-cell answers it: a rate that comes with each request (P6).
//!
//! State    The debt of a key in nanoseconds: the time until it has recovered completely. Nothing else is stored,
//!          so every request may have a different rate.
//! Always   A denial changes nothing. A refund never makes the debt negative.
//! Rounding As redis-cell rounds: an interval is truncated to whole nanoseconds, `remaining` is counted in
//!          whole microseconds, seconds are rounded up from the millisecond. Only where that gives a wrong answer (more
//!          remaining than the limit; a `retry_after` of 0 for a denied request) the right one is returned instead;
//!          `docs/guide/resp.md` lists every such case. Products that overflow in redis-cell saturate here.

use core::fmt;

const NS_PER_SECOND: i64 = 1_000_000_000;
const NS_PER_MS: i64 = 1_000_000;
const NS_PER_US: i64 = 1_000;

/// The arguments of one `CL.THROTTLE`: `max_burst`, `count` per `period` seconds, and a quantity.
///
/// ```
/// use tidegate_core::Throttle;
///
/// let throttle = Throttle::new(15, 30, 60, 1)?;
/// let (owed, throttled) = throttle.decide(0);
/// assert_eq!(throttled.reply(), [0, 16, 15, -1, 2]);
/// assert_eq!(owed, Some(2_000_000_000), "two seconds for one of thirty a minute");
/// # Ok::<(), tidegate_core::ZeroRate>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Throttle {
    /// Nanoseconds per unit.
    interval: i64,
    /// The largest debt, in nanoseconds.
    capacity: i64,
    /// The debt that this request adds, in nanoseconds; negative for a refund.
    increment: i64,
    limit: i64,
}

/// The error for a rate of zero, under which nothing could ever pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZeroRate;

/// The reply to a `CL.THROTTLE`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a decision that is ignored limits nothing"]
pub struct Throttled {
    /// Whether the request is denied.
    pub is_limited: bool,
    /// `max_burst + 1`.
    pub limit: i64,
    /// The quantity that would be admitted now.
    pub remaining: i64,
    /// Seconds until the request would be admitted; -1 if it is admitted now, or can never be.
    pub retry_after: i64,
    /// Seconds until the key has recovered completely.
    pub reset_after: i64,
}

impl Throttle {
    /// Takes the arguments as they stand in the command. All numbers are accepted, also negative ones, except a rate of zero.
    ///
    /// # Errors
    /// The rate is zero: `count` or `period` is 0, or the interval is below a nanosecond.
    #[inline]
    pub fn new(max_burst: i64, count: i64, period: i64, quantity: i64) -> Result<Self, ZeroRate> {
        if count == 0 || period == 0 {
            return Err(ZeroRate);
        }
        let interval = interval(count, period);
        if interval == 0 {
            return Err(ZeroRate);
        }
        let limit = max_burst.saturating_add(1);
        let capacity = interval.saturating_mul(limit);
        let increment = interval.saturating_mul(quantity);
        Ok(Self { interval, capacity, increment, limit })
    }

    /// Returns the largest debt and the debt that this request adds, in nanoseconds, for stores that keep a debt in one word.
    /// `None` if the decision is more than an addition: for a refund, or negative numbers.
    #[inline]
    pub fn as_price(&self) -> Option<(u64, u64)> {
        let capacity = u64::try_from(self.bearable()).ok()?;
        let increment = u64::try_from(self.increment).ok()?;
        (increment > 0).then_some((capacity, increment))
    }

    /// Returns the debt that this request adds and the largest debt, in nanoseconds, either of which may be negative.
    #[inline]
    pub fn as_debts(&self) -> [i64; 2] {
        [self.increment, self.bearable()]
    }

    /// Returns the arguments for one of `nodes` nodes that decide without each other: a rate and a burst divided by `nodes`,
    /// but a burst of at least one.
    #[must_use]
    pub fn share(&self, nodes: u64) -> Self {
        let nodes = i64::try_from(nodes.max(1)).unwrap_or(i64::MAX);
        if nodes == 1 || self.limit < 1 || self.interval < 1 {
            return *self;
        }
        let interval = self.interval.saturating_mul(nodes);
        let limit = (self.limit / nodes).max(1);
        let capacity = interval.saturating_mul(limit);
        let increment = self.increment.saturating_mul(nodes);
        Self { interval, capacity, increment, limit }
    }

    /// Decides for a key with this debt in nanoseconds. Returns its new debt (`None` if it stays the same) and the reply.
    #[inline]
    pub fn decide(&self, debt: u64) -> (Option<u64>, Throttled) {
        let after = i128::from(debt) + i128::from(self.increment);
        if after > i128::from(self.bearable()) {
            return (None, self.denied(debt));
        }
        // A refund of more than was charged leaves no debt, not a negative one.
        let after = u64::try_from(after.max(0)).unwrap_or(u64::MAX);
        (Some(after).filter(|after| *after != debt), self.allowed(after))
    }

    /// Returns the reply to an admitted request, where `debt` includes what the request added.
    #[inline]
    pub fn allowed(&self, debt: u64) -> Throttled {
        Throttled {
            is_limited: false,
            limit: self.limit,
            remaining: self.remaining(self.capacity, debt),
            retry_after: -1,
            reset_after: seconds(clamped(debt)),
        }
    }

    /// Returns the reply to a denied request of a key with this debt.
    #[inline]
    pub fn denied(&self, debt: u64) -> Throttled {
        let bearable = self.bearable();
        let missing = i128::from(debt) + i128::from(self.increment) - i128::from(bearable);
        let retry_after = if self.increment <= bearable {
            // A wait below a millisecond would be reported as 0 seconds, and the immediate retry would be denied.
            seconds(i64::try_from(missing).unwrap_or(i64::MAX)).max(1)
        } else {
            -1
        };
        Throttled {
            is_limited: true,
            limit: self.limit,
            remaining: self.remaining(bearable, debt),
            retry_after,
            reset_after: seconds(clamped(debt)),
        }
    }

    /// Returns the largest debt, bounded by what a store can hold.
    #[inline]
    fn bearable(&self) -> i64 {
        self.capacity.min(DEBT_NS_MAX)
    }

    #[inline]
    fn remaining(&self, capacity: i64, debt: u64) -> i64 {
        let free = capacity.saturating_sub(clamped(debt));
        if free <= self.interval.saturating_neg() {
            return 0;
        }
        match by_microseconds(free, self.interval) {
            remaining if remaining <= self.limit => remaining,
            _ => free.checked_div(self.interval).unwrap_or(i64::MAX),
        }
    }
}

/// The largest debt of a key, 146 years: the capacity of the bucket of nanoseconds, in memory and in Redis. Requests that
/// would exceed it are denied, also if their own arguments allow more.
const DEBT_NS_MAX: i64 = 4_570_551_051_959_749 * 1_009;

/// Returns the nanoseconds per unit, divided in floating point as redis-cell does.
#[inline]
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    reason = "redis-cell does the same, and the replies must be equal"
)]
fn interval(count: i64, period: i64) -> i64 {
    (period.saturating_mul(NS_PER_SECOND) as f64 / count as f64) as i64
}

/// Returns how many intervals fit, as redis-cell counts them: in whole microseconds, divided in floating point. So an
/// interval below a microsecond fits infinitely often into a microsecond and never into less, and beyond 285 years the last
/// digit is not exact.
#[inline]
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    reason = "redis-cell does the same, and the replies must be equal"
)]
fn by_microseconds(ns: i64, interval: i64) -> i64 {
    ((ns / NS_PER_US) as f64 / (interval / NS_PER_US) as f64) as i64
}

/// Converts to seconds, rounding up from the millisecond: a rest below a millisecond is dropped.
#[inline]
fn seconds(ns: i64) -> i64 {
    let has_ms = ns % NS_PER_SECOND / NS_PER_MS > 0;
    ns / NS_PER_SECOND + i64::from(has_ms)
}

#[inline]
fn clamped(debt: u64) -> i64 {
    i64::try_from(debt).unwrap_or(i64::MAX)
}

impl Throttled {
    /// Returns the five numbers in redis-cell's order.
    #[inline]
    pub fn reply(&self) -> [i64; 5] {
        let Self { is_limited, limit, remaining, retry_after, reset_after } = *self;
        [i64::from(is_limited), limit, remaining, retry_after, reset_after]
    }
}

impl fmt::Display for ZeroRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Zero rates are not supported")
    }
}

impl core::error::Error for ZeroRate {}

//! `CL.THROTTLE` as redis-cell answers it: a rate that comes with each request (P6).
//!
//! State    What a key owes, in nanoseconds: how long until it is as good as new. Nothing else is remembered,
//!          so every request may bring another rate.
//! Always   A denial changes nothing. A refund never makes a key better than new.
//! Rounding As redis-cell rounds: an interval is truncated to whole nanoseconds, `remaining` is counted in
//!          whole microseconds, seconds are rounded up from the millisecond. Where that makes an answer plainly
//!          wrong (more remaining than the limit; a denied caller told to come back in 0 s) the right one is
//!          given instead, and nowhere else; `docs/guide/resp.md` lists every such case.
//!          Products that redis-cell lets wrap around are held at the largest number here.

use core::fmt;

const NS_PER_SECOND: i64 = 1_000_000_000;
const NS_PER_MS: i64 = 1_000_000;
const NS_PER_US: i64 = 1_000;

/// The numbers of one `CL.THROTTLE`: `max_burst`, `count` per `period` seconds, and how much is asked for.
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
    /// One request in so many nanoseconds.
    interval: i64,
    /// How much may be owed.
    capacity: i64,
    /// What is asked for, in nanoseconds; below zero it is given back.
    increment: i64,
    limit: i64,
}

/// Nothing can pass at a rate of zero.
///
/// ```
/// assert_eq!(tidegate_core::ZeroRate.to_string(), "Zero rates are not supported");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZeroRate;

/// What `CL.THROTTLE` says.
///
/// ```
/// # use tidegate_core::Throttle;
/// let (_, throttled) = Throttle::new(0, 1, 2, 1)?.decide(2_000_000_000);
/// assert!(throttled.is_limited);
/// assert_eq!(throttled.reply(), [1, 1, 0, 2, 2]);
/// # Ok::<(), tidegate_core::ZeroRate>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Throttled {
    /// Whether the request is refused.
    pub is_limited: bool,
    /// `max_burst + 1`.
    pub limit: i64,
    /// How many more would pass now.
    pub remaining: i64,
    /// Seconds until it would pass; -1 if it passes, or never will.
    pub retry_after: i64,
    /// Seconds until the key is as good as new.
    pub reset_after: i64,
}

impl Throttle {
    /// The numbers as they stand in the command. Any number is one, also below zero; only a rate of zero
    /// is refused.
    ///
    /// ```
    /// # use tidegate_core::{Throttle, ZeroRate};
    /// assert!(Throttle::new(15, 30, 60, 1).is_ok());
    /// assert_eq!(Throttle::new(15, 0, 60, 1), Err(ZeroRate));
    /// assert_eq!(Throttle::new(15, 30, 0, 1), Err(ZeroRate));
    /// ```
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

    /// How much may be owed, and how much more this request would owe, in nanoseconds: for stores that
    /// keep debts in one word. `None` if there is more to it than an addition: a refund, or numbers
    /// below zero.
    ///
    /// ```
    /// # use tidegate_core::Throttle;
    /// let (capacity, increment) = Throttle::new(15, 30, 60, 1)?.as_price().unwrap();
    /// assert_eq!((capacity, increment), (32_000_000_000, 2_000_000_000));
    /// assert_eq!(Throttle::new(15, 30, 60, -1)?.as_price(), None);
    /// # Ok::<(), tidegate_core::ZeroRate>(())
    /// ```
    #[inline]
    pub fn as_price(&self) -> Option<(u64, u64)> {
        let capacity = u64::try_from(self.bearable()).ok()?;
        let increment = u64::try_from(self.increment).ok()?;
        (increment > 0).then_some((capacity, increment))
    }

    /// How much more this request would owe, and how much may be owed, in nanoseconds, whatever they are: for
    /// stores that work it out themselves.
    ///
    /// ```
    /// # use tidegate_core::Throttle;
    /// assert_eq!(Throttle::new(15, 30, 60, -1)?.as_debts(), [-2_000_000_000, 32_000_000_000]);
    /// # Ok::<(), tidegate_core::ZeroRate>(())
    /// ```
    #[inline]
    pub fn as_debts(&self) -> [i64; 2] {
        [self.increment, self.bearable()]
    }

    /// The share of one of `nodes` nodes that do not talk to each other: as many times slower, and no more at once
    /// than its part, but one at least.
    ///
    /// ```
    /// # use tidegate_core::Throttle;
    /// let share = Throttle::new(19, 10, 1, 1)?.share(4);
    /// assert_eq!(share.decide(0).1.reply(), [0, 5, 4, -1, 1]);
    /// # Ok::<(), tidegate_core::ZeroRate>(())
    /// ```
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

    /// Decides about a key that owes `debt` nanoseconds: what it owes then (`None` if nothing changes),
    /// and what the caller is told.
    ///
    /// ```
    /// # use tidegate_core::Throttle;
    /// let owed = 30_000_000_000;
    /// let (after, throttled) = Throttle::new(4, 1, 10, -1)?.decide(owed);
    /// assert_eq!(after, Some(20_000_000_000), "given back");
    /// assert_eq!(throttled.reply(), [0, 5, 3, -1, 20]);
    /// # Ok::<(), tidegate_core::ZeroRate>(())
    /// ```
    #[inline]
    pub fn decide(&self, debt: u64) -> (Option<u64>, Throttled) {
        let after = i128::from(debt) + i128::from(self.increment);
        if after > i128::from(self.bearable()) {
            return (None, self.denied(debt));
        }
        // More than was charged cannot be given back.
        let after = u64::try_from(after.max(0)).unwrap_or(u64::MAX);
        (Some(after).filter(|after| *after != debt), self.allowed(after))
    }

    /// What a caller is told who passes, if the key owes `debt` with what this request has added.
    ///
    /// ```
    /// # use tidegate_core::Throttle;
    /// assert_eq!(Throttle::new(15, 30, 60, 1)?.allowed(2_000_000_000).remaining, 15);
    /// # Ok::<(), tidegate_core::ZeroRate>(())
    /// ```
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

    /// What a caller is told who does not pass, if the key owes `debt`.
    ///
    /// ```
    /// # use tidegate_core::Throttle;
    /// assert_eq!(Throttle::new(0, 1, 2, 1)?.denied(2_000_000_000).retry_after, 2);
    /// # Ok::<(), tidegate_core::ZeroRate>(())
    /// ```
    #[inline]
    pub fn denied(&self, debt: u64) -> Throttled {
        let bearable = self.bearable();
        let missing = i128::from(debt) + i128::from(self.increment) - i128::from(bearable);
        let retry_after = if self.increment <= bearable {
            // Less than a millisecond would be no seconds at all: come back at once, and be denied again.
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

    /// How much may be owed, as far as it can be kept.
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

/// The most that a key can owe, 146 years: what the tables' bucket of nanoseconds holds, in memory and in Redis. A rate under which more
/// could be owed is denied what goes beyond.
const DEBT_NS_MAX: i64 = 4_570_551_051_959_749 * 1_009;

/// As redis-cell divides: in floating point.
#[inline]
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    reason = "so does redis-cell, and its answers are what is wanted"
)]
fn interval(count: i64, period: i64) -> i64 {
    (period.saturating_mul(NS_PER_SECOND) as f64 / count as f64) as i64
}

/// How many intervals fit, as redis-cell counts: both in whole microseconds and in floating point. So of an interval without
/// any there is no end of them in a microsecond, and none in less; and beyond 285 years the last digit is not exact.
#[inline]
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    reason = "so does redis-cell, and its answers are what is wanted"
)]
fn by_microseconds(ns: i64, interval: i64) -> i64 {
    ((ns / NS_PER_US) as f64 / (interval / NS_PER_US) as f64) as i64
}

/// Seconds, rounded up from the millisecond: what is less than that does not count.
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
    /// The five numbers, in redis-cell's order.
    ///
    /// ```
    /// # use tidegate_core::Throttle;
    /// let (_, throttled) = Throttle::new(4, 1, 1, 6)?.decide(0);
    /// assert_eq!(throttled.reply(), [1, 5, 5, -1, 0], "six can never pass where five do");
    /// # Ok::<(), tidegate_core::ZeroRate>(())
    /// ```
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

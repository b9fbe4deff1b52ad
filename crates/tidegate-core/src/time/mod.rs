//! Instants and lengths of time, both in whole microseconds.
//!
//! Always   Arithmetic saturates: a time beyond `u64::MAX` µs (the year 586 000) is that maximum.
//! Rounding None here. Whoever divides says which way, and never in the caller's favour.

pub(crate) mod civil;
mod clock_skew;

use core::fmt;
use core::time::Duration;

/// An instant: whole microseconds since the Unix epoch.
///
/// Core never reads a clock; whoever asks for a decision says what time it is.
///
/// ```
/// use tidegate_core::{Span, Timestamp};
///
/// let noon = Timestamp::from_micros(43_200_000_000);
/// assert_eq!(noon + Span::from_secs(1), Timestamp::from_micros(43_201_000_000));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(u64);

impl Timestamp {
    /// 1970-01-01T00:00:00Z.
    pub const EPOCH: Self = Self(0);
    /// The last instant that can be said.
    pub const MAX: Self = Self(u64::MAX);

    /// The instant this many microseconds after the Unix epoch.
    ///
    /// ```
    /// assert_eq!(tidegate_core::Timestamp::from_micros(7).as_micros(), 7);
    /// ```
    #[inline]
    pub const fn from_micros(us: u64) -> Self {
        Self(us)
    }

    /// Microseconds since the Unix epoch.
    ///
    /// ```
    /// assert_eq!(tidegate_core::Timestamp::EPOCH.as_micros(), 0);
    /// ```
    #[inline]
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// How long ago `earlier` was; zero when it is not earlier.
    ///
    /// ```
    /// use tidegate_core::{Span, Timestamp};
    ///
    /// let (a, b) = (Timestamp::from_micros(10), Timestamp::from_micros(25));
    /// assert_eq!(b.since(a), Span::from_micros(15));
    /// assert_eq!(a.since(b), Span::ZERO);
    /// ```
    #[inline]
    pub const fn since(self, earlier: Self) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }
}

impl core::ops::Add<Span> for Timestamp {
    type Output = Self;

    #[inline]
    fn add(self, span: Span) -> Self {
        Self(self.0.saturating_add(span.0))
    }
}

impl core::ops::Sub<Span> for Timestamp {
    type Output = Self;

    #[inline]
    fn sub(self, span: Span) -> Self {
        Self(self.0.saturating_sub(span.0))
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}us", self.0)
    }
}

/// A length of time: whole microseconds.
///
/// It prints in the largest unit that says it exactly, the way rules spell it.
///
/// ```
/// use tidegate_core::Span;
///
/// assert_eq!(Span::from_millis(1_500).to_string(), "1500ms");
/// assert_eq!(Span::from_secs(120).to_string(), "2min");
/// assert_eq!(Span::MAX.to_string(), "for ever");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Span(u64);

impl Span {
    /// No time at all.
    pub const ZERO: Self = Self(0);
    /// The longest time that can be said; "for ever" in practice.
    pub const MAX: Self = Self(u64::MAX);
    /// The units a span may be written in, longest first, each with its microseconds.
    ///
    /// ```
    /// assert!(tidegate_core::Span::UNITS.contains(&("min", 60_000_000)));
    /// ```
    pub const UNITS: [(&'static str, u64); 7] = UNITS;

    /// This many microseconds.
    ///
    /// ```
    /// assert_eq!(tidegate_core::Span::from_micros(1_000).to_string(), "1ms");
    /// ```
    #[inline]
    pub const fn from_micros(us: u64) -> Self {
        Self(us)
    }

    /// This many milliseconds.
    ///
    /// ```
    /// assert_eq!(tidegate_core::Span::from_millis(2).as_micros(), 2_000);
    /// ```
    #[inline]
    pub const fn from_millis(ms: u64) -> Self {
        Self(ms.saturating_mul(1_000))
    }

    /// This many seconds.
    ///
    /// ```
    /// assert_eq!(tidegate_core::Span::from_secs(2).as_micros(), 2_000_000);
    /// ```
    #[inline]
    pub const fn from_secs(s: u64) -> Self {
        Self(s.saturating_mul(1_000_000))
    }

    /// The shortest span of whole microseconds that is not shorter than `duration`.
    ///
    /// ```
    /// use core::time::Duration;
    /// use tidegate_core::Span;
    ///
    /// assert_eq!(Span::from_duration_ceil(Duration::from_nanos(1)), Span::from_micros(1));
    /// assert_eq!(Span::from_duration_ceil(Duration::MAX), Span::MAX);
    /// ```
    pub fn from_duration_ceil(duration: Duration) -> Self {
        Self::from_wide(duration.as_nanos().div_ceil(1_000))
    }

    /// The longest span of whole microseconds that is not longer than `duration`.
    ///
    /// ```
    /// use core::time::Duration;
    /// use tidegate_core::Span;
    ///
    /// assert_eq!(Span::from_duration_floor(Duration::from_nanos(1_999)), Span::from_micros(1));
    /// ```
    pub fn from_duration_floor(duration: Duration) -> Self {
        Self::from_wide(duration.as_micros())
    }

    /// Microseconds.
    ///
    /// ```
    /// assert_eq!(tidegate_core::Span::from_secs(1).as_micros(), 1_000_000);
    /// ```
    #[inline]
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// Whole seconds, rounded up: what an HTTP `Retry-After` header says. Waiting that long is always
    /// enough.
    ///
    /// ```
    /// use tidegate_core::Span;
    ///
    /// assert_eq!(Span::from_millis(1_001).as_secs_ceil(), 2);
    /// assert_eq!(Span::from_micros(1).as_secs_ceil(), 1, "never 0 for somebody who must wait");
    /// ```
    #[inline]
    pub const fn as_secs_ceil(self) -> u64 {
        self.0.div_ceil(1_000_000)
    }

    /// Whether this is no time at all.
    ///
    /// ```
    /// assert!(tidegate_core::Span::ZERO.is_zero());
    /// ```
    #[inline]
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }

    /// As the standard library's type.
    ///
    /// ```
    /// use core::time::Duration;
    /// assert_eq!(tidegate_core::Span::from_millis(3).as_duration(), Duration::from_millis(3));
    /// ```
    #[inline]
    pub const fn as_duration(self) -> Duration {
        Duration::from_micros(self.0)
    }

    /// What is left after taking `other` away; zero when that is more than there is.
    ///
    /// ```
    /// use tidegate_core::Span;
    /// assert_eq!(Span::from_secs(1).saturating_sub(Span::from_secs(2)), Span::ZERO);
    /// ```
    #[inline]
    #[must_use]
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    /// At the end of time the time that is left is cut off; what is not over has not passed.
    pub(crate) fn at_least_1us(self) -> Self {
        self.max(Self(1))
    }

    /// Microseconds that may not fit: what does not fit is for ever.
    #[inline]
    pub(crate) fn from_wide(us: u128) -> Self {
        Self(u64::try_from(us).unwrap_or(u64::MAX))
    }
}

/// To the whole microsecond below.
impl From<Duration> for Span {
    fn from(duration: Duration) -> Self {
        Self::from_duration_floor(duration)
    }
}

impl From<Span> for Duration {
    fn from(span: Span) -> Self {
        span.as_duration()
    }
}

impl core::ops::Add for Span {
    type Output = Self;

    #[inline]
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

/// Units a span may be written in, longest first: the largest that divides it is used to print it.
pub(crate) const UNITS: [(&str, u64); 7] = [
    ("week", 604_800_000_000),
    ("day", 86_400_000_000),
    ("h", 3_600_000_000),
    ("min", 60_000_000),
    ("s", 1_000_000),
    ("ms", 1_000),
    ("us", 1),
];

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::ZERO => return f.write_str("0s"),
            Self::MAX => return f.write_str("for ever"),
            _ => {}
        }
        for (name, us) in UNITS {
            if self.0.is_multiple_of(us) {
                return write!(f, "{}{name}", self.0 / us);
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;
    use alloc::string::ToString;

    #[test]
    fn whole_seconds_are_never_too_short() {
        let seconds = [
            (0, 0),
            (1, 1),
            (999_999, 1),
            (1_000_000, 1),
            (1_000_001, 2),
            (u64::MAX - 1, 18_446_744_073_710),
            (u64::MAX, 18_446_744_073_710),
        ];
        for (us, secs) in seconds {
            assert_eq!(Span::from_micros(us).as_secs_ceil(), secs, "{us}");
        }
    }

    #[test]
    fn only_the_longest_span_is_for_ever() {
        assert_eq!(Span::MAX.to_string(), "for ever");
        assert_eq!(Span::from_micros(u64::MAX - 1).to_string(), "18446744073709551614us");
    }

    #[test]
    fn durations_become_whole_microseconds_up_or_down_and_back() {
        let duration = Duration::from_nanos(1_999_001);
        assert_eq!(Span::from_duration_ceil(duration), Span::from_micros(2_000));
        assert_eq!(Span::from_duration_floor(duration), Span::from_micros(1_999));
        assert_eq!(Span::from(duration), Span::from_micros(1_999));
        assert_eq!(Duration::from(Span::from_micros(1_999)), Duration::from_micros(1_999));
    }

    #[test]
    fn for_those_who_look_for_bugs_times_show_their_unit() {
        assert_eq!(format!("{:?}", Timestamp::from_micros(1_500)), "1500us");
        assert_eq!(format!("{:?}", Span::from_micros(1_500)), "1500us");
        assert_eq!(format!("{:?}", Span::from_micros(2_000)), "2ms");
    }
}

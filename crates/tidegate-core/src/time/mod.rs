//! Instants and lengths of time, both in whole microseconds.
//!
//! Always   Arithmetic saturates: a time beyond `u64::MAX` µs (the year 586 000) becomes that maximum.
//! Rounding None here. Code that divides says which way it rounds, and never rounds in the caller's favour.

pub(crate) mod civil;
mod clock_skew;

use core::cmp::Ordering;
use core::fmt;
use core::time::Duration;

/// An instant: whole microseconds since the Unix epoch.
///
/// Core never reads a clock: the caller passes the time of each request.
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
    /// The last instant.
    pub const MAX: Self = Self(u64::MAX);

    /// Creates the instant `us` microseconds after the Unix epoch.
    #[inline]
    pub const fn from_micros(us: u64) -> Self {
        Self(us)
    }

    /// Returns the microseconds since the Unix epoch.
    #[inline]
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// Returns the time from `earlier` to this instant; zero if `earlier` is later.
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

/// A length of time in whole microseconds, the resolution in which limits decide.
///
/// It converts to and from [`Duration`] and compares with it, so a `Span` can be passed to `sleep` by `.into()` and a
/// `Duration` can be given wherever a span is expected. It prints in the largest unit that is exact, as in rules.
///
/// ```
/// use core::time::Duration;
/// use tidegate_core::Span;
///
/// let retry_after = Span::from_millis(1_500);
/// assert_eq!(retry_after, Duration::from_millis(1_500));
/// assert!(retry_after < Duration::from_secs(2));
/// let sleep: Duration = retry_after.into();
/// assert_eq!(sleep.as_millis(), 1_500);
///
/// assert_eq!(retry_after.to_string(), "1500ms");
/// assert_eq!(Span::from_secs(120).to_string(), "2min");
/// assert_eq!(Span::MAX.to_string(), "for ever");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Span(u64);

impl Span {
    /// No time at all.
    pub const ZERO: Self = Self(0);
    /// The longest span, which stands for an unlimited time.
    pub const MAX: Self = Self(u64::MAX);
    /// The units in which a span is written, longest first, each with its microseconds.
    pub const UNITS: [(&'static str, u64); 7] = UNITS;

    /// Creates a span of `us` microseconds.
    #[inline]
    pub const fn from_micros(us: u64) -> Self {
        Self(us)
    }

    /// Creates a span of `ms` milliseconds.
    #[inline]
    pub const fn from_millis(ms: u64) -> Self {
        Self(ms.saturating_mul(1_000))
    }

    /// Creates a span of `s` seconds.
    #[inline]
    pub const fn from_secs(s: u64) -> Self {
        Self(s.saturating_mul(1_000_000))
    }

    /// Converts a duration, rounding up to whole microseconds.
    pub fn from_duration_ceil(duration: Duration) -> Self {
        Self::from_wide(duration.as_nanos().div_ceil(1_000))
    }

    /// Converts a duration, rounding down to whole microseconds.
    pub fn from_duration_floor(duration: Duration) -> Self {
        Self::from_wide(duration.as_micros())
    }

    /// Returns the number of microseconds.
    #[inline]
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// Returns the number of seconds, rounded up: the value of an HTTP `Retry-After` header. Waiting that long is always
    /// enough, and only [`Span::ZERO`] gives 0.
    #[inline]
    pub const fn as_secs_ceil(self) -> u64 {
        self.0.div_ceil(1_000_000)
    }

    /// Returns whether this is [`Span::ZERO`].
    #[inline]
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }

    /// Converts to the standard library's type, exactly.
    #[inline]
    pub const fn as_duration(self) -> Duration {
        Duration::from_micros(self.0)
    }

    /// Subtracts `other`; the difference is zero if `other` is longer.
    #[inline]
    #[must_use]
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    /// Returns the span, or 1 µs if it is zero: at the last instant the remaining time is cut off, and a time that has not
    /// passed must not look as if it had.
    pub(crate) fn at_least_1us(self) -> Self {
        self.max(Self(1))
    }

    /// Creates a span of `us` microseconds, or [`Span::MAX`] if they do not fit.
    #[inline]
    pub(crate) fn from_wide(us: u128) -> Self {
        Self(u64::try_from(us).unwrap_or(u64::MAX))
    }
}

/// Rounds down to whole microseconds.
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

/// Compares exactly: a duration with a fraction of a microsecond equals no span.
impl PartialEq<Duration> for Span {
    fn eq(&self, other: &Duration) -> bool {
        self.as_duration() == *other
    }
}

impl PartialEq<Span> for Duration {
    fn eq(&self, other: &Span) -> bool {
        *self == other.as_duration()
    }
}

impl PartialOrd<Duration> for Span {
    fn partial_cmp(&self, other: &Duration) -> Option<Ordering> {
        self.as_duration().partial_cmp(other)
    }
}

impl PartialOrd<Span> for Duration {
    fn partial_cmp(&self, other: &Span) -> Option<Ordering> {
        self.partial_cmp(&other.as_duration())
    }
}

impl core::ops::Add for Span {
    type Output = Self;

    #[inline]
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

/// The units of a span, longest first: it prints in the first one that divides it.
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
    fn spans_and_durations_compare_exactly() {
        let (span, beyond) = (Span::from_micros(1), Duration::from_nanos(1_001));
        assert_eq!(span, Duration::from_micros(1));
        assert_eq!(Duration::from_micros(1), span);
        assert!(span < beyond);
        assert!(beyond > span);
        assert_ne!(span, beyond);
        assert_ne!(beyond, span);
    }

    #[test]
    fn debug_output_shows_the_unit() {
        assert_eq!(format!("{:?}", Timestamp::from_micros(1_500)), "1500us");
        assert_eq!(format!("{:?}", Span::from_micros(1_500)), "1500us");
        assert_eq!(format!("{:?}", Span::from_micros(2_000)), "2ms");
    }
}

//! Load shedding: which share of which traffic is rejected while the machine is overloaded (A14).
//!
//! State    One number, the level: 0 sheds nothing, 1 all batch traffic, 2 all sheddable traffic as well, 3 all but
//!          critical traffic.
//! Always   A class is shed only if all lower classes are shed completely. Critical traffic is never shed by a level.
//! Always   Between the low and the high watermark of a signal the level does not change, so it does not flap.
//! Rounding Down, up to a millionth of a class.

use crate::time::Span;
use core::fmt;
use core::ops::RangeInclusive;

/// The importance of a request, lowest first.
///
/// ```
/// use tidegate_core::Priority;
///
/// assert!(Priority::Batch < Priority::Critical);
/// assert_eq!(Priority::default(), Priority::Normal);
/// assert_eq!("sheddable".parse(), Ok(Priority::Sheddable));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[non_exhaustive]
pub enum Priority {
    /// No user waits for the result: reports, backfills, test traffic. Shed first.
    Batch,
    /// Users can do without the result: suggestions, previews, polling.
    Sheddable,
    /// The default.
    #[default]
    Normal,
    /// Requests that must work as long as possible: payments, sign-in, health checks.
    Critical,
}

impl Priority {
    /// All priorities, lowest first.
    pub const ALL: [Self; 4] = [Self::Batch, Self::Sheddable, Self::Normal, Self::Critical];

    /// Returns the name of the priority, as [`FromStr`](core::str::FromStr) reads it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Batch => "batch",
            Self::Sheddable => "sheddable",
            Self::Normal => "normal",
            Self::Critical => "critical",
        }
    }
}

impl fmt::Display for Priority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// The error for a name that is not a priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownPriority;

impl fmt::Display for UnknownPriority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not a priority; write batch, sheddable, normal or critical")
    }
}

impl core::error::Error for UnknownPriority {}

impl core::str::FromStr for Priority {
    type Err = UnknownPriority;

    fn from_str(word: &str) -> Result<Self, UnknownPriority> {
        Self::ALL.into_iter().find(|priority| priority.word() == word).ok_or(UnknownPriority)
    }
}

/// The watermarks of a signal, which is a share in thousandths: above the high one more is shed, below the low one less, and
/// between them nothing changes.
///
/// ```
/// use tidegate_core::Watermarks;
///
/// let cpu = Watermarks::percent(75..=90);
/// assert!(cpu.push(950) > 0, "more");
/// assert_eq!(cpu.push(800), 0, "as it is");
/// assert!(cpu.push(500) < 0, "less");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watermarks {
    low: u32,
    high: u32,
}

/// The strongest push up or down.
const PUSH_MAX: u32 = 1_000;
/// The push of a value just above the high watermark.
const PUSH_MIN: u32 = 250;

impl Watermarks {
    /// Creates watermarks from percentages. A low mark that is not below the high one is moved below it.
    pub fn percent(marks: RangeInclusive<u32>) -> Self {
        let high = (*marks.end()).max(1);
        let low = (*marks.start()).min(high - 1);
        Self { low: low.saturating_mul(10), high: high.saturating_mul(10) }
    }

    /// Returns how strongly a value pushes the level, from -1000 to 1000.
    pub fn push(self, value: u32) -> i32 {
        if value < self.low {
            return -PUSH_MAX.cast_signed();
        }
        if value <= self.high {
            return 0;
        }
        let above = u64::from(value - self.high) * u64::from(PUSH_MAX);
        let push = above / u64::from(self.high - self.low).max(1);
        u32::try_from(push).unwrap_or(PUSH_MAX).clamp(PUSH_MIN, PUSH_MAX).cast_signed()
    }
}

impl fmt::Display for Watermarks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "marks {} % to {} %", self.low / 10, self.high / 10)
    }
}

/// The level of load shedding.
///
/// ```
/// use tidegate_core::{Level, Priority, Span};
///
/// let mut level = Level::default();
/// for _ in 0..70 {
///     level = level.pushed(1_000, Span::from_millis(100));
/// }
/// assert_eq!(level.share(Priority::Batch), Level::WHOLE, "after 7 s of the strongest push");
/// assert_eq!(level.share(Priority::Sheddable), 400_000, "two of five");
/// assert_eq!(level.share(Priority::Normal), 0);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Level {
    /// In millionths of a class.
    millionths: u32,
}

/// The time per millionth, in thousandths of a microsecond, at the strongest push up: one class in 5 s.
const RISE: u64 = 5_000;
/// The same at the strongest push down: one class in 10 s, so that the effect of readmitted traffic shows first.
const FALL: u64 = 10_000;
/// A push up counts for at most this time, because the load between two distant samples is unknown.
const RISE_SPAN_MAX: Span = Span::from_secs(1);

impl Level {
    /// A complete class.
    pub const WHOLE: u32 = 1_000_000;
    /// Everything but critical traffic.
    const MAX: u32 = 3 * Self::WHOLE;

    /// Returns the level after a push of this strength for this time: up by at most one class in 5 s, down by at most one in
    /// 10 s.
    #[must_use]
    pub fn pushed(self, push: i32, span: Span) -> Self {
        let strength = u64::from(push.unsigned_abs().min(PUSH_MAX));
        let by = |span: Span, pace: u64| {
            let millionths = span.as_micros().saturating_mul(strength) / pace;
            u32::try_from(millionths).unwrap_or(u32::MAX)
        };
        let millionths = if push > 0 {
            self.millionths.saturating_add(by(span.min(RISE_SPAN_MAX), RISE)).min(Self::MAX)
        } else {
            self.millionths.saturating_sub(by(span, FALL))
        };
        Self { millionths }
    }

    /// Returns the share of a class that is shed, in millionths.
    pub fn share(self, priority: Priority) -> u32 {
        let below = match priority {
            Priority::Batch => 0,
            Priority::Sheddable => Self::WHOLE,
            Priority::Normal => 2 * Self::WHOLE,
            Priority::Critical => return 0,
        };
        self.millionths.saturating_sub(below).min(Self::WHOLE)
    }

    /// Returns whether the `number`-th request of a class is shed. Shed requests are evenly spread, not random.
    pub fn sheds(self, priority: Priority, number: u64) -> bool {
        let (share, whole) = (u64::from(self.share(priority)), u64::from(Self::WHOLE));
        (number % whole) * share % whole + share >= whole
    }

    /// Returns the level in millionths of a class, from 0 to 3 000 000.
    pub const fn as_millionths(self) -> u32 {
        self.millionths
    }

    /// Creates a level from millionths of a class, limited to the highest level.
    pub const fn from_millionths(millionths: u32) -> Self {
        Self { millionths: if millionths < Self::MAX { millionths } else { Self::MAX } }
    }
}

//! Load shedding: how much of which traffic is turned away while the machine has too much to do (A14).
//!
//! State    One number, the level: 0 sheds nothing, 1 all batch traffic, 2 all that can be shed as well,
//!          3 all but critical traffic.
//! Always   A class is shed only when everything below it is. Critical traffic is never shed by a level.
//! Always   Between the low and the high mark of a signal the level stays where it is, so it does not flap.
//! Rounding Down, up to a millionth of a class.

use crate::time::Span;
use core::fmt;
use core::ops::RangeInclusive;

/// How much a request matters, the least first.
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
    /// Nobody waits for it: reports, backfills, test traffic. Shed first.
    Batch,
    /// Somebody would notice, and could go on without: suggestions, previews, polling.
    Sheddable,
    /// What a request is unless told otherwise.
    #[default]
    Normal,
    /// What must work while anything does: payments, sign-in, health checks.
    Critical,
}

impl Priority {
    /// All of them, the least first.
    ///
    /// ```
    /// assert_eq!(tidegate_core::Priority::ALL.len(), 4);
    /// ```
    pub const ALL: [Self; 4] = [Self::Batch, Self::Sheddable, Self::Normal, Self::Critical];

    /// The word for it, as [`FromStr`](core::str::FromStr) reads it.
    ///
    /// ```
    /// assert_eq!(tidegate_core::Priority::Critical.word(), "critical");
    /// ```
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

/// A word that is no priority.
///
/// ```
/// let error = "urgent".parse::<tidegate_core::Priority>().unwrap_err();
/// assert_eq!(error.to_string(), "not a priority; write batch, sheddable, normal or critical");
/// ```
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

/// Between these marks nothing changes: above the high one more is shed, below the low one less. In
/// thousandths of what there is.
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

/// The strongest push, either way.
const PUSH_MAX: u32 = 1_000;
/// What is hardly above the high mark still pushes.
const PUSH_MIN: u32 = 250;

impl Watermarks {
    /// Watermarks in hundredths. A low mark that is not below the high one is moved below it.
    ///
    /// ```
    /// # use tidegate_core::Watermarks;
    /// assert_eq!(Watermarks::percent(80..=80), Watermarks::percent(79..=80));
    /// ```
    pub fn percent(marks: RangeInclusive<u32>) -> Self {
        let high = (*marks.end()).max(1);
        let low = (*marks.start()).min(high - 1);
        Self { low: low.saturating_mul(10), high: high.saturating_mul(10) }
    }

    /// Where this value pushes the level, and how hard: from -1000 to 1000.
    ///
    /// ```
    /// # use tidegate_core::Watermarks;
    /// let marks = Watermarks::percent(75..=90);
    /// assert_eq!((marks.push(901), marks.push(1_000)), (250, 666));
    /// ```
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

/// How much is shed.
///
/// ```
/// use tidegate_core::{Level, Priority, Span};
///
/// let mut level = Level::default();
/// for _ in 0..70 {
///     level = level.pushed(1_000, Span::from_millis(100));
/// }
/// assert_eq!(level.share(Priority::Batch), Level::WHOLE, "after 7 s of the strongest push");
/// assert_eq!(level.share(Priority::Sheddable), 400_000, "two in five");
/// assert_eq!(level.share(Priority::Normal), 0);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Level {
    /// In millionths of a class.
    millionths: u32,
}

/// The strongest push sheds one class more in this many thousandths of a microsecond, per millionth: 5 s.
const RISE: u64 = 5_000;
/// The same on the way back: 10 s, so that what is let in again shows what it does.
const FALL: u64 = 10_000;
/// A push upward counts for no longer than this: the load between two distant looks is not known.
const RISE_SPAN_MAX: Span = Span::from_secs(1);

impl Level {
    /// All of a class.
    pub const WHOLE: u32 = 1_000_000;
    /// All but critical traffic.
    const MAX: u32 = 3 * Self::WHOLE;

    /// The level after a push of this strength for this long: one class more in 5 s, one less in 10 s at the
    /// fastest.
    ///
    /// ```
    /// # use tidegate_core::{Level, Span};
    /// let level = Level::default().pushed(1_000, Span::from_secs(1));
    /// assert_eq!(level.as_millionths(), 200_000);
    /// assert_eq!(level.pushed(0, Span::from_secs(60)), level);
    /// assert_eq!(level.pushed(-1_000, Span::from_secs(60)), Level::default());
    /// ```
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

    /// The part of a class that is shed, in millionths.
    ///
    /// ```
    /// # use tidegate_core::{Level, Priority};
    /// assert_eq!(Level::default().share(Priority::Batch), 0);
    /// ```
    pub fn share(self, priority: Priority) -> u32 {
        let below = match priority {
            Priority::Batch => 0,
            Priority::Sheddable => Self::WHOLE,
            Priority::Normal => 2 * Self::WHOLE,
            Priority::Critical => return 0,
        };
        self.millionths.saturating_sub(below).min(Self::WHOLE)
    }

    /// Whether the `number`-th request of a class is shed: evenly spread, without chance.
    ///
    /// ```
    /// # use tidegate_core::{Level, Priority, Span};
    /// let level = Level::default().pushed(1_000, Span::from_secs(1));
    /// let shed: Vec<u64> = (0..10).filter(|n| level.sheds(Priority::Batch, *n)).collect();
    /// assert_eq!(shed, [4, 9], "one in five");
    /// ```
    pub fn sheds(self, priority: Priority, number: u64) -> bool {
        let (share, whole) = (u64::from(self.share(priority)), u64::from(Self::WHOLE));
        (number % whole) * share % whole + share >= whole
    }

    /// In millionths of a class, from 0 to 3 000 000.
    ///
    /// ```
    /// assert_eq!(tidegate_core::Level::default().as_millionths(), 0);
    /// ```
    pub const fn as_millionths(self) -> u32 {
        self.millionths
    }

    /// The level of this many millionths, or the highest.
    ///
    /// ```
    /// # use tidegate_core::Level;
    /// assert_eq!(Level::from_millionths(5).as_millionths(), 5);
    /// assert_eq!(Level::from_millionths(u32::MAX).as_millionths(), 3_000_000);
    /// ```
    pub const fn from_millionths(millionths: u32) -> Self {
        Self { millionths: if millionths < Self::MAX { millionths } else { Self::MAX } }
    }
}

//! The rule text: one language in code, macro, config, command line and wire.
//!
//! Always   Every [`Rule`] is valid: its numbers are in range and fit together, so nobody checks
//!          again. It prints back as canonical text that reads as the same rule.

pub mod diagnostics;
mod explain;
mod lease;
mod parse;
mod print;
mod share;

pub use diagnostics::{RuleError, RuleErrorKind};
pub use lease::LeaseTerms;

use crate::algorithm::CalendarUnit;
use crate::rate::Rate;
use crate::time::Span;
use alloc::string::{String, ToString};
use core::str::FromStr;
use parse::anchor::Anchor;

/// A rule: what a limit allows, as text that has been read and found good.
///
/// ```
/// use tidegate_core::Rule;
///
/// let rule: Rule = "10/1s  burst 20".parse()?;
/// assert_eq!(rule.to_string(), "10/s burst 20");
/// assert_eq!(
///     rule.explain(),
///     "admits 20 at once, then one every 100ms; at most 620 in any 60s"
/// );
/// # Ok::<(), tidegate_core::RuleError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Rule {
    kind: RuleKind,
}

/// What the rule says, in numbers that are known to be in range.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum RuleKind {
    TokenBucket {
        rate: Rate,
        burst: u64,
        starts_empty: bool,
    },
    Fixed {
        rate: Rate,
        from: WindowStart,
    },
    /// No zone is UTC.
    Calendar {
        count: u64,
        unit: CalendarUnit,
        zone: Option<String>,
    },
    SlidingLog {
        rate: Rate,
    },
    Sliding {
        rate: Rate,
    },
    Leaky {
        rate: Rate,
        capacity: u64,
    },
    Queue {
        rate: Rate,
        capacity: u64,
        wait: Option<Span>,
    },
    /// No burst is one second's worth, which need not be whole.
    Smooth {
        rate: Rate,
        burst: Option<u64>,
    },
    Warmup {
        rate: Rate,
        warmup: Span,
        cold: u64,
    },
    Concurrency {
        max: u64,
        wait: Option<Span>,
        lease: Option<Span>,
    },
    /// Every request is denied: a rate of 0.
    Nothing,
    Nginx {
        count: u64,
        per_second: bool,
        burst: u64,
        delay: NginxDelay,
    },
}

/// Where a fixed window's windows begin.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum WindowStart {
    Epoch,
    FirstRequest,
    Anchor(Anchor),
}

/// WindowStart which request on nginx makes them wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum NginxDelay {
    After(u64),
    Never,
}

impl NginxDelay {
    pub(crate) fn threshold(self) -> Option<u64> {
        match self {
            Self::After(requests) => Some(requests),
            Self::Never => None,
        }
    }
}

impl Rule {
    /// The sentence a user reads: what is admitted at once, how it goes on, and the most there can be.
    ///
    /// ```
    /// # use tidegate_core::Rule;
    /// let rule: Rule = "1/day calendar in Asia/Shanghai".parse()?;
    /// assert_eq!(
    ///     rule.explain(),
    ///     "admits 1 in each calendar day of Asia/Shanghai; up to 2 around midnight"
    /// );
    /// # Ok::<(), tidegate_core::RuleError>(())
    /// ```
    pub fn explain(&self) -> String {
        explain::explain(&self.kind)
    }

    /// Whether it denies every request that costs anything: `0/s`.
    ///
    /// ```
    /// # use tidegate_core::Rule;
    /// assert!("0/h".parse::<Rule>()?.admits_nothing());
    /// assert!(!"1/h".parse::<Rule>()?.admits_nothing());
    /// # Ok::<(), tidegate_core::RuleError>(())
    /// ```
    pub fn admits_nothing(&self) -> bool {
        matches!(self.kind, RuleKind::Nothing)
    }

    /// How much it admits in the long run, and in how long, as the rule says it. `None` where nothing is
    /// admitted per time, or the time is not always as long: `concurrency`, calendar months and years.
    ///
    /// ```
    /// # use tidegate_core::{Rule, Span};
    /// let rate = |text: &str| text.parse::<Rule>().map(|rule| rule.rate());
    /// assert_eq!(rate("50/10s burst 5")?, Some((50, Span::from_secs(10))));
    /// assert_eq!(rate("10r/m burst=5")?, Some((10, Span::from_secs(60))));
    /// assert_eq!(rate("0/h")?, Some((0, Span::from_secs(1))), "it admits nothing, in no time");
    /// assert_eq!(rate("concurrency 5")?, None);
    /// # Ok::<(), tidegate_core::RuleError>(())
    /// ```
    pub fn rate(&self) -> Option<(u64, Span)> {
        match &self.kind {
            RuleKind::TokenBucket { rate, .. }
            | RuleKind::Fixed { rate, .. }
            | RuleKind::SlidingLog { rate }
            | RuleKind::Sliding { rate }
            | RuleKind::Leaky { rate, .. }
            | RuleKind::Queue { rate, .. }
            | RuleKind::Smooth { rate, .. }
            | RuleKind::Warmup { rate, .. } => Some((rate.count, rate.period)),
            RuleKind::Calendar { count, unit, .. } => Some((*count, unit.usual_length()?)),
            RuleKind::Nginx { count, per_second, .. } => {
                Some((*count, Span::from_secs(if *per_second { 1 } else { 60 })))
            }
            RuleKind::Nothing => Some((0, Span::from_secs(1))),
            RuleKind::Concurrency { .. } => None,
        }
    }

    pub(crate) fn kind(&self) -> &RuleKind {
        &self.kind
    }

    pub(crate) fn unknown_zone(&self) -> RuleError {
        let text = self.to_string();
        let zone = match &self.kind {
            RuleKind::Calendar { zone: Some(zone), .. } => zone.as_str(),
            _ => "UTC",
        };
        let start = text.len() - zone.len();
        RuleError::new(&text, start..text.len(), RuleErrorKind::UnknownZone)
    }
}

impl FromStr for Rule {
    type Err = RuleError;

    fn from_str(text: &str) -> Result<Self, RuleError> {
        parse::parse(text).map(|kind| Self { kind })
    }
}

/// A time as rules write it: a whole number and its unit, at least a microsecond.
///
/// ```
/// use tidegate_core::Span;
///
/// assert_eq!("500ms".parse(), Ok(Span::from_millis(500)));
/// let error = "5m".parse::<Span>().unwrap_err();
/// assert_eq!(error.to_string(), "unknown unit `m`: did you mean `min`?\n  5m\n   ^");
/// ```
impl FromStr for Span {
    type Err = RuleError;

    fn from_str(text: &str) -> Result<Self, RuleError> {
        parse::number::whole_span(text)
    }
}

//! The rule language: one text for code, the attribute, the configuration, the command line and the wire.
//!
//! Always   Every [`ParsedRule`] is valid: its numbers are in range and consistent, so no later code checks them.
//!          It prints as canonical text that parses to the same rule.

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

/// A valid rule: what a limit allows, parsed from its text. The names of time zones are not looked up yet; that is part of
/// making a [`Limit`](crate::Limit).
///
/// ```
/// use tidegate_core::ParsedRule;
///
/// let rule: ParsedRule = "10/1s  burst 20".parse()?;
/// assert_eq!(rule.to_string(), "10/s burst 20");
/// assert_eq!(
///     rule.explain(),
///     "admits 20 at once, then one every 100ms; at most 620 in any 60s"
/// );
/// # Ok::<(), tidegate_core::RuleError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ParsedRule {
    kind: RuleKind,
}

/// The algorithm of a rule and its parameters, all in range.
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
    /// Without a zone, UTC.
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
    /// Without a burst, one second's worth, which need not be a whole number.
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
    /// A rate of 0: every request is denied.
    Nothing,
    Nginx {
        count: u64,
        per_second: bool,
        burst: u64,
        delay: NginxDelay,
    },
}

/// The start of fixed windows.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum WindowStart {
    Epoch,
    FirstRequest,
    Anchor(Anchor),
}

/// The request from which nginx delays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum NginxDelay {
    After(u64),
    Never,
}

impl NginxDelay {
    /// Returns the number of requests that pass without delay; `None` if none is ever delayed.
    pub(crate) fn threshold(self) -> Option<u64> {
        match self {
            Self::After(requests) => Some(requests),
            Self::Never => None,
        }
    }
}

impl ParsedRule {
    /// Returns a sentence about the rule: what is admitted at once, then at which rate, and the tested upper bound.
    pub fn explain(&self) -> String {
        explain::explain(&self.kind)
    }

    /// Returns whether every request with a cost is denied: a rate of 0.
    pub fn admits_nothing(&self) -> bool {
        matches!(self.kind, RuleKind::Nothing)
    }

    /// Returns the long-term rate as a count and its period, as written in the rule. `None` for `concurrency`, which has no
    /// rate, and for calendar months and years, whose length varies.
    ///
    /// ```
    /// # use tidegate_core::{ParsedRule, Span};
    /// let rate = |text: &str| text.parse::<ParsedRule>().map(|rule| rule.rate());
    /// assert_eq!(rate("50/10s burst 5")?, Some((50, Span::from_secs(10))));
    /// assert_eq!(rate("10r/m burst=5")?, Some((10, Span::from_secs(60))));
    /// assert_eq!(rate("0/h")?, Some((0, Span::from_secs(1))), "nothing is admitted");
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

impl FromStr for ParsedRule {
    type Err = RuleError;

    fn from_str(text: &str) -> Result<Self, RuleError> {
        parse::parse(text).map(|kind| Self { kind })
    }
}

/// Parses a time as in rules: a whole number and its unit, at least a microsecond.
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

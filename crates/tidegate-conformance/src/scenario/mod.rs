//! Scenarios: the examples of `spec/`, parsed from its pages and run against an implementation.
//!
//! `spec/LANGUAGE.md` describes the language. [`read_page`] parses a page, and [`run`] runs a scenario.
//!
//! Always   Only the numbers that a scenario writes are checked. A request without a verdict is an error, and so is a
//!          scenario without requests. A line that cannot be parsed is an error.

mod error;
mod page;
mod parse;
mod run;
mod time;

pub use error::ScenarioError;
pub use page::read_page;
pub use run::{Breach, ScenarioResult, run};

use crate::implementation::{PartialVerdict, TakeRequest, round};
use std::fmt;
use tidegate_core::{Retry, Span, Timestamp, Verdict, Window};

/// A scenario: limits, requests with their times, and the expected decisions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scenario {
    /// The page.
    pub page: String,
    /// The line of the page on which it begins.
    pub line: usize,
    /// The time at which the limits start: offset zero.
    pub start: Timestamp,
    /// The rules of the limits, in the order of the page.
    pub rules: Vec<String>,
    /// The steps in the order of the page, which need not be the order of time.
    pub steps: Vec<Step>,
}

/// One line of a scenario: an action, performed once or several times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The line of the page.
    pub line: usize,
    /// The text of the line, for messages.
    pub text: String,
    /// The time of the first repetition.
    pub at: Timestamp,
    /// The number of repetitions.
    pub times: usize,
    /// The time between two repetitions.
    pub every: Span,
    /// The key.
    pub key: String,
    /// The index of the limit.
    pub limit: usize,
    /// The action.
    pub action: Action,
}

/// The action of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// A request under one limit.
    Take(TakeRequest, Expect),
    /// A request of this cost under all limits at once.
    TakeAll(u64, Expect),
    /// A peek: the decision of a request of this cost, without charging.
    Peek(u64, Expect),
    /// A refund of this cost.
    Refund(u64),
    /// The release of a request of this cost.
    Release(u64),
    /// A reset of the key.
    Reset,
    /// A change of the limit's rule.
    Change(String),
    /// The window that is expected; `None` if the rule has none.
    Window(Option<Window>),
}

/// The part of the expected decision that the scenario writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expect {
    /// The verdict of each repetition, or one for all of them.
    pub verdicts: Vec<Expected>,
    /// The limit. This and the other numbers are those of the last repetition.
    pub limit: Option<u64>,
    /// The cost that would be admitted afterwards.
    pub remaining: Option<u64>,
    /// The time until the key has recovered completely.
    pub reset_after: Option<Span>,
}

/// A verdict as a scenario writes it, which may omit times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// Allowed.
    Allow,
    /// Admitted after a wait, of this time if it is written.
    Wait(Option<Span>),
    /// Denied, with this hint for a retry if it is written.
    Deny(Option<Retry>),
}

impl Expected {
    /// Rounds its times up to a multiple of `precision`.
    #[must_use]
    pub fn rounded(self, precision: Span) -> Self {
        match self {
            Self::Wait(Some(wait)) => Self::Wait(Some(round(wait, precision))),
            Self::Deny(Some(Retry::After(retry))) => {
                Self::Deny(Some(Retry::After(round(retry, precision))))
            }
            other => other,
        }
    }

    /// Returns whether the reported part of the verdict is as expected.
    pub fn is_met_by(self, verdict: PartialVerdict) -> bool {
        let verdict = match (self, verdict) {
            (_, PartialVerdict::Full(verdict)) => verdict,
            (Self::Allow | Self::Wait(_), verdict) => return verdict != PartialVerdict::Denies,
            (Self::Deny(_), verdict) => return verdict != PartialVerdict::Passes,
        };
        match (self, verdict) {
            (Self::Allow, Verdict::Allow)
            | (Self::Wait(None), Verdict::Wait(_))
            | (Self::Deny(None), Verdict::Deny(_)) => true,
            (Self::Wait(Some(expected)), Verdict::Wait(wait)) => wait == expected,
            (Self::Deny(Some(expected)), Verdict::Deny(retry)) => retry == expected,
            _ => false,
        }
    }
}

impl fmt::Display for Expected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Allow => f.write_str("allow"),
            Self::Wait(None) => f.write_str("wait"),
            Self::Wait(Some(span)) => write!(f, "wait {span}"),
            Self::Deny(None) => f.write_str("deny"),
            Self::Deny(Some(Retry::After(span))) => write!(f, "deny retry {span}"),
            Self::Deny(Some(Retry::OnRelease)) => f.write_str("deny release"),
            Self::Deny(Some(Retry::Never)) => f.write_str("deny never"),
        }
    }
}

impl fmt::Display for PartialVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full(verdict) => Expected::from(*verdict).fmt(f),
            Self::Passes => f.write_str("one that passes"),
            Self::Denies => f.write_str("deny"),
            Self::Unknown => f.write_str("none"),
        }
    }
}

impl From<Verdict> for Expected {
    fn from(verdict: Verdict) -> Self {
        match verdict {
            Verdict::Allow => Self::Allow,
            Verdict::Wait(span) => Self::Wait(Some(span)),
            Verdict::Deny(retry) => Self::Deny(Some(retry)),
        }
    }
}

//! Scenarios: the examples of `spec/`, read from its pages and run against an implementation.
//!
//! The language is described in `spec/LANGUAGE.md`. A page is read by [`read_page`], a scenario is
//! run by [`run`].
//!
//! Always   Only what is written is checked; but a question without a verdict is an error, and so is
//!          a scenario that asks nothing. Nothing that cannot be read is skipped.

mod error;
mod page;
mod parse;
mod run;
mod time;

pub use error::ScenarioError;
pub use page::read_page;
pub use run::{Breach, Outcome, run};

use crate::implementation::{Ask, Told};
use std::fmt;
use tidegate_core::{Retry, Span, Timestamp, Verdict, Window};

/// A story about limits: what is asked when, and what must be answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scenario {
    /// The page it stands on.
    pub page: String,
    /// The line of that page on which it begins.
    pub line: usize,
    /// When the limits are born: offset zero.
    pub start: Timestamp,
    /// The limits' rules, in the order they were named.
    pub rules: Vec<String>,
    /// What happens, in the order it is told, which need not be the order of time.
    pub steps: Vec<Step>,
}

/// One line of a scenario: something happens, once or several times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The line of the page.
    pub line: usize,
    /// The line's text, to be shown when it is broken.
    pub text: String,
    /// When it happens first.
    pub at: Timestamp,
    /// How often it happens.
    pub times: usize,
    /// The time between two of them.
    pub every: Span,
    /// Who asks.
    pub key: String,
    /// Which limit is asked, by its index.
    pub limit: usize,
    /// What happens.
    pub action: Action,
}

/// What happens in a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// A request under one limit.
    Take(Ask, Expect),
    /// A request of this cost under all limits at once.
    TakeAll(u64, Expect),
    /// A look at what a request of this cost would be told.
    Peek(u64, Expect),
    /// This much is given back.
    Refund(u64),
    /// A request of this cost ends.
    Release(u64),
    /// The key is forgotten.
    Reset,
    /// The limit gets another rule.
    Change(String),
    /// Which window is it? `None` where the rule has none.
    Window(Option<Window>),
}

/// What the answer must be, as far as the scenario says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expect {
    /// The verdict of each repetition, or one for all of them.
    pub verdicts: Vec<Expected>,
    /// The rest is about the last repetition.
    pub limit: Option<u64>,
    /// How much more may pass.
    pub remaining: Option<u64>,
    /// How long until the key is as good as new.
    pub reset_after: Option<Span>,
}

/// A verdict as a scenario writes it, which may leave open how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// It passes.
    Allow,
    /// It passes later, after this long where that is said.
    Wait(Option<Span>),
    /// It does not pass, with this way out where that is said.
    Deny(Option<Retry>),
}

impl Expected {
    /// The same, as somebody says it who rounds times up to this.
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

    /// Whether the verdict is the expected one, as far as it is told.
    pub fn is_met_by(self, told: Told) -> bool {
        let verdict = match (self, told) {
            (_, Told::Whole(verdict)) => verdict,
            (Self::Allow | Self::Wait(_), told) => return told != Told::Denies,
            (Self::Deny(_), told) => return told != Told::Passes,
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

/// Up to a multiple of this.
pub(crate) fn round(span: Span, precision: Span) -> Span {
    let precision = precision.as_micros();
    Span::from_micros(span.as_micros().div_ceil(precision).saturating_mul(precision))
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

impl fmt::Display for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Whole(verdict) => Expected::from(*verdict).fmt(f),
            Self::Passes => f.write_str("one that passes"),
            Self::Denies => f.write_str("deny"),
            Self::Nothing => f.write_str("none"),
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

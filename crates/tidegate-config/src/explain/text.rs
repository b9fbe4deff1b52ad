//! An explanation as text.

use super::{DescriptorExplanation, Explanation, KeyState, LimitExplanation, VerdictKind};
use crate::config::{LimitConfig, OnError};
use crate::matching::{KeyFault, Look, NoValue};
use std::fmt::{self, Display};
use tidegate::Span;

/// Returns why a limit counts a request, or why it does not.
pub(super) fn why(limit: &LimitConfig, look: &Look<'_>) -> String {
    match look {
        Look::Counts { contradictory: None, .. } => why_counted(limit),
        Look::Counts { contradictory: Some(fault), .. } => {
            format!("{}; {fault}, so it is counted on the shared key", why_counted(limit))
        }
        Look::Off => "its mode is off".to_owned(),
        Look::ForEnvoy => "it counts only requests of Envoy".to_owned(),
        Look::InFlight => {
            "it counts requests in flight, through /v1/acquire and /v1/release".to_owned()
        }
        Look::Unless(condition) => format!("it counts only if {condition}"),
        Look::Keyless(fault) => format!("{fault}, and {}passes uncounted", subject(fault)),
        Look::Refuses(fault) => format!("{fault}, and {}is refused", subject(fault)),
    }
}

/// Returns that the store does not answer, and what decides instead.
pub(super) fn without_store(on_error: OnError, error: &dyn Display) -> String {
    let instead = match on_error {
        OnError::Local => "on_error = \"local\": this server decides with its share of the limit",
        OnError::Allow => "on_error = \"allow\": requests pass",
        OnError::Deny => "on_error = \"deny\": requests are denied",
    };
    format!("the store does not answer ({error}); {instead}")
}

/// Returns the subject of the clause that follows a fault, unless the fault names the request itself.
fn subject(fault: &KeyFault<'_>) -> &'static str {
    if fault.why == NoValue::Absent { "" } else { "the request " }
}

fn why_counted(limit: &LimitConfig) -> String {
    if limit.when.is_empty() {
        return "it counts every request".to_owned();
    }
    let conditions: Vec<String> = limit.when.iter().map(ToString::to_string).collect();
    conditions.join(", ")
}

impl Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(path) = &self.path {
            writeln!(f, "  path, as limits compare it: {path}")?;
        }
        for limit in &self.limits {
            let is_decisive = self.decided_by.as_deref() == Some(&limit.limit);
            writeln!(f, "{} {limit}", if is_decisive { '>' } else { ' ' })?;
        }
        for descriptor in &self.descriptors {
            let limit = descriptor.limit.as_ref().map(|limit| &limit.limit);
            let is_decisive = limit.is_some() && self.decided_by.as_ref() == limit;
            writeln!(f, "{} {descriptor}", if is_decisive { '>' } else { ' ' })?;
        }
        match &self.decided_by {
            Some(limit) => write!(f, "{}: decided by {limit}", self.verdict)?,
            None => write!(f, "{}: no enforced limit counts this request", self.verdict)?,
        }
        match &self.hint {
            Some(hint) => write!(f, "\nhint: {hint}"),
            None => Ok(()),
        }
    }
}

impl Display for LimitExplanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = if self.counts { "counts it" } else { "does not count it" };
        write!(f, "{} ({}, {}) {counts}: {}", self.limit, self.rule, self.mode, self.why)?;
        if let Some(key) = &self.key {
            write!(f, "\n      key \"{key}\"")?;
        }
        if let Some(now) = &self.now {
            write!(f, ", {now}")?;
        }
        match &self.without_store {
            Some(why) => write!(f, "\n      {why}"),
            None => Ok(()),
        }
    }
}

impl Display for DescriptorExplanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.descriptor, self.why)?;
        match &self.limit {
            Some(limit) => write!(f, "\n    {limit}"),
            None => Ok(()),
        }
    }
}

impl Display for KeyState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "now {}", self.verdict)?;
        if self.is_shadowed {
            f.write_str(" (in shadow mode: the request passes)")?;
        }
        match (self.remaining, self.limit) {
            (Some(remaining), Some(limit)) => write!(f, ", {remaining} of {limit} remaining")?,
            (Some(remaining), None) => write!(f, ", {remaining} remaining")?,
            (None, _) => f.write_str(", remaining unknown")?,
        }
        if let Some(wait_ms) = self.retry_after_ms {
            write!(f, ", retry after {}", span(wait_ms))?;
        }
        match self.reset_after_ms {
            Some(ms) => write!(f, ", reset after {}", span(ms)),
            None => f.write_str(", reset when all permits are released"),
        }
    }
}

fn span(ms: u64) -> Span {
    Span::from_millis(ms)
}

impl Display for VerdictKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Allow => "allow",
            Self::Wait => "wait",
            Self::Deny => "deny",
        })
    }
}

//! An explanation as text.

use super::descriptor::DescriptorExplanation;
use super::explanation::Explanation;
use super::limit::{KeyState, LimitExplanation, VerdictKind};
use std::fmt::{self, Display};
use tidegate::Span;

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

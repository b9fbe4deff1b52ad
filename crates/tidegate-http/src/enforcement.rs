//! Whether a limit is enforced, and what follows from it: what a client sees of the limit, and when the limit is charged.
//!
//! Invariant A limit in shadow mode denies no request, and clients see none of its numbers: a polite client would slow down
//!           by them.
//! Invariant A limit in shadow mode is charged as if it were enforced: not when another limit denies the request.

use crate::LimitStatus;
use tidegate::{Decision, Rule, Verdict};

/// Whether a limit is enforced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Requests over the limit are denied.
    #[default]
    Enforce,
    /// The limit decides and counts, and every request passes.
    Shadow,
    /// The limit does nothing.
    Off,
}

impl Mode {
    /// Returns what becomes of a request for which the limit's rule made this decision.
    pub const fn apply(self, decision: Decision) -> EffectiveDecision {
        match self {
            Self::Enforce => EffectiveDecision::enforced(decision),
            Self::Shadow | Self::Off => EffectiveDecision::shadowed(decision),
        }
    }

    /// Returns whether clients see the limit's numbers in headers and bodies.
    pub const fn is_visible(self) -> bool {
        matches!(self, Self::Enforce)
    }

    /// Returns what headers and bodies report of the limit, or `None` if clients do not see it.
    pub fn status<'a>(
        self,
        name: &'a str,
        rule: &'a Rule,
        decision: Decision,
    ) -> Option<LimitStatus<'a>> {
        self.is_visible().then_some(LimitStatus { name, rule, decision })
    }
}

/// A decision after the limit's [`Mode`] has been applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EffectiveDecision {
    /// What the client gets. In shadow mode it is never a denial and never a wait.
    pub decision: Decision,
    /// Whether the request passes only because the limit is in shadow mode.
    pub is_shadowed: bool,
}

impl EffectiveDecision {
    /// The decision where no limit applies.
    pub const UNLIMITED: Self = Self { decision: Decision::UNLIMITED, is_shadowed: false };

    /// The decision of a limit that is enforced.
    pub const fn enforced(decision: Decision) -> Self {
        Self { decision, is_shadowed: false }
    }

    /// The decision of a limit in shadow mode: the same numbers, and the request passes.
    pub const fn shadowed(mut decision: Decision) -> Self {
        if decision.is_allow() {
            return Self::enforced(decision);
        }
        decision.verdict = Verdict::Allow;
        Self { decision, is_shadowed: true }
    }

    /// Returns whether the request passes, now or after a wait.
    pub const fn passes(&self) -> bool {
        !self.decision.is_deny()
    }
}

/// What to do with a limit in shadow mode, once all enforced limits have decided together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShadowAction {
    /// Decide, and charge the key unless the decision is a denial.
    Check,
    /// Only read the state. If the limit were enforced, the denial by another limit would leave it uncharged, so its counts
    /// stay true.
    Peek,
}

impl ShadowAction {
    /// Returns what to do after this joint decision of the enforced limits.
    pub const fn after(enforced: &Decision) -> Self {
        if enforced.is_deny() { Self::Peek } else { Self::Check }
    }
}

//! The decision on several requests that are charged together or not at all.

use tidegate_core::{Decision, Retry, Verdict};

/// The decision on several requests together; made by [`check_all`](crate::check_all).
///
/// ```
/// use tidegate::{Gate, Limiter, ManualClock, check_all};
///
/// let clock = ManualClock::new();
/// let user = Limiter::with_clock("10/s".parse()?, clock.clone());
/// let site = Gate::with_clock("15/s".parse()?, clock.clone());
///
/// let joint = check_all([user.request("alice").cost(10), site.request()]);
/// assert!(joint.decision.is_allow());
/// assert_eq!(joint.each[1].remaining, 14);
/// # Ok::<(), tidegate::RuleError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "the requests may have been denied: look at `decision`"]
#[non_exhaustive]
pub struct Joint {
    /// The joint decision: allowed if all requests are, with the longest wait and the smallest remaining.
    pub decision: Decision,
    /// The decision on each request, in their order. If one is denied, nothing is charged, and the others show their
    /// uncharged state.
    pub each: Vec<Decision>,
}

impl Joint {
    /// Combines decisions: the strictest verdict, the smallest remaining, the longest times. For stores that decide several
    /// requests as one.
    pub fn of(each: Vec<Decision>) -> Self {
        Self { decision: combine(&each), each }
    }
}

/// The strictest verdict, the least remaining, the longest time.
fn combine(decisions: &[Decision]) -> Decision {
    let mut all = Decision::UNLIMITED;
    for decision in decisions {
        all.verdict = stricter(all.verdict, decision.verdict);
        all.limit = all.limit.min(decision.limit);
        all.remaining = all.remaining.min(decision.remaining);
        all.reset_after = all.reset_after.max(decision.reset_after);
    }
    all
}

fn stricter(a: Verdict, b: Verdict) -> Verdict {
    match (a, b) {
        (Verdict::Deny(a), Verdict::Deny(b)) => Verdict::Deny(longer(a, b)),
        (deny @ Verdict::Deny(_), _) | (_, deny @ Verdict::Deny(_)) => deny,
        (Verdict::Wait(a), Verdict::Wait(b)) => Verdict::Wait(a.max(b)),
        (wait @ Verdict::Wait(_), _) | (_, wait @ Verdict::Wait(_)) => wait,
        (Verdict::Allow, Verdict::Allow) => Verdict::Allow,
    }
}

fn longer(a: Retry, b: Retry) -> Retry {
    match (a, b) {
        (Retry::Never, _) | (_, Retry::Never) => Retry::Never,
        (Retry::OnRelease, _) | (_, Retry::OnRelease) => Retry::OnRelease,
        (Retry::After(a), Retry::After(b)) => Retry::After(a.max(b)),
    }
}

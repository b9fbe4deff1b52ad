//! A limit's numbers, as header fields report them.

use tidegate::{Decision, Retry, Rule, Span, Verdict};

/// The largest integer that a structured field can hold (RFC 9651).
pub const FIELD_INTEGER_MAX: u64 = 999_999_999_999_999;

/// A limit and its decision about a request: what header fields and problem bodies report to the client.
#[derive(Clone, Copy, Debug)]
pub struct LimitStatus<'a> {
    /// The limit's name.
    pub name: &'a str,
    /// The limit's rule. Two statuses with the same reference are of the same limit.
    pub rule: &'a Rule,
    /// The limit's decision.
    pub decision: Decision,
}

impl LimitStatus<'_> {
    /// Returns the quota and its window in seconds.
    ///
    /// If the rule's period is neither a whole number of seconds nor a whole fraction of one, there is no window, and the
    /// quota is what a client can have at once.
    pub(crate) fn quota(&self) -> (u64, Option<u64>) {
        const SECOND_US: u64 = 1_000_000;
        let (count, period) = match self.rule.rate() {
            Some((count, period)) => (count, period.as_micros()),
            None => return (self.capacity(), None),
        };
        if period.is_multiple_of(SECOND_US) {
            (count.min(FIELD_INTEGER_MAX), Some(period / SECOND_US))
        } else if SECOND_US.is_multiple_of(period) {
            (count.saturating_mul(SECOND_US / period).min(FIELD_INTEGER_MAX), Some(1))
        } else {
            (self.capacity(), None)
        }
    }

    /// Returns the largest cost that can be admitted at once.
    fn capacity(&self) -> u64 {
        let of_rule = || self.rule.limit().without_state(Verdict::Allow).limit;
        self.decision.known_limit().unwrap_or_else(of_rule).min(FIELD_INTEGER_MAX)
    }

    pub(crate) fn remaining(&self) -> u64 {
        self.decision.remaining.min(FIELD_INTEGER_MAX)
    }

    /// Returns for how many seconds the client cannot count on more than [`remaining`](Self::remaining).
    ///
    /// After a denial it is the time until a retry, so that it never ends after `Retry-After`.
    pub(crate) fn window_secs(&self) -> Option<u64> {
        let span = match self.decision.verdict {
            Verdict::Deny(Retry::After(span)) => span,
            // It is unknown how long the requests in flight take.
            Verdict::Deny(Retry::OnRelease) => return None,
            Verdict::Allow | Verdict::Wait(_) | Verdict::Deny(Retry::Never) => {
                reset_after(&self.decision)?
            }
        };
        Some(span.as_secs_ceil()).filter(|seconds| *seconds <= FIELD_INTEGER_MAX)
    }

    /// Returns whether there are numbers to report. There are none for a limit that is off, and for one whose store does
    /// not answer.
    pub(crate) fn is_known(&self) -> bool {
        self.decision.known_remaining().is_some()
    }
}

/// Returns how long until the whole limit is available again, or `None` if that is unknown or never happens.
///
/// A rule that admits nothing is formally reset at any time. Reporting 0 would make clients retry at once.
pub fn reset_after(decision: &Decision) -> Option<Span> {
    if decision.limit == 0 { None } else { decision.known_reset_after() }
}

/// When to retry after a denial that ends with a release, whose time is unknown.
pub const RETRY_ON_RELEASE: Span = Span::from_secs(1);

/// Returns the value of `Retry-After` in seconds: rounded up and never 0. `None` if nothing was denied, and if a retry never
/// succeeds.
pub fn retry_after_secs(decision: &Decision) -> Option<u64> {
    match decision.verdict {
        Verdict::Deny(Retry::After(span)) => Some(span.as_secs_ceil().max(1)),
        Verdict::Deny(Retry::OnRelease) => Some(RETRY_ON_RELEASE.as_secs_ceil()),
        Verdict::Deny(Retry::Never) | Verdict::Allow | Verdict::Wait(_) => None,
    }
}

//! Decisions: allow, wait or deny, and the numbers that go with them.
//!
//! Always   A denial is a value, not an error, and says what the caller can do about it.
//! Rounding Waits are rounded up and `remaining` down, so a decision never promises more than the limit gives.
//! Unknown  The largest number stands for an unknown one. Code that shows a decision reads it through `known_limit`,
//!          `known_remaining` and `known_reset_after`, which return `None` then. A denial has 0 remaining.

use crate::time::Span;
use core::fmt;

/// What a limit decided about one request.
///
/// A request is admitted if the verdict is [`Allow`](Verdict::Allow) or [`Wait`](Verdict::Wait).
/// [`is_admitted`](Self::is_admitted) covers both; [`into_result`](Self::into_result) also returns how long to wait, and
/// turns a denial into an error for `?`.
///
/// ```
/// use tidegate_core::{Limit, Timestamp, Verdict};
///
/// let limit: Limit = "2/s".parse()?;
/// let now = Timestamp::from_micros(1_000_000);
/// let mut state = limit.fresh(now);
///
/// let decision = limit.decide(&mut state, now, 1);
/// assert_eq!(decision.verdict, Verdict::Allow);
/// assert_eq!(decision.remaining, 1);
/// # Ok::<(), tidegate_core::RuleError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[must_use = "a decision that is ignored limits nothing"]
pub struct Decision {
    /// Whether the request may pass.
    pub verdict: Verdict,
    /// The largest cost that is ever admitted at one instant; [`u64::MAX`] where that is
    /// [not known](Self::known_limit).
    pub limit: u64,
    /// The cost that would be admitted now, after this decision; [`u64::MAX`] where that is
    /// [not known](Self::known_remaining).
    pub remaining: u64,
    /// The time until the key has recovered completely, if no more requests come; [`Span::MAX`] where that is
    /// [not known](Self::known_reset_after).
    pub reset_after: Span,
}

/// Whether a request may pass now, later, or not at all.
///
/// ```
/// use tidegate_core::{Limit, Retry, Span, Timestamp, Verdict};
///
/// let limit: Limit = "2/s".parse()?;
/// let mut state = limit.fresh(Timestamp::EPOCH);
/// assert!(limit.decide(&mut state, Timestamp::EPOCH, 2).is_allow());
///
/// let denied = limit.decide(&mut state, Timestamp::EPOCH, 1);
/// assert_eq!(denied.verdict, Verdict::Deny(Retry::After(Span::from_millis(500))));
/// # Ok::<(), tidegate_core::RuleError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a verdict that is ignored limits nothing"]
pub enum Verdict {
    /// The request may pass now. It has been charged.
    Allow,
    /// The request may pass after this time. It has been charged and has its turn: no later request overtakes it.
    Wait(Span),
    /// The request may not pass. Nothing has been charged.
    Deny(Retry),
}

/// What the caller of a denied request can do.
///
/// ```
/// use tidegate_core::{Limit, Retry, Timestamp, Verdict};
///
/// let limit: Limit = "2/s".parse()?;
/// let mut state = limit.fresh(Timestamp::EPOCH);
/// let denied = limit.decide(&mut state, Timestamp::EPOCH, 3);
/// assert_eq!(denied.verdict, Verdict::Deny(Retry::Never), "the bucket holds at most 2");
/// # Ok::<(), tidegate_core::RuleError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// Retry after this time. If no other request is charged meanwhile, the retry is admitted; one microsecond earlier
    /// it would not be.
    After(Span),
    /// Retry when another request has released its permit. When that will be is unknown.
    OnRelease,
    /// Do not retry: the cost is more than the limit ever admits at once.
    Never,
}

impl Decision {
    /// The decision where no limit applies.
    pub const UNLIMITED: Self = Self {
        verdict: Verdict::Allow,
        limit: u64::MAX,
        remaining: u64::MAX,
        reset_after: Span::ZERO,
    };

    /// Returns a decision that was reached without the key's state, such as that of a policy for when the store does not
    /// answer. None of its numbers is known, except that a denial has 0 remaining.
    pub const fn without_state(verdict: Verdict) -> Self {
        let remaining = if matches!(verdict, Verdict::Deny(_)) { 0 } else { u64::MAX };
        Self { verdict, limit: u64::MAX, remaining, reset_after: Span::MAX }
    }

    /// Returns the largest cost that is ever admitted at one instant; `None` where no limit applies, or where the store
    /// did not answer.
    pub const fn known_limit(&self) -> Option<u64> {
        known(self.limit)
    }

    /// Returns the cost that would be admitted now; `None` where no limit applies, or where the store did not answer. It
    /// is always known for a denial.
    pub const fn known_remaining(&self) -> Option<u64> {
        known(self.remaining)
    }

    /// Returns the time until the key has recovered completely; `None` where that depends on a release, as under a
    /// concurrency limit without leases, or where the store did not answer.
    pub const fn known_reset_after(&self) -> Option<Span> {
        match known(self.reset_after.as_micros()) {
            Some(us) => Some(Span::from_micros(us)),
            None => None,
        }
    }

    /// Returns whether the request may pass, now or after a wait. It has been charged then.
    ///
    /// Only rules that delay requests themselves (`queue`, `smooth`, `warmup` and nginx's) admit with a wait:
    ///
    /// ```
    /// # use tidegate_core::{Limit, Span, Timestamp};
    /// let limit: Limit = "10/s queue".parse()?;
    /// let mut state = limit.fresh(Timestamp::EPOCH);
    /// assert!(limit.decide(&mut state, Timestamp::EPOCH, 1).is_allow());
    ///
    /// let second = limit.decide(&mut state, Timestamp::EPOCH, 1);
    /// assert!(second.is_admitted() && !second.is_allow());
    /// assert_eq!(second.into_result(), Ok(Span::from_millis(100)));
    /// # Ok::<(), tidegate_core::RuleError>(())
    /// ```
    #[inline]
    pub const fn is_admitted(&self) -> bool {
        !self.is_deny()
    }

    /// Returns whether the verdict is [`Verdict::Allow`]: the request may pass now.
    #[inline]
    pub const fn is_allow(&self) -> bool {
        matches!(self.verdict, Verdict::Allow)
    }

    /// Returns whether the verdict is [`Verdict::Wait`]: the request may pass after a wait.
    #[inline]
    pub const fn is_wait(&self) -> bool {
        matches!(self.verdict, Verdict::Wait(_))
    }

    /// Returns whether the verdict is [`Verdict::Deny`]: the request may not pass.
    #[inline]
    pub const fn is_deny(&self) -> bool {
        matches!(self.verdict, Verdict::Deny(_))
    }

    /// Returns how long the caller of a denied request should wait before it retries. `None` if the request was admitted,
    /// or if waiting does not help.
    #[inline]
    pub const fn retry_after(&self) -> Option<Span> {
        match self.verdict {
            Verdict::Deny(Retry::After(span)) => Some(span),
            _ => None,
        }
    }

    /// Returns how long an admitted request has to wait before it passes (usually [`Span::ZERO`]), or the denial as an
    /// error.
    ///
    /// # Errors
    /// The request was denied.
    ///
    /// ```
    /// # use tidegate_core::{Limit, Span, Timestamp};
    /// # let limit: Limit = "2/s".parse()?;
    /// # let mut state = limit.fresh(Timestamp::EPOCH);
    /// assert_eq!(limit.decide(&mut state, Timestamp::EPOCH, 2).into_result(), Ok(Span::ZERO));
    /// let denied = limit.decide(&mut state, Timestamp::EPOCH, 1).into_result().unwrap_err();
    /// assert_eq!(denied.to_string(), "denied: retry after 500ms");
    /// # Ok::<(), tidegate_core::RuleError>(())
    /// ```
    #[inline]
    pub const fn into_result(self) -> Result<Span, Denied> {
        match self.verdict {
            Verdict::Allow => Ok(Span::ZERO),
            Verdict::Wait(span) => Ok(span),
            Verdict::Deny(_) => Err(Denied { decision: self }),
        }
    }

    /// Returns a denial with the numbers of this decision: for stores and limiters with a reason of their own to deny,
    /// such as a wait that would be too long. If `remaining` is not known, the denial has 0 remaining.
    #[inline]
    pub const fn deny(self, retry: Retry) -> Denied {
        let remaining = if self.known_remaining().is_none() { 0 } else { self.remaining };
        Denied { decision: Self { verdict: Verdict::Deny(retry), remaining, ..self } }
    }
}

/// Returns `None` for the largest number, which stands for an unknown one.
const fn known(number: u64) -> Option<u64> {
    if number == u64::MAX { None } else { Some(number) }
}

/// A denial as an error: for calls whose caller needs an admission, such as `acquire`.
///
/// ```
/// # use tidegate_core::{Limit, Timestamp};
/// # let limit: Limit = "2/s".parse()?;
/// # let mut state = limit.fresh(Timestamp::EPOCH);
/// let denied = limit.decide(&mut state, Timestamp::EPOCH, 3).into_result().unwrap_err();
/// assert_eq!(denied.to_string(), "denied: the cost is more than the limit of 2 can ever admit");
/// # Ok::<(), tidegate_core::RuleError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Denied {
    /// The decision to deny.
    pub decision: Decision,
}

impl fmt::Display for Denied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.decision.verdict {
            Verdict::Deny(Retry::After(span)) => write!(f, "denied: retry after {span}"),
            Verdict::Deny(Retry::OnRelease) => match self.decision.known_limit() {
                Some(limit) => write!(f, "denied: all {limit} are in use"),
                None => f.write_str("denied: all are in use"),
            },
            _ => match self.decision.known_limit() {
                Some(limit) => {
                    write!(f, "denied: the cost is more than the limit of {limit} can ever admit")
                }
                None => f.write_str("denied: the cost is more than the limit can ever admit"),
            },
        }
    }
}

impl core::error::Error for Denied {}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    const NONE_LEFT: Decision = Decision {
        verdict: Verdict::Allow,
        limit: 3,
        remaining: 0,
        reset_after: Span::from_secs(3),
    };

    #[test]
    fn a_denial_says_what_can_be_done_about_it() {
        let text = |retry| NONE_LEFT.deny(retry).to_string();
        assert_eq!(text(Retry::After(Span::from_secs(1))), "denied: retry after 1s");
        assert_eq!(text(Retry::OnRelease), "denied: all 3 are in use");
        let never = "denied: the cost is more than the limit of 3 can ever admit";
        assert_eq!(text(Retry::Never), never);
    }

    #[test]
    fn a_denial_without_state_has_0_remaining() {
        let second = Retry::After(Span::from_secs(1));
        for decision in [Decision::UNLIMITED, Decision::without_state(Verdict::Allow)] {
            assert_eq!(decision.known_remaining(), None);
            assert_eq!(decision.deny(second).decision.known_remaining(), Some(0));
        }
        assert_eq!(NONE_LEFT.deny(second).decision.known_limit(), Some(3));
        let full = Decision::without_state(Verdict::Deny(Retry::OnRelease));
        assert_eq!(full.deny(Retry::OnRelease).to_string(), "denied: all are in use");
    }

    #[test]
    fn a_decision_is_one_of_three() {
        let second = Span::from_secs(1);
        let waits = Decision { verdict: Verdict::Wait(second), ..NONE_LEFT };
        let denies = NONE_LEFT.deny(Retry::After(second)).decision;
        assert_eq!([NONE_LEFT, waits, denies].map(|d| d.is_allow()), [true, false, false]);
        assert_eq!([NONE_LEFT, waits, denies].map(|d| d.is_wait()), [false, true, false]);
        assert_eq!([NONE_LEFT, waits, denies].map(|d| d.is_admitted()), [true, true, false]);
        assert_eq!([NONE_LEFT, waits, denies].map(|d| d.is_deny()), [false, false, true]);
        let retries = [NONE_LEFT, waits, denies].map(|d| d.retry_after());
        assert_eq!(retries, [None, None, Some(second)]);
        assert_eq!((NONE_LEFT.into_result(), waits.into_result()), (Ok(Span::ZERO), Ok(second)));
        assert_eq!(denies.into_result().map_err(|denied| denied.decision), Err(denies));
        assert_eq!(Decision { verdict: Verdict::Allow, ..denies }, NONE_LEFT, "the same numbers");
    }
}

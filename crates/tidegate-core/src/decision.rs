//! The answer to a request: allow, wait or deny, and the numbers that go with it.
//!
//! Always   A denial is a value, not an error, and says what the caller can do about it.
//! Rounding Waits are rounded up and `remaining` down: an answer is never a promise we break.
//! Unknown  A number that nobody knows is the largest there is, and is read through `known_limit`, `known_remaining` and
//!          `known_reset_after`: whoever renders a decision never shows it as a number. A denial leaves nothing.

use crate::time::Span;
use core::fmt;

/// What a limit says to one request.
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
pub struct Decision {
    /// Whether the request may pass.
    pub verdict: Verdict,
    /// The most that can ever be admitted at one instant; [`u64::MAX`] where that is [not known](Self::known_limit).
    pub limit: u64,
    /// How much more would be admitted now, after this decision; [`u64::MAX`] where that is
    /// [not known](Self::known_remaining).
    pub remaining: u64,
    /// How long until the key is as good as new, if nobody asks again; [`Span::MAX`] where that is
    /// [not known](Self::known_reset_after).
    pub reset_after: Span,
}

/// May it pass now, later, or not?
///
/// ```
/// use tidegate_core::{Limit, Retry, Span, Timestamp, Verdict};
///
/// let limit: Limit = "2/s".parse()?;
/// let mut state = limit.fresh(Timestamp::EPOCH);
/// limit.decide(&mut state, Timestamp::EPOCH, 2);
///
/// let denied = limit.decide(&mut state, Timestamp::EPOCH, 1);
/// assert_eq!(denied.verdict, Verdict::Deny(Retry::After(Span::from_millis(500))));
/// # Ok::<(), tidegate_core::RuleError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It may pass now. It has been charged.
    Allow,
    /// It may pass after this long. It has been charged and has its turn: nobody overtakes it.
    Wait(Span),
    /// It may not pass. Nothing has been charged.
    Deny(Retry),
}

/// What a denied caller can do.
///
/// ```
/// use tidegate_core::{Limit, Retry, Timestamp, Verdict};
///
/// let limit: Limit = "2/s".parse()?;
/// let mut state = limit.fresh(Timestamp::EPOCH);
/// let denied = limit.decide(&mut state, Timestamp::EPOCH, 3);
/// assert_eq!(denied.verdict, Verdict::Deny(Retry::Never), "2 is all it can ever hold");
/// # Ok::<(), tidegate_core::RuleError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// Ask again after this long: if nobody else takes anything meanwhile, it will be admitted,
    /// and one microsecond earlier it would not.
    After(Span),
    /// Ask again when somebody has finished; nobody knows when that is.
    OnRelease,
    /// The cost is more than the limit can ever admit at once. Waiting does not help.
    Never,
}

impl Decision {
    /// The answer where no limit applies.
    ///
    /// ```
    /// assert!(tidegate_core::Decision::UNLIMITED.is_allow());
    /// ```
    pub const UNLIMITED: Self = Self {
        verdict: Verdict::Allow,
        limit: u64::MAX,
        remaining: u64::MAX,
        reset_after: Span::ZERO,
    };

    /// A verdict that was reached without the key's state, such as that of a policy for when the store does not answer.
    /// Of its numbers only one is known: a denial leaves nothing.
    ///
    /// ```
    /// # use tidegate_core::{Decision, Retry, Span, Verdict};
    /// let allowed = Decision::without_state(Verdict::Allow);
    /// assert_eq!((allowed.known_limit(), allowed.known_remaining()), (None, None));
    /// let denied = Decision::without_state(Verdict::Deny(Retry::After(Span::from_secs(1))));
    /// assert_eq!((denied.known_remaining(), denied.known_reset_after()), (Some(0), None));
    /// ```
    pub const fn without_state(verdict: Verdict) -> Self {
        let remaining = if matches!(verdict, Verdict::Deny(_)) { 0 } else { u64::MAX };
        Self { verdict, limit: u64::MAX, remaining, reset_after: Span::MAX }
    }

    /// The most that can ever be admitted at one instant. `None` where no limit applies, or the store that knows it did not
    /// answer.
    ///
    /// ```
    /// # use tidegate_core::{Decision, Limit, Timestamp};
    /// let limit: Limit = "2/s".parse()?;
    /// let decision = limit.peek(&limit.fresh(Timestamp::EPOCH), Timestamp::EPOCH, 1);
    /// assert_eq!(decision.known_limit(), Some(2));
    /// assert_eq!(Decision::UNLIMITED.known_limit(), None);
    /// # Ok::<(), tidegate_core::RuleError>(())
    /// ```
    pub const fn known_limit(&self) -> Option<u64> {
        known(self.limit)
    }

    /// How much more would be admitted now. `None` where no limit applies, or the store that knows it did not answer; a
    /// denial always leaves a number.
    ///
    /// ```
    /// # use tidegate_core::{Decision, Limit, Timestamp};
    /// let limit: Limit = "2/s".parse()?;
    /// let decision = limit.peek(&limit.fresh(Timestamp::EPOCH), Timestamp::EPOCH, 1);
    /// assert_eq!(decision.known_remaining(), Some(1));
    /// assert_eq!(Decision::UNLIMITED.known_remaining(), None);
    /// # Ok::<(), tidegate_core::RuleError>(())
    /// ```
    pub const fn known_remaining(&self) -> Option<u64> {
        known(self.remaining)
    }

    /// How long until the key is as good as new. `None` where only a release can tell, as under a concurrency limit without
    /// leases, or where the store that knows it did not answer.
    ///
    /// ```
    /// # use tidegate_core::{Limit, Span, Timestamp};
    /// # let now = Timestamp::EPOCH;
    /// for (rule, reset_after) in [("2/s", Some(Span::from_millis(500))), ("concurrency 2", None)] {
    ///     let limit: Limit = rule.parse()?;
    ///     let decision = limit.decide(&mut limit.fresh(now), now, 1);
    ///     assert_eq!(decision.known_reset_after(), reset_after);
    /// }
    /// # Ok::<(), tidegate_core::RuleError>(())
    /// ```
    pub const fn known_reset_after(&self) -> Option<Span> {
        match known(self.reset_after.as_micros()) {
            Some(us) => Some(Span::from_micros(us)),
            None => None,
        }
    }

    /// Whether the request may pass now, without waiting.
    ///
    /// ```
    /// # use tidegate_core::{Limit, Timestamp};
    /// # let limit: Limit = "2/s".parse()?;
    /// # let mut state = limit.fresh(Timestamp::EPOCH);
    /// assert!(limit.decide(&mut state, Timestamp::EPOCH, 1).is_allow());
    /// # Ok::<(), tidegate_core::RuleError>(())
    /// ```
    #[inline]
    pub const fn is_allow(&self) -> bool {
        matches!(self.verdict, Verdict::Allow)
    }

    /// Whether the request may not pass, now or later.
    ///
    /// ```
    /// # use tidegate_core::{Limit, Timestamp};
    /// # let limit: Limit = "2/s".parse()?;
    /// # let mut state = limit.fresh(Timestamp::EPOCH);
    /// assert!(limit.decide(&mut state, Timestamp::EPOCH, 3).is_deny());
    /// # Ok::<(), tidegate_core::RuleError>(())
    /// ```
    #[inline]
    pub const fn is_deny(&self) -> bool {
        matches!(self.verdict, Verdict::Deny(_))
    }

    /// How long a denied caller should wait before asking again, where that is known.
    /// `None` when it was not denied, or when waiting does not help.
    ///
    /// ```
    /// # use tidegate_core::{Limit, Span, Timestamp};
    /// # let limit: Limit = "2/s".parse()?;
    /// # let mut state = limit.fresh(Timestamp::EPOCH);
    /// assert_eq!(limit.decide(&mut state, Timestamp::EPOCH, 2).retry_after(), None);
    /// let denied = limit.decide(&mut state, Timestamp::EPOCH, 1);
    /// assert_eq!(denied.retry_after(), Some(Span::from_millis(500)));
    /// # Ok::<(), tidegate_core::RuleError>(())
    /// ```
    #[inline]
    pub const fn retry_after(&self) -> Option<Span> {
        match self.verdict {
            Verdict::Deny(Retry::After(span)) => Some(span),
            _ => None,
        }
    }

    /// `Ok` with the time to wait before passing (usually none), or the denial as an error,
    /// for code that wants to use `?`.
    ///
    /// ```
    /// # use tidegate_core::{Limit, Span, Timestamp};
    /// # let limit: Limit = "2/s".parse()?;
    /// # let mut state = limit.fresh(Timestamp::EPOCH);
    /// assert_eq!(limit.decide(&mut state, Timestamp::EPOCH, 2).ok(), Ok(Span::ZERO));
    /// let denied = limit.decide(&mut state, Timestamp::EPOCH, 1).ok().unwrap_err();
    /// assert_eq!(denied.to_string(), "denied: retry after 500ms");
    /// # Ok::<(), tidegate_core::RuleError>(())
    /// ```
    #[inline]
    pub const fn ok(self) -> Result<Span, Denied> {
        match self.verdict {
            Verdict::Allow => Ok(Span::ZERO),
            Verdict::Wait(span) => Ok(span),
            Verdict::Deny(_) => Err(Denied { decision: self }),
        }
    }

    /// A denial as it is so much later, while it still is one.
    ///
    /// ```
    /// # use tidegate_core::{Limit, Span, Timestamp};
    /// # let limit: Limit = "2/s".parse()?;
    /// # let mut state = limit.fresh(Timestamp::EPOCH);
    /// limit.decide(&mut state, Timestamp::EPOCH, 2);
    /// let denied = limit.decide(&mut state, Timestamp::EPOCH, 1);
    /// let later = denied.after_elapsed(Span::from_millis(100));
    /// assert_eq!(later, limit.peek(&state, Timestamp::from_micros(100_000), 1));
    /// # Ok::<(), tidegate_core::RuleError>(())
    /// ```
    #[inline]
    #[must_use]
    pub const fn after_elapsed(self, elapsed: Span) -> Self {
        let verdict = match self.verdict {
            Verdict::Deny(Retry::After(retry)) => {
                Verdict::Deny(Retry::After(retry.saturating_sub(elapsed)))
            }
            verdict => verdict,
        };
        Self { verdict, reset_after: self.reset_after.saturating_sub(elapsed), ..self }
    }

    /// The same numbers with a no, and this way out: for stores and limiters that have a reason of
    /// their own to refuse, such as a wait that would be too long. Where nobody knows how much is left, a denial leaves
    /// nothing.
    ///
    /// ```
    /// # use tidegate_core::{Limit, Retry, Span, Timestamp};
    /// let limit: Limit = "2/s".parse()?;
    /// let untouched = limit.peek(&limit.fresh(Timestamp::EPOCH), Timestamp::EPOCH, 0);
    /// let denied = untouched.deny(Retry::After(Span::from_secs(1)));
    /// assert_eq!(denied.decision.retry_after(), Some(Span::from_secs(1)));
    /// # Ok::<(), tidegate_core::RuleError>(())
    /// ```
    #[inline]
    pub const fn deny(self, retry: Retry) -> Denied {
        let remaining = if self.known_remaining().is_none() { 0 } else { self.remaining };
        Denied { decision: Self { verdict: Verdict::Deny(retry), remaining, ..self } }
    }
}

/// The largest number stands for one that nobody knows.
const fn known(number: u64) -> Option<u64> {
    if number == u64::MAX { None } else { Some(number) }
}

/// A denial as an error: for callers that must have an admission, such as `acquire`.
///
/// ```
/// # use tidegate_core::{Limit, Timestamp};
/// # let limit: Limit = "2/s".parse()?;
/// # let mut state = limit.fresh(Timestamp::EPOCH);
/// let denied = limit.decide(&mut state, Timestamp::EPOCH, 3).ok().unwrap_err();
/// assert_eq!(denied.to_string(), "denied: the cost is more than the limit of 2 can ever admit");
/// # Ok::<(), tidegate_core::RuleError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Denied {
    /// The decision that says no.
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
        let said = |retry| NONE_LEFT.deny(retry).to_string();
        assert_eq!(said(Retry::After(Span::from_secs(1))), "denied: retry after 1s");
        assert_eq!(said(Retry::OnRelease), "denied: all 3 are in use");
        let never = "denied: the cost is more than the limit of 3 can ever admit";
        assert_eq!(said(Retry::Never), never);
    }

    #[test]
    fn a_denial_leaves_nothing_where_nobody_knows_how_much() {
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
        assert_eq!([NONE_LEFT, waits, denies].map(|d| d.is_deny()), [false, false, true]);
        let retries = [NONE_LEFT, waits, denies].map(|d| d.retry_after());
        assert_eq!(retries, [None, None, Some(second)]);
        assert_eq!((NONE_LEFT.ok(), waits.ok()), (Ok(Span::ZERO), Ok(second)));
        assert_eq!(denies.ok().map_err(|denied| denied.decision), Err(denies));
        assert_eq!(Decision { verdict: Verdict::Allow, ..denies }, NONE_LEFT, "the same numbers");
    }
}

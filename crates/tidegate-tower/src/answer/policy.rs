//! What a limit is called and allots, as the fields of an answer tell it.

use super::Answer;
use tidegate::{Decision, Retry, Rule, Span, Verdict};

/// The largest integer that a structured field can have (RFC 9651).
///
/// ```
/// assert_eq!(tidegate_tower::FIELD_INTEGER_MAX, 999_999_999_999_999);
/// ```
pub const FIELD_INTEGER_MAX: u64 = 999_999_999_999_999;

/// A limit and what it said.
///
/// ```
/// use tidegate_tower::{Answer, Told};
///
/// let rule = "100/s burst 20".parse()?;
/// let told = Told { name: "api", rule: &rule, answer: Answer::UNLIMITED };
/// assert!(told.answer.passes());
/// # Ok::<(), tidegate::RuleError>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Told<'a> {
    /// What it is called.
    pub name: &'a str,
    /// What it admits. One limit is told apart from another by where its rule lies.
    pub rule: &'a Rule,
    /// What it said.
    pub answer: Answer,
}

impl Told<'_> {
    /// How much is allotted in how many seconds. Where the rule's time is no whole number of seconds, and no
    /// whole number of them is a second, there is none: then it is what can be had at once.
    pub(super) fn quota(&self) -> (u64, Option<u64>) {
        const SECOND_US: u64 = 1_000_000;
        let (count, period) = match self.rule.rate() {
            Some((count, period)) => (count, period.as_micros()),
            None => return (self.at_once(), None),
        };
        if period.is_multiple_of(SECOND_US) {
            (count.min(FIELD_INTEGER_MAX), Some(period / SECOND_US))
        } else if SECOND_US.is_multiple_of(period) {
            (count.saturating_mul(SECOND_US / period).min(FIELD_INTEGER_MAX), Some(1))
        } else {
            (self.at_once(), None)
        }
    }

    /// The most that can be had at once.
    fn at_once(&self) -> u64 {
        let known = self.answer.decision.known_limit();
        let of_rule = || self.rule.limit().without_state(Verdict::Allow).limit;
        known.unwrap_or_else(of_rule).min(FIELD_INTEGER_MAX)
    }

    /// How much is left.
    #[inline]
    pub(super) fn remaining(&self) -> u64 {
        remaining(&self.answer.decision)
    }

    /// For how many seconds no more than that can be counted on.
    #[inline]
    pub(super) fn window_s(&self) -> Option<u64> {
        window_s(&self.answer.decision)
    }

    /// Whether there is anything to tell: a limit that is off has no numbers, and of one whose store does not answer nobody
    /// knows what is left.
    pub(super) fn is_known(&self) -> bool {
        self.answer.decision.known_remaining().is_some()
    }
}

/// How much is left, as a field tells it.
#[inline]
pub(super) fn remaining(decision: &Decision) -> u64 {
    decision.remaining.min(FIELD_INTEGER_MAX)
}

/// For how many seconds no more than that can be counted on. After a denial it is the time to wait, so
/// that it never ends after `Retry-After`.
#[inline]
pub(super) fn window_s(decision: &Decision) -> Option<u64> {
    let span = match decision.verdict {
        Verdict::Deny(Retry::After(span)) => span,
        Verdict::Deny(Retry::OnRelease) => return None,
        // Who is in flight stays there for as long as it takes: nobody knows.
        Verdict::Allow | Verdict::Wait(_) | Verdict::Deny(Retry::Never) => resets_after(decision)?,
    };
    let seconds = span.as_secs_ceil();
    (seconds <= FIELD_INTEGER_MAX).then_some(seconds)
}

/// How long until all of a limit is there again; `None` where nobody knows, and where it never is: a rule that admits nothing
/// is as new at any time, and a client that is told so would come back at once.
///
/// ```
/// # use tidegate::{Gate, ManualClock};
/// let shut = Gate::with_clock("0/s".parse()?, ManualClock::new());
/// assert_eq!(tidegate_tower::resets_after(&shut.check()), None);
/// # Ok::<(), tidegate::RuleError>(())
/// ```
pub fn resets_after(decision: &Decision) -> Option<Span> {
    if decision.limit == 0 { None } else { decision.known_reset_after() }
}

/// When to ask again where nobody knows: soon, and not at once.
pub(crate) const SOON: Span = Span::from_secs(1);

/// In how many seconds to ask again: rounded up and never 0. `None` where asking again never helps, and
/// where nothing was denied.
///
/// ```
/// use tidegate_tower::{Answer, retry_after_s};
/// # use tidegate::{Gate, ManualClock};
/// let gate = Gate::with_clock("1000/s burst 1".parse()?, ManualClock::new());
/// assert_eq!(retry_after_s(&Answer::obeyed(gate.check())), None);
/// assert_eq!(retry_after_s(&Answer::obeyed(gate.check())), Some(1), "a millisecond, rounded up");
/// # Ok::<(), tidegate::RuleError>(())
/// ```
pub fn retry_after_s(answer: &Answer) -> Option<u64> {
    match answer.decision.verdict {
        Verdict::Deny(Retry::After(span)) => Some(span.as_secs_ceil().max(1)),
        Verdict::Deny(Retry::OnRelease) => Some(SOON.as_secs_ceil()),
        Verdict::Deny(Retry::Never) | Verdict::Allow | Verdict::Wait(_) => None,
    }
}

//! What a caller is told: in fields, and in the body of a refusal. The layers say it, and the daemon does.

mod digits;
mod fields;
mod form;
mod mode;
mod policy;
mod problem;
mod recent;
mod standing;
mod start;

pub use fields::{Fields, HeaderStyle, Value};
pub use mode::{Mode, ShadowAsk};
pub(crate) use policy::SOON;
pub use policy::{FIELD_INTEGER_MAX, Told, resets_after, retry_after_s};
pub use problem::{JSON_INTEGER_MAX, PROBLEM_TYPES, as_ms_ceil, put_denial, put_members};

pub(crate) use problem::{NO_STORE, PROBLEM};
pub(crate) use standing::{Said, Standing};

use tidegate::{Decision, Verdict};

/// What a limit has to say to a caller.
///
/// ```
/// use tidegate_tower::Answer;
///
/// assert!(Answer::UNLIMITED.passes());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// What the caller is told: under a limit in the shadow, never a denial and never a wait.
    pub decision: Decision,
    /// Whether the caller passes only because the limit is in the shadow.
    pub is_shadowed: bool,
}

impl Answer {
    /// Where nothing is limited.
    pub const UNLIMITED: Self = Self { decision: Decision::UNLIMITED, is_shadowed: false };

    /// What a limit says that is obeyed.
    ///
    /// ```
    /// use tidegate_tower::Answer;
    /// # use tidegate::Decision;
    /// assert!(!Answer::obeyed(Decision::UNLIMITED).is_shadowed);
    /// ```
    pub const fn obeyed(decision: Decision) -> Self {
        Self { decision, is_shadowed: false }
    }

    /// What a limit in the shadow says: the same numbers, and never a no.
    ///
    /// ```
    /// use tidegate_tower::Answer;
    /// # use tidegate::{Gate, ManualClock};
    /// let gate = Gate::with_clock("1/s".parse()?, ManualClock::new());
    /// assert!(!Answer::shadowed(gate.check()).is_shadowed, "it would have passed anyway");
    /// let answer = Answer::shadowed(gate.check());
    /// assert!(answer.passes() && answer.is_shadowed);
    /// # Ok::<(), tidegate::RuleError>(())
    /// ```
    pub const fn shadowed(mut decision: Decision) -> Self {
        if decision.is_allow() {
            return Self::obeyed(decision);
        }
        decision.verdict = Verdict::Allow;
        Self { decision, is_shadowed: true }
    }

    /// Whether the caller may pass, now or after a wait.
    ///
    /// ```
    /// use tidegate_tower::Answer;
    /// # use tidegate::{Gate, ManualClock};
    /// let gate = Gate::with_clock("1/s".parse()?, ManualClock::new());
    /// assert!(Answer::obeyed(gate.check()).passes());
    /// assert!(!Answer::obeyed(gate.check()).passes());
    /// # Ok::<(), tidegate::RuleError>(())
    /// ```
    pub const fn passes(&self) -> bool {
        !self.decision.is_deny()
    }
}

//! Whether a limit is obeyed, and what follows: what a caller is told of it, and when it is charged. The layers go by it,
//! and the daemon does.
//!
//! Always   A limit that is not obeyed stops nobody, and clients are told none of its numbers: a polite client would stop by
//!          them.
//! Always   A limit in shadow mode is charged as if it were obeyed: not when another limit denies the request.

use super::{Answer, Told};
use tidegate::{Decision, Rule};

/// Whether a limit is obeyed.
///
/// ```
/// use tidegate_tower::Mode;
///
/// assert_eq!(Mode::default(), Mode::Enforce);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// It is obeyed.
    #[default]
    Enforce,
    /// It decides and counts, and every request passes.
    Shadow,
    /// It does nothing.
    Off,
}

impl Mode {
    /// Returns the answer to a request that the limit's rule decided so.
    ///
    /// ```
    /// use tidegate_tower::Mode;
    /// # use tidegate::{Gate, ManualClock};
    /// let gate = Gate::with_clock("1/s".parse()?, ManualClock::new());
    /// gate.check();
    /// let denied = gate.check();
    /// assert!(!Mode::Enforce.answer(denied).passes());
    /// assert!(Mode::Shadow.answer(denied).passes());
    /// # Ok::<(), tidegate::RuleError>(())
    /// ```
    pub const fn answer(self, decision: Decision) -> Answer {
        match self {
            Self::Enforce => Answer::obeyed(decision),
            Self::Shadow | Self::Off => Answer::shadowed(decision),
        }
    }

    /// Whether clients are told the limit's numbers.
    ///
    /// ```
    /// use tidegate_tower::Mode;
    ///
    /// assert!(Mode::Enforce.is_told());
    /// assert!(!Mode::Shadow.is_told());
    /// ```
    pub const fn is_told(self) -> bool {
        matches!(self, Self::Enforce)
    }

    /// Returns what response headers and bodies say of the limit, if clients are told.
    ///
    /// ```
    /// use tidegate_tower::{Answer, Mode};
    ///
    /// let rule = "100/s".parse()?;
    /// assert!(Mode::Shadow.told("next year", &rule, Answer::UNLIMITED).is_none());
    /// # Ok::<(), tidegate::RuleError>(())
    /// ```
    pub fn told<'a>(self, name: &'a str, rule: &'a Rule, answer: Answer) -> Option<Told<'a>> {
        self.is_told().then_some(Told { name, rule, answer })
    }
}

/// How a limit in shadow mode is asked, once all limits that are obeyed have decided together.
///
/// ```
/// use tidegate_tower::ShadowAsk;
/// # use tidegate::{Gate, ManualClock};
/// let gate = Gate::with_clock("1/s".parse()?, ManualClock::new());
/// assert_eq!(ShadowAsk::after(&gate.check()), ShadowAsk::Check);
/// assert_eq!(ShadowAsk::after(&gate.check()), ShadowAsk::Peek);
/// # Ok::<(), tidegate::RuleError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShadowAsk {
    /// It decides, and is charged unless it would deny.
    Check,
    /// It is only looked at. If it were obeyed too, the denial of another limit would leave it uncharged, and it is to count
    /// as it would then.
    Peek,
}

impl ShadowAsk {
    /// Returns how limits in shadow mode are asked after this decision of those that are obeyed.
    ///
    /// ```
    /// use tidegate_tower::ShadowAsk;
    ///
    /// let unlimited = tidegate::Decision::UNLIMITED;
    /// assert_eq!(ShadowAsk::after(&unlimited), ShadowAsk::Check, "nothing else is asked");
    /// ```
    pub const fn after(enforced: &Decision) -> Self {
        if enforced.is_deny() { Self::Peek } else { Self::Check }
    }
}

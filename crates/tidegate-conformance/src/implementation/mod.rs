//! What the spec asks of an implementation, whatever it is: a function, a store, a wire protocol.
//!
//! Always   Every question carries its time: an implementation that has a clock sets it first.
//!          What an implementation has no words for it refuses as [`Refusal::CannotSay`]; it never
//!          guesses.

mod core;
mod grpc;
mod http;
mod memory;
mod redis;
mod resp;
mod served;
mod wire;
mod zone;

pub use self::core::Core;
pub use self::grpc::Grpc;
pub use self::http::Http;
pub use self::memory::Memory;
pub use self::redis::Redis;
pub use self::resp::Resp;
pub use self::wire::{Speaker, Wire};

use std::fmt;
use tidegate_core::{Decision, Retry, Span, Timestamp, Verdict, Window};

/// Something that decides by the rules of `spec/`.
pub trait Implementation {
    /// Forgets everything, and makes one limit of each rule, born at `birth`.
    fn begin(&mut self, rules: &[&str], birth: Timestamp) -> Result<(), Refusal>;

    /// The shortest time that it can say; what is shorter, it rounds up.
    fn precision(&self) -> Span {
        Span::from_micros(1)
    }

    /// What it has said since it began in other words than those that there are for it, if it has.
    fn detour(&self) -> Option<&'static str> {
        None
    }

    /// Decides, and charges unless it denies.
    fn take(&mut self, now: Timestamp, on: Target<'_>, ask: Ask) -> Result<Answer, Refusal>;

    /// Decides under all limits at once for one key: charges all of them, or none.
    fn take_all(&mut self, now: Timestamp, key: &str, cost: u64) -> Result<Answer, Refusal>;

    /// Decides without charging.
    fn peek(&mut self, now: Timestamp, on: Target<'_>, cost: u64) -> Result<Answer, Refusal>;

    /// Gives back what was charged.
    fn refund(&mut self, now: Timestamp, on: Target<'_>, cost: u64) -> Result<(), Refusal>;

    /// Ends the oldest request of this cost that is still in flight.
    fn release(&mut self, now: Timestamp, on: Target<'_>, cost: u64) -> Result<(), Refusal>;

    /// Forgets the key.
    fn reset(&mut self, now: Timestamp, on: Target<'_>) -> Result<(), Refusal>;

    /// Puts another rule in the place of a limit's, while it is in use.
    fn change(&mut self, now: Timestamp, limit: usize, rule: &str) -> Result<(), Refusal>;

    /// The window that `now` lies in; `None` where the rule has none.
    fn window(&mut self, now: Timestamp, on: Target<'_>) -> Result<Option<Window>, Refusal>;
}

/// Which limit, by its place in the scenario, and whose.
#[derive(Clone, Copy, Debug)]
pub struct Target<'a> {
    /// Index into the rules that [`Implementation::begin`] was given.
    pub limit: usize,
    /// Whom it counts.
    pub key: &'a str,
}

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask {
    /// How much.
    pub cost: u64,
    /// Who would have to wait longer than this does not want it.
    pub patience: Option<Span>,
}

/// A decision, as far as the implementation tells it: not every wire carries every number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// May it pass?
    pub verdict: Told,
    /// The most that is ever admitted at once.
    pub limit: Option<u64>,
    /// How much more would be admitted now.
    pub remaining: Option<u64>,
    /// How long until the key is as good as new.
    pub reset_after: Option<Span>,
}

/// A verdict, as far as the implementation tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// All of it.
    Whole(Verdict),
    /// It passes, at once or after a wait.
    Passes,
    /// It does not pass, and what would help is not said.
    Denies,
    /// Nothing: only the numbers are told.
    Nothing,
}

impl From<Verdict> for Told {
    fn from(verdict: Verdict) -> Self {
        Self::Whole(verdict)
    }
}

impl From<Decision> for Answer {
    fn from(decision: Decision) -> Self {
        Self {
            verdict: decision.verdict.into(),
            limit: Some(decision.limit),
            remaining: Some(decision.remaining),
            reset_after: Some(decision.reset_after),
        }
    }
}

impl Answer {
    /// One answer for all limits: the sternest verdict, the least remaining, the longest reset.
    pub fn sternest(answers: impl IntoIterator<Item = Self>) -> Option<Self> {
        answers.into_iter().reduce(|a, b| Self {
            verdict: sterner(a.verdict, b.verdict),
            limit: a.limit.min(b.limit),
            remaining: a.remaining.min(b.remaining),
            reset_after: a.reset_after.max(b.reset_after),
        })
    }
}

/// What one of them does not tell, nobody tells of both.
fn sterner(a: Told, b: Told) -> Told {
    let (Told::Whole(a), Told::Whole(b)) = (a, b) else { return Told::Nothing };
    let rank = |verdict| match verdict {
        Verdict::Allow => (0, Span::ZERO),
        Verdict::Wait(span) => (1, span),
        Verdict::Deny(Retry::After(span)) => (2, span),
        Verdict::Deny(Retry::OnRelease) => (3, Span::ZERO),
        Verdict::Deny(Retry::Never) => (4, Span::ZERO),
    };
    Told::Whole(if rank(b) > rank(a) { b } else { a })
}

/// Why an implementation gave no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It has no way to be asked this: the scenario says nothing about it.
    CannotSay(&'static str),
    /// It should have answered.
    Failed(String),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CannotSay(what) => write!(f, "cannot be asked about {what}"),
            Self::Failed(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for Refusal {}

/// From here on, doubles do not count each one, and neither does Redis.
const DOUBLES_MAX: u64 = 1 << 53;

/// Why a limit cannot be in Redis.
const MORE_THAN_DOUBLES_COUNT: &str = "more than doubles can count";

fn failed(error: impl fmt::Display) -> Refusal {
    Refusal::Failed(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn never_is_sterner_than_a_release_and_a_release_sterner_than_any_wait() {
        let order = [
            Verdict::Allow,
            Verdict::Wait(Span::from_micros(1)),
            Verdict::Wait(Span::from_micros(2)),
            Verdict::Deny(Retry::After(Span::from_micros(1))),
            Verdict::Deny(Retry::After(Span::MAX)),
            Verdict::Deny(Retry::OnRelease),
            Verdict::Deny(Retry::Never),
        ];
        let order = order.map(Told::Whole);
        for pair in order.windows(2) {
            assert_eq!(sterner(pair[0], pair[1]), pair[1]);
            assert_eq!(sterner(pair[1], pair[0]), pair[1]);
        }
    }
}

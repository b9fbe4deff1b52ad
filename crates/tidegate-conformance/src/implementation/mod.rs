//! The interface that scenarios need of an implementation: a function, a store, or a protocol.
//!
//! Always   Every request carries its time: an implementation with a clock sets it first. An implementation that cannot
//!          express a request returns [`Refusal::Unsupported`]; it never guesses.

mod core;
mod grpc;
mod http;
mod in_flight;
mod memory;
mod protocol_client;
mod redis;
mod resp;
mod served;
mod wire;
mod zone;

pub use self::core::Core;
pub use self::grpc::Grpc;
pub use self::http::Http;
pub use self::memory::Memory;
pub use self::protocol_client::ProtocolClient;
pub use self::redis::Redis;
pub use self::resp::Resp;
pub use self::wire::Wire;

use std::fmt;
use tidegate::Rule;
use tidegate_core::{Decision, Retry, Span, Timestamp, Verdict, Window};

/// A decision, or why there is none.
pub type DecisionResult = Result<PartialDecision, Refusal>;

/// An implementation of the rules of `spec/`.
pub trait Implementation {
    /// Drops all state, and makes one limit of each rule, which starts at `birth`.
    fn begin(&mut self, rules: &[&str], birth: Timestamp) -> Result<(), Refusal>;

    /// The resolution of its times, to which it rounds up.
    fn precision(&self) -> Span {
        Span::from_micros(1)
    }

    /// Returns how the implementation has emulated an operation that it lacks, if it has done so since [`Self::begin`].
    fn emulation(&self) -> Option<&'static str> {
        None
    }

    /// Decides, and charges unless the request is denied.
    fn take(&mut self, now: Timestamp, on: Target<'_>, ask: TakeRequest) -> DecisionResult;

    /// Decides under all limits at once for one key: charges all of them, or none.
    fn take_all(&mut self, now: Timestamp, key: &str, cost: u64) -> DecisionResult;

    /// Decides without charging.
    fn peek(&mut self, now: Timestamp, on: Target<'_>, cost: u64) -> DecisionResult;

    /// Refunds a charge.
    fn refund(&mut self, now: Timestamp, on: Target<'_>, cost: u64) -> Result<(), Refusal>;

    /// Releases the oldest request of this cost that is in flight.
    fn release(&mut self, now: Timestamp, on: Target<'_>, cost: u64) -> Result<(), Refusal>;

    /// Resets the key.
    fn reset(&mut self, now: Timestamp, on: Target<'_>) -> Result<(), Refusal>;

    /// Changes the rule of a limit that is in use.
    fn change(&mut self, now: Timestamp, limit: usize, rule: &str) -> Result<(), Refusal>;

    /// Returns the window that contains `now`, or `None` if the rule has none.
    fn window(&mut self, now: Timestamp, on: Target<'_>) -> Result<Option<Window>, Refusal>;
}

/// A limit, by its index in the scenario, and a key.
#[derive(Clone, Copy, Debug)]
pub struct Target<'a> {
    /// Index into the rules that [`Implementation::begin`] was given.
    pub limit: usize,
    /// The key.
    pub key: &'a str,
}

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TakeRequest {
    /// Its cost.
    pub cost: u64,
    /// The longest acceptable wait.
    pub wait_max: Option<Span>,
}

/// The part of a decision that the implementation reports: not every protocol carries every number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartialDecision {
    /// The verdict.
    pub verdict: PartialVerdict,
    /// The largest cost that is ever admitted at once.
    pub limit: Option<u64>,
    /// The cost that would be admitted now.
    pub remaining: Option<u64>,
    /// The time until the key has recovered completely.
    pub reset_after: Option<Span>,
}

/// The part of a verdict that the implementation reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartialVerdict {
    /// The complete verdict.
    Full(Verdict),
    /// The request is admitted, at once or after a wait.
    Passes,
    /// The request is denied, without a time to retry.
    Denies,
    /// No verdict: the implementation reports only the numbers.
    Unknown,
}

impl From<Verdict> for PartialVerdict {
    fn from(verdict: Verdict) -> Self {
        Self::Full(verdict)
    }
}

impl From<Decision> for PartialDecision {
    fn from(decision: Decision) -> Self {
        Self {
            verdict: decision.verdict.into(),
            limit: Some(decision.limit),
            remaining: Some(decision.remaining),
            reset_after: Some(decision.reset_after),
        }
    }
}

impl PartialDecision {
    /// Combines the decisions of several limits: the most severe verdict, the least remaining, the longest reset.
    pub fn most_severe(answers: impl IntoIterator<Item = Self>) -> Option<Self> {
        answers.into_iter().reduce(|a, b| Self {
            verdict: more_severe(a.verdict, b.verdict),
            limit: a.limit.min(b.limit),
            remaining: a.remaining.min(b.remaining),
            reset_after: a.reset_after.max(b.reset_after),
        })
    }
}

/// Returns the more severe verdict; if one is not reported in full, neither is the result.
fn more_severe(a: PartialVerdict, b: PartialVerdict) -> PartialVerdict {
    let (PartialVerdict::Full(a), PartialVerdict::Full(b)) = (a, b) else {
        return PartialVerdict::Unknown;
    };
    let rank = |verdict| match verdict {
        Verdict::Allow => (0, Span::ZERO),
        Verdict::Wait(span) => (1, span),
        Verdict::Deny(Retry::After(span)) => (2, span),
        Verdict::Deny(Retry::OnRelease) => (3, Span::ZERO),
        Verdict::Deny(Retry::Never) => (4, Span::ZERO),
    };
    PartialVerdict::Full(if rank(b) > rank(a) { b } else { a })
}

/// Rounds up to a multiple of `precision`.
pub(crate) fn round(span: Span, precision: Span) -> Span {
    let precision = precision.as_micros();
    Span::from_micros(span.as_micros().div_ceil(precision).saturating_mul(precision))
}

/// Why an implementation returned no decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It does not support the request, so the scenario does not apply to it.
    Unsupported(&'static str),
    /// It failed, although it supports the request.
    Failed(String),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unsupported(what) => write!(f, "unsupported: {what}"),
            Self::Failed(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for Refusal {}

/// From this number on, doubles cannot represent every integer, so Redis's scripts cannot either.
const DOUBLES_MAX: u64 = 1 << 53;

/// Why a limit cannot be stored in Redis.
const MORE_THAN_DOUBLES_COUNT: &str = "more than doubles can count";

fn failed(error: impl fmt::Display) -> Refusal {
    Refusal::Failed(error.to_string())
}

fn no_limit(number: usize) -> Refusal {
    failed(format!("there is no limit number {number}"))
}

fn parsed(rule: &str) -> Result<Rule, Refusal> {
    rule.parse().map_err(|error: tidegate::RuleError| failed(error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn never_is_more_severe_than_a_release_and_a_release_than_any_wait() {
        let order = [
            Verdict::Allow,
            Verdict::Wait(Span::from_micros(1)),
            Verdict::Wait(Span::from_micros(2)),
            Verdict::Deny(Retry::After(Span::from_micros(1))),
            Verdict::Deny(Retry::After(Span::MAX)),
            Verdict::Deny(Retry::OnRelease),
            Verdict::Deny(Retry::Never),
        ];
        let order = order.map(PartialVerdict::Full);
        for pair in order.windows(2) {
            assert_eq!(more_severe(pair[0], pair[1]), pair[1]);
            assert_eq!(more_severe(pair[1], pair[0]), pair[1]);
        }
    }
}

//! Encodes requests for the scripts of a limit, and decodes their replies.
//!
//! Invariant  A script replies whether the request is admitted, and the state before. `tidegate_core` computes every other
//!            number of the decision from that, so that it is the same number in every store.
//! Invariant  A reply that a script cannot give is an error, not a decision.

use crate::script::{self, Script, Shape, Twin};
use redis::Value;
use tidegate_core::{Decision, Limit, Retry, Span, State, Timestamp, TooLargeForLua};

/// A limit with what its script needs.
#[derive(Debug)]
pub(crate) struct LimitCodec {
    limit: Limit,
    twin: &'static Twin,
    numbers: Vec<f64>,
    version: f64,
    birth: Timestamp,
    /// The packed state of a new key.
    fresh: Vec<u8>,
    /// The time from which on a new key is full, if the rule starts empty; else 0.
    full_from: f64,
}

/// What a script does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    /// Decides, and charges unless it denies.
    Charge,
    /// Refunds.
    Refund,
    /// Decides without charging.
    Peek,
}

/// The reply of a script.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ScriptReply {
    Decision(ScriptDecision),
    /// The script needs the calendar windows of this time.
    OtherTime(Timestamp),
    /// The state was written under another version of the rule.
    OtherVersion(Vec<u8>),
}

/// The decision of a script.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ScriptDecision {
    is_charged: bool,
    /// Redis's time, if the decision depends on it.
    now: Timestamp,
    /// The state before, or as much of it as the script reports; `None` for a new key.
    state: Option<Vec<f64>>,
    /// The number of the permit that was granted.
    pub(crate) ticket: Option<u64>,
}

/// A reply that no script of this crate gives.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no script gives the reply {got}")]
pub(crate) struct Malformed {
    got: String,
}

impl LimitCodec {
    pub(crate) fn new(
        limit: Limit,
        version: u64,
        birth: Timestamp,
    ) -> Result<Self, TooLargeForLua> {
        let twin = Twin::of(limit.stem()).expect("every algorithm has a twin, as a test checks");
        let numbers = limit.lua_params()?;
        let fresh = match twin.shape {
            Shape::Cell { .. } => bytes(&limit.state_to_lua(&limit.fresh(birth))?),
            Shape::Rows { .. } => Vec::new(),
        };
        #[expect(clippy::cast_precision_loss, reason = "a version is a time in microseconds")]
        let version = version as f64;
        let starts = limit.peek(&limit.fresh(birth), birth, 0).reset_after;
        #[expect(clippy::cast_precision_loss, reason = "a time of this millennium")]
        let full_from = if starts.is_zero() { 0.0 } else { (birth + starts).as_micros() as f64 };
        Ok(Self { limit, twin, numbers, version, birth, fresh, full_from })
    }

    /// Returns the codec for another version of the rule.
    pub(crate) fn of_version(&self, limit: Limit, version: u64) -> Result<Self, TooLargeForLua> {
        Self::new(limit, version, self.birth)
    }

    pub(crate) fn limit(&self) -> &Limit {
        &self.limit
    }

    pub(crate) fn stem(&self) -> &'static str {
        self.twin.stem
    }

    /// Returns whether a decision contains the whole state, not just what matters for the requested cost.
    pub(crate) fn reports_whole_state(&self) -> bool {
        matches!(self.twin.shape, Shape::Cell { .. })
    }

    pub(crate) fn script(&self) -> &'static Script {
        self.twin.decide()
    }

    pub(crate) fn fresh(&self) -> &[u8] {
        &self.fresh
    }

    /// Returns the first argument of the driver. `around` is an estimate of Redis's time, for calendar windows.
    pub(crate) fn args(&self, operation: Operation, cost: u64, around: Timestamp) -> Vec<u8> {
        let code = match operation {
            // The cost is possible, but too large for Redis to count: the script must not write.
            Operation::Charge if !self.is_sendable(cost) && !self.is_impossible(cost) => 2.0,
            Operation::Charge => 0.0,
            Operation::Refund => 1.0,
            Operation::Peek => 2.0,
        };
        let price = self.limit.lua_cost(self.sendable(operation, cost));
        let price = price.expect("a cost of 0 can be sent, and other costs were checked");
        let mut args = bytes(&[self.version, code, self.full_from]);
        args.extend(bytes(&price));
        args.extend(bytes(&self.numbers));
        if self.limit.stem() == "calendar" {
            args.extend(bytes(&edges(&self.limit, around)));
        }
        args
    }

    /// Returns the script for an operation, and its arguments.
    pub(crate) fn call(
        &self,
        operation: Operation,
        cost: u64,
        around: Timestamp,
    ) -> (&'static Script, Vec<Vec<u8>>) {
        if let (Operation::Charge, Some(capacity_us), Ok(price)) =
            (operation, self.whole_capacity(), self.limit.lua_cost(cost))
        {
            let numbers = bytes(&[self.version, price[0], capacity_us]);
            return (&script::BUCKET, vec![numbers, owing_lives_ms(price[0])]);
        }
        (self.script(), vec![self.args(operation, cost, around), self.fresh.clone()])
    }

    /// Returns the capacity of a bucket whose tick is a microsecond and that starts full.
    fn whole_capacity(&self) -> Option<f64> {
        let is_bucket = matches!(self.stem(), "token_bucket" | "leaky");
        match *self.numbers {
            [capacity_us, _, _, _, 1.0] if is_bucket && self.full_from == 0.0 => Some(capacity_us),
            _ => None,
        }
    }

    /// Returns the cost to send. A cost that is too large to send is never admitted: it is sent as 0, which charges nothing
    /// but repairs the state after a step of the clock, as every denial does. A refund that is too large refunds everything.
    fn sendable(&self, operation: Operation, cost: u64) -> u64 {
        if self.is_sendable(cost) {
            return cost;
        }
        match operation {
            Operation::Charge | Operation::Peek => 0,
            Operation::Refund => {
                let mut most = cost;
                while self.limit.lua_cost(most).is_err() {
                    most /= 2;
                }
                most
            }
        }
    }

    /// Returns whether this cost can be sent to a script.
    pub(crate) fn is_sendable(&self, cost: u64) -> bool {
        self.limit.lua_cost(cost).is_ok()
    }

    /// Returns whether the rule never admits this cost, in any store.
    fn is_impossible(&self, cost: u64) -> bool {
        self.limit.peek(&self.limit.fresh(self.birth), self.birth, cost).is_deny()
    }

    /// Reads the reply of a script.
    pub(crate) fn read(&self, value: &Value) -> Result<ScriptReply, Malformed> {
        let malformed = || Malformed { got: format!("{value:?}") };
        self.reply(value).ok_or_else(malformed)
    }

    fn reply(&self, value: &Value) -> Option<ScriptReply> {
        match (self.twin.shape, value) {
            (_, Value::BulkString(value)) => Some(ScriptReply::OtherVersion(value.clone())),
            (Shape::Cell { state }, Value::Int(owed)) => {
                Some(ScriptReply::Decision(owes(*owed, state)))
            }
            (Shape::Cell { state }, Value::Array(parts)) => match parts.as_slice() {
                [Value::Int(now)] => Some(ScriptReply::OtherTime(timestamp(*now)?)),
                [Value::Int(time), Value::BulkString(value)] => {
                    let state = match numbers(value)?.as_slice() {
                        [] => None,
                        [_version, _lives, numbers @ .., _wrote] if numbers.len() == state => {
                            Some(numbers.to_vec())
                        }
                        _ => return None,
                    };
                    Some(ScriptReply::Decision(ScriptDecision::at(*time, state, None)?))
                }
                _ => None,
            },
            (Shape::Rows { .. }, Value::Array(parts)) => {
                let numbers: Option<Vec<i64>> = parts.iter().map(integer).collect();
                let (time, reported) = numbers.as_deref()?.split_first()?;
                let ticket = reported.get(4).and_then(|ticket| u64::try_from(*ticket).ok());
                let state = match reported {
                    [] => None,
                    #[expect(clippy::cast_precision_loss, reason = "they were doubles")]
                    reported => {
                        Some(reported.iter().take(4).map(|number| *number as f64).collect())
                    }
                };
                Some(ScriptReply::Decision(ScriptDecision::at(*time, state, ticket)?))
            }
            _ => None,
        }
    }

    /// Computes the decision about `cost`.
    pub(crate) fn decision(
        &self,
        answer: &ScriptDecision,
        operation: Operation,
        cost: u64,
    ) -> Result<Decision, Malformed> {
        let mut state = self.state(answer)?;
        match operation {
            Operation::Charge => {}
            Operation::Peek => return Ok(self.limit.peek(&state, answer.now, cost)),
            Operation::Refund => return Ok(self.limit.peek(&state, answer.now, 0)),
        }
        let decision = self.limit.decide(&mut state, answer.now, cost);
        // A cost that cannot be sent was sent as 0, which a script always admits.
        match (answer.is_charged, decision.is_deny()) {
            (true, false) if self.is_sendable(cost) => Ok(decision),
            (false, true) => Ok(decision),
            // More than Redis can count is never admitted.
            (_, false) => {
                let before = self.limit.peek(&self.state(answer)?, answer.now, 0);
                Ok(before.deny(Retry::Never).decision)
            }
            (true, true) if !self.is_sendable(cost) => Ok(decision),
            (true, true) => {
                Err(Malformed { got: format!("admitted, although the decision is {decision:?}") })
            }
        }
    }

    /// Returns the state before the decision.
    pub(crate) fn state(&self, answer: &ScriptDecision) -> Result<State, Malformed> {
        let Some(numbers) = &answer.state else { return Ok(self.limit.fresh(self.birth)) };
        let malformed = || Malformed { got: format!("the state {numbers:?}") };
        self.limit.state_from_lua(numbers).ok_or_else(malformed)
    }
}

impl ScriptDecision {
    /// Reads the time of a reply. A denial is encoded as -1 minus the time.
    fn at(time: i64, state: Option<Vec<f64>>, ticket: Option<u64>) -> Option<Self> {
        let (is_charged, time) = if time >= 0 { (true, time) } else { (false, -1 - time) };
        Some(Self { is_charged, now: timestamp(time)?, state, ticket })
    }

    /// Returns the same decision at a later time, if the key was not charged in between.
    pub(crate) fn later(&self, elapsed: Span) -> Self {
        Self { now: self.now + elapsed, ..self.clone() }
    }

    pub(crate) fn is_charged(&self) -> bool {
        self.is_charged
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.now
    }
}

/// Reads a reply that is the debt of a key, which is all of its state. A denial is encoded as -1 minus the debt.
fn owes(owed: i64, state: usize) -> ScriptDecision {
    let (is_charged, owed) = if owed >= 0 { (true, owed) } else { (false, -1 - owed) };
    let mut numbers = vec![0.0; state];
    #[expect(clippy::cast_precision_loss, reason = "it was a double")]
    let owed = owed as f64;
    numbers[0] = owed;
    ScriptDecision { is_charged, now: Timestamp::EPOCH, state: Some(numbers), ticket: None }
}

/// Returns the time to live of a bucket that owes only this price, as `driver/bucket.lua` computes it.
fn owing_lives_ms(price_us: f64) -> Vec<u8> {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a price is a whole number from 0 to 2^53"
    )]
    let price_us = price_us as u64;
    (price_us + 900_001).div_ceil(1_000).to_string().into_bytes()
}

/// Returns the edges of three windows: the one before `around`, the one at it, and the one after.
fn edges(limit: &Limit, around: Timestamp) -> [f64; 4] {
    let fresh = limit.fresh(around);
    let window = |at| limit.window(&fresh, at).expect("calendars have windows");
    let this = window(around);
    let before = window(this.start - Span::from_micros(1));
    let after = window(this.end);
    #[expect(clippy::cast_precision_loss, reason = "times of this millennium are below 2^53")]
    [before.start, this.start, this.end, after.end].map(|edge| edge.as_micros() as f64)
}

fn timestamp(us: i64) -> Option<Timestamp> {
    u64::try_from(us).ok().map(Timestamp::from_micros)
}

fn integer(value: &Value) -> Option<i64> {
    match value {
        Value::Int(integer) => Some(*integer),
        _ => None,
    }
}

pub(crate) fn bytes(numbers: &[f64]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(numbers.len() * 8);
    for number in numbers {
        bytes.extend_from_slice(&number.to_le_bytes());
    }
    bytes
}

pub(crate) fn numbers(bytes: &[u8]) -> Option<Vec<f64>> {
    let (chunks, []) = bytes.as_chunks::<8>() else { return None };
    Some(chunks.iter().map(|chunk| f64::from_le_bytes(*chunk)).collect())
}

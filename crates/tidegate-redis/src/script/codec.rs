//! A limit whose states are kept by a Lua twin: what is sent to it, and what its answers mean.
//!
//! Always   The twin says yes or no, and what the state was. Every other number of a decision is worked out from
//!          that by core, so that it is the same number wherever a state is kept.
//!          What Lua says is not trusted to be what Lua can say: anything else is an error, and no decision.

use crate::script::{self, Script, Shape, Twin};
use redis::Value;
use tidegate_core::{Decision, Limit, Retry, Span, State, Timestamp, TooLargeForLua};

/// A limit, ready to be asked about in Redis.
#[derive(Debug)]
pub(crate) struct Shared {
    limit: Limit,
    twin: &'static Twin,
    numbers: Vec<f64>,
    version: f64,
    birth: Timestamp,
    /// The state of a key that nobody has asked about.
    fresh: Vec<u8>,
    /// From when on it is as good as new: later than its birth, where a key starts empty.
    rests: f64,
}

/// What is asked of a twin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    /// Decides, and charges unless it denies.
    Take,
    /// Gives back.
    Refund,
    /// Decides without charging.
    Look,
}

/// What a twin said.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Said {
    /// An answer.
    Answer(Answer),
    /// It needs other numbers, for it is this late.
    OtherTime(Timestamp),
    /// The state belongs to another version of the rule.
    OtherVersion(Vec<u8>),
}

/// A decision in the twin's words.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Answer {
    is_charged: bool,
    /// Redis's time, where the answer depends on it.
    now: Timestamp,
    /// The state before, as far as the twin tells it; none if nobody had asked before.
    state: Option<Vec<f64>>,
    /// Names the place that was taken.
    pub(crate) ticket: Option<u64>,
}

/// No answer that the script can give.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no script of ours answers {got}")]
pub(crate) struct Malformed {
    got: String,
}

impl Shared {
    pub(crate) fn new(
        limit: Limit,
        version: u64,
        birth: Timestamp,
    ) -> Result<Self, TooLargeForLua> {
        let twin = Twin::of(limit.stem()).expect("every algorithm has a twin: a test says so");
        let numbers = limit.lua_params()?;
        let fresh = match twin.shape {
            Shape::Cell { .. } => bytes(&limit.state_to_lua(&limit.fresh(birth))?),
            Shape::Rows { .. } => Vec::new(),
        };
        #[expect(clippy::cast_precision_loss, reason = "a version is a time in microseconds")]
        let version = version as f64;
        let starts = limit.peek(&limit.fresh(birth), birth, 0).reset_after;
        #[expect(clippy::cast_precision_loss, reason = "a time of this millennium")]
        let rests = if starts.is_zero() { 0.0 } else { (birth + starts).as_micros() as f64 };
        Ok(Self { limit, twin, numbers, version, birth, fresh, rests })
    }

    /// The same limit in another version.
    pub(crate) fn of_version(&self, limit: Limit, version: u64) -> Result<Self, TooLargeForLua> {
        Self::new(limit, version, self.birth)
    }

    pub(crate) fn limit(&self) -> &Limit {
        &self.limit
    }

    pub(crate) fn stem(&self) -> &'static str {
        self.twin.stem
    }

    /// Whether an answer tells all of a state, and not only what it means for the cost that was asked about.
    pub(crate) fn tells_all(&self) -> bool {
        matches!(self.twin.shape, Shape::Cell { .. })
    }

    pub(crate) fn script(&self) -> &'static Script {
        self.twin.script()
    }

    pub(crate) fn fresh(&self) -> &[u8] {
        &self.fresh
    }

    /// The first argument of the driver. `around` is about Redis's time: calendars are looked up by it.
    pub(crate) fn args(&self, verb: Verb, cost: u64, around: Timestamp) -> Vec<u8> {
        let which = match verb {
            // Only Redis cannot count it: then it is looked at, and nothing is written.
            Verb::Take if !self.is_sendable(cost) && !self.is_impossible(cost) => 2.0,
            Verb::Take => 0.0,
            Verb::Refund => 1.0,
            Verb::Look => 2.0,
        };
        let price = self.limit.lua_cost(self.sendable(verb, cost));
        let price = price.expect("nothing costs nothing, and other costs were tried");
        let mut args = bytes(&[self.version, which, self.rests]);
        args.extend(bytes(&price));
        args.extend(bytes(&self.numbers));
        if self.limit.stem() == "calendar" {
            args.extend(bytes(&edges(&self.limit, around)));
        }
        args
    }

    /// The script that answers it, and its arguments.
    pub(crate) fn question(
        &self,
        verb: Verb,
        cost: u64,
        around: Timestamp,
    ) -> (&'static Script, Vec<Vec<u8>>) {
        if let (Verb::Take, Some(capacity_us), Ok(price)) =
            (verb, self.whole_capacity(), self.limit.lua_cost(cost))
        {
            let numbers = bytes(&[self.version, price[0], capacity_us]);
            return (script::bucket(), vec![numbers, owing_lives_ms(price[0])]);
        }
        (self.script(), vec![self.args(verb, cost, around), self.fresh.clone()])
    }

    /// The capacity of a bucket whose tick is a microsecond, and that starts full.
    fn whole_capacity(&self) -> Option<f64> {
        let is_bucket = matches!(self.stem(), "token_bucket" | "leaky");
        match *self.numbers {
            [capacity_us, _, _, _, 1.0] if is_bucket && self.rests == 0.0 => Some(capacity_us),
            _ => None,
        }
    }

    /// What can be said of a cost. More than that is never admitted, and is asked as nothing, which charges nothing; but
    /// as any other denial does, and as it does in memory, it puts right what a step of the clock has left. To give back
    /// more than can be owed is to give back all.
    fn sendable(&self, verb: Verb, cost: u64) -> u64 {
        if self.is_sendable(cost) {
            return cost;
        }
        match verb {
            Verb::Take | Verb::Look => 0,
            Verb::Refund => {
                let mut most = cost;
                while self.limit.lua_cost(most).is_err() {
                    most /= 2;
                }
                most
            }
        }
    }

    /// Whether a twin can be told this cost.
    pub(crate) fn is_sendable(&self, cost: u64) -> bool {
        self.limit.lua_cost(cost).is_ok()
    }

    /// Whether the rule never admits this cost, whoever counts it.
    fn is_impossible(&self, cost: u64) -> bool {
        self.limit.peek(&self.limit.fresh(self.birth), self.birth, cost).is_deny()
    }

    /// What the driver said.
    pub(crate) fn read(&self, value: &Value) -> Result<Said, Malformed> {
        let malformed = || Malformed { got: format!("{value:?}") };
        self.said(value).ok_or_else(malformed)
    }

    fn said(&self, value: &Value) -> Option<Said> {
        match (self.twin.shape, value) {
            (_, Value::BulkString(value)) => Some(Said::OtherVersion(value.clone())),
            (Shape::Cell { state }, Value::Int(owed)) => Some(Said::Answer(owes(*owed, state))),
            (Shape::Cell { state }, Value::Array(parts)) => match parts.as_slice() {
                [Value::Int(now)] => Some(Said::OtherTime(timestamp(*now)?)),
                [Value::Int(time), Value::BulkString(value)] => {
                    let state = match numbers(value)?.as_slice() {
                        [] => None,
                        [_version, _lives, numbers @ .., _wrote] if numbers.len() == state => {
                            Some(numbers.to_vec())
                        }
                        _ => return None,
                    };
                    Some(Said::Answer(Answer::at(*time, state, None)?))
                }
                _ => None,
            },
            (Shape::Rows { .. }, Value::Array(parts)) => {
                let numbers: Option<Vec<i64>> = parts.iter().map(integer).collect();
                let (time, said) = numbers.as_deref()?.split_first()?;
                let ticket = said.get(4).and_then(|ticket| u64::try_from(*ticket).ok());
                let state = match said {
                    [] => None,
                    #[expect(clippy::cast_precision_loss, reason = "they were doubles")]
                    said => Some(said.iter().take(4).map(|number| *number as f64).collect()),
                };
                Some(Said::Answer(Answer::at(*time, state, ticket)?))
            }
            _ => None,
        }
    }

    /// The decision on `cost`, charged or only looked at.
    pub(crate) fn decision(
        &self,
        answer: &Answer,
        verb: Verb,
        cost: u64,
    ) -> Result<Decision, Malformed> {
        let mut state = self.state(answer)?;
        match verb {
            Verb::Take => {}
            Verb::Look => return Ok(self.limit.peek(&state, answer.now, cost)),
            Verb::Refund => return Ok(self.limit.peek(&state, answer.now, 0)),
        }
        let decision = self.limit.decide(&mut state, answer.now, cost);
        // What cannot be said was asked as nothing, and that is always charged.
        match (answer.is_charged, decision.is_deny()) {
            (true, false) if self.is_sendable(cost) => Ok(decision),
            (false, true) => Ok(decision),
            // More than Redis can count: as good as never.
            (_, false) => {
                let before = self.limit.peek(&self.state(answer)?, answer.now, 0);
                Ok(before.deny(Retry::Never).decision)
            }
            (true, true) if !self.is_sendable(cost) => Ok(decision),
            (true, true) => Err(Malformed { got: format!("yes where it is {decision:?}") }),
        }
    }

    /// Whether the twin has charged it.
    pub(crate) fn state(&self, answer: &Answer) -> Result<State, Malformed> {
        let Some(numbers) = &answer.state else { return Ok(self.limit.fresh(self.birth)) };
        let malformed = || Malformed { got: format!("the state {numbers:?}") };
        self.limit.state_from_lua(numbers).ok_or_else(malformed)
    }
}

impl Answer {
    /// A time below zero is a no: -1 less the time.
    fn at(time: i64, state: Option<Vec<f64>>, ticket: Option<u64>) -> Option<Self> {
        let (is_charged, time) = if time >= 0 { (true, time) } else { (false, -1 - time) };
        Some(Self { is_charged, now: timestamp(time)?, state, ticket })
    }

    /// The same so much later, if nobody has asked since.
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

/// What is owed is all there is to know: then it does not matter what time it is.
fn owes(owed: i64, state: usize) -> Answer {
    let (is_charged, owed) = if owed >= 0 { (true, owed) } else { (false, -1 - owed) };
    let mut numbers = vec![0.0; state];
    #[expect(clippy::cast_precision_loss, reason = "it was a double")]
    let owed = owed as f64;
    numbers[0] = owed;
    Answer { is_charged, now: Timestamp::EPOCH, state: Some(numbers), ticket: None }
}

/// How long a key of a bucket lives that owes this price alone, as `driver/bucket.lua` would work it out.
fn owing_lives_ms(price_us: f64) -> Vec<u8> {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a price is a whole number from 0 to 2^53"
    )]
    let price_us = price_us as u64;
    (price_us + 900_001).div_ceil(1_000).to_string().into_bytes()
}

/// The edges of three windows: this one, the one before and the one after.
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

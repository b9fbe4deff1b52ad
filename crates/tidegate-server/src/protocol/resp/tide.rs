//! `TIDE.*`: requests to any limit, by name or rule text. Times are in milliseconds.
//!
//! `TIDE.CHECK` and `TIDE.PEEK` answer `[allowed 1|0, limit, remaining, retry_after_ms, reset_after_ms]`.
//! `retry_after_ms` is the time to wait, before going on if the request was allowed and before a retry if not; -1 if waiting does
//! not help, -2 if a permit has to be released first. A limit, remaining or reset that is not known is -1.

use super::command::{Command, WrongArity};
use super::parse::Words;
use super::reply::{Reply, shown};
use crate::engine::{
    CheckError, ClientEngine, EffectiveDecision, LeaseId, Limit, LimitRequest, NoSuchLimit,
    NotCheckable, TooManyLeases,
};
use crate::store::{IdempotencyKey, InvalidIdempotencyKey, StoreError};
use std::sync::Arc;
use tidegate::{Decision, Retry, Span, Verdict};

/// Maximum number of limits in one `TIDE.CHECKALL`.
const CHECKS_MAX: usize = 64;

#[derive(Debug, thiserror::Error)]
enum TideError {
    #[error(transparent)]
    Arity(#[from] WrongArity),
    #[error("ERR {0}")]
    NoLimit(#[from] NoSuchLimit),
    #[error("ERR the limit's name or rule is not UTF-8")]
    NoText,
    #[error("ERR syntax error: expected COST and a whole number, got '{0}'")]
    Syntax(String),
    #[error(
        "ERR syntax error: expected COST and a whole number or ID and a text, each once, got '{0}'"
    )]
    CheckSyntax(String),
    #[error("ERR {0}")]
    NoId(#[from] InvalidIdempotencyKey),
    #[error("ERR `{0}` is a concurrency limit: use TIDE.ACQUIRE and TIDE.RELEASE")]
    Concurrency(String),
    #[error("ERR `{0}` is not a concurrency limit: use TIDE.CHECK")]
    NoConcurrency(String),
    #[error("ERR a TIDE.CHECKALL has at most {CHECKS_MAX} limits")]
    TooMany,
    #[error("ERR not a lease: send the lease that TIDE.ACQUIRE returned")]
    NoLease,
    #[error("TRYAGAIN {0}")]
    Store(#[from] StoreError),
    #[error("TRYAGAIN {0}")]
    TooManyLeases(#[from] TooManyLeases),
}

impl From<CheckError> for TideError {
    fn from(error: CheckError) -> Self {
        match error {
            CheckError::NotCheckable(NotCheckable { limit }) => Self::Concurrency(limit),
            CheckError::Store(error) => Self::Store(error),
        }
    }
}

/// Runs a `TIDE` command and appends its answer.
pub(super) async fn run(
    engine: ClientEngine<'_>,
    reply: &mut Reply,
    command: Command,
    bytes: &[u8],
    words: &Words,
) {
    if let Err(error) = answer(engine, reply, command, bytes, words).await {
        reply.error(error);
    }
}

async fn answer(
    engine: ClientEngine<'_>,
    reply: &mut Reply,
    command: Command,
    bytes: &[u8],
    words: &Words,
) -> Result<(), TideError> {
    command.check_arity(words.len())?;
    match command {
        Command::TideCheckAll => return check_all(engine, reply, bytes, words).await,
        Command::TideRelease => return release(engine, reply, words.get(bytes, 1)).await,
        Command::TideCheck => return check(engine, reply, bytes, words).await,
        _ => {}
    }
    let limit = find(engine, words.get(bytes, 1))?;
    let ask = LimitRequest { limit: &limit, key: words.get(bytes, 2), cost: cost(bytes, words)? };
    match command {
        Command::TideReset => engine.reset(&limit, ask.key).await?,
        Command::TideRefund => engine.refund(&ask).await?,
        Command::TideAcquire if limit.rule().is_concurrency() => {
            return acquire(engine, reply, &ask).await;
        }
        Command::TideAcquire => return Err(TideError::NoConcurrency(limit.name().to_owned())),
        _ => {
            reply.five(five(&engine.peek(&ask).await?));
            return Ok(());
        }
    }
    reply.ok();
    Ok(())
}

fn find(engine: ClientEngine<'_>, text: &[u8]) -> Result<Arc<Limit>, TideError> {
    let text = std::str::from_utf8(text).map_err(|_| TideError::NoText)?;
    Ok(engine.find(text)?)
}

/// `[COST n]`, at the end.
fn cost(bytes: &[u8], words: &Words) -> Result<u64, TideError> {
    match (words.len(), words.get(bytes, 3), words.get(bytes, 4)) {
        (3, ..) => Ok(1),
        (5, word, cost) if word.eq_ignore_ascii_case(b"COST") => {
            number(cost).ok_or_else(|| TideError::Syntax(shown(cost)))
        }
        (_, word, _) => Err(TideError::Syntax(shown(word))),
    }
}

/// `TIDE.CHECK limit key [COST n] [ID token]`.
async fn check(
    engine: ClientEngine<'_>,
    reply: &mut Reply,
    bytes: &[u8],
    words: &Words,
) -> Result<(), TideError> {
    let limit = find(engine, words.get(bytes, 1))?;
    let (cost, id) = options(bytes, words)?;
    let ask = LimitRequest { limit: &limit, key: words.get(bytes, 2), cost };
    let answer = match id {
        None => engine.check(&ask).await?,
        Some(id) => engine.check_once(&ask, id).await?,
    };
    reply.five(five(&answer));
    Ok(())
}

/// `[COST n] [ID token]`, in any order.
fn options<'a>(
    bytes: &'a [u8],
    words: &Words,
) -> Result<(u64, Option<IdempotencyKey<'a>>), TideError> {
    let (mut cost, mut id) = (None, None);
    let wrong = |word| TideError::CheckSyntax(shown(word));
    for at in (3..words.len()).step_by(2) {
        let option = words.get(bytes, at);
        if at + 1 == words.len() {
            return Err(wrong(option));
        }
        let value = words.get(bytes, at + 1);
        if cost.is_none() && option.eq_ignore_ascii_case(b"COST") {
            cost = Some(number(value).ok_or_else(|| wrong(value))?);
        } else if id.is_none() && option.eq_ignore_ascii_case(b"ID") {
            let text = std::str::from_utf8(value).map_err(|_| wrong(value))?;
            id = Some(IdempotencyKey::new(text)?);
        } else {
            return Err(wrong(option));
        }
    }
    Ok((cost.unwrap_or(1), id))
}

fn number(word: &[u8]) -> Option<u64> {
    std::str::from_utf8(word).ok()?.parse().ok()
}

async fn acquire(
    engine: ClientEngine<'_>,
    reply: &mut Reply,
    ask: &LimitRequest<'_>,
) -> Result<(), TideError> {
    let acquired = engine.acquire(ask).await?;
    reply.array(5);
    let (decision, wait, lease) = match &acquired {
        Ok(lease) => (lease.decision, lease.lease.map_or(-1, ms), Some(lease.id)),
        Err(answer) => (answer.decision, retry_ms(&answer.decision), None),
    };
    reply.integer(i64::from(lease.is_some()));
    reply.integer(or_unknown(decision.known_limit()));
    reply.integer(or_unknown(decision.known_remaining()));
    reply.integer(wait);
    match lease {
        Some(id) => reply.bulk(id.to_string()),
        None => reply.null(),
    }
    Ok(())
}

async fn release(
    engine: ClientEngine<'_>,
    reply: &mut Reply,
    lease: &[u8],
) -> Result<(), TideError> {
    let text = std::str::from_utf8(lease).ok();
    let id: Option<LeaseId> = text.and_then(|text| text.parse().ok());
    let is_released = engine.release(id.ok_or(TideError::NoLease)?).await?;
    reply.integer(i64::from(is_released));
    Ok(())
}

/// `TIDE.CHECKALL limit key cost [limit key cost …]`: charges all limits, or none. Answers with the joint decision and with the
/// decision of each limit.
async fn check_all(
    engine: ClientEngine<'_>,
    reply: &mut Reply,
    bytes: &[u8],
    words: &Words,
) -> Result<(), TideError> {
    let rest: Vec<&[u8]> = words.from(bytes, 1).collect();
    if !rest.len().is_multiple_of(3) {
        return Err(Command::TideCheckAll.wrong_arity().into());
    }
    if rest.len() / 3 > CHECKS_MAX {
        return Err(TideError::TooMany);
    }
    let limits = rest.chunks_exact(3).map(|ask| find(engine, ask[0]));
    let limits: Vec<Arc<Limit>> = limits.collect::<Result<_, _>>()?;
    let asks = limits.iter().zip(rest.chunks_exact(3)).map(|(limit, ask)| {
        let cost = number(ask[2]).ok_or_else(|| TideError::Syntax(shown(ask[2])))?;
        Ok(LimitRequest { limit, key: ask[1], cost })
    });
    let asks: Vec<LimitRequest<'_>> = asks.collect::<Result<_, TideError>>()?;
    let joint = engine.check_all(&asks).await?;
    reply.array(2);
    reply.five(five(&joint.all));
    reply.array(joint.each.len());
    for answer in &joint.each {
        reply.five(five(answer));
    }
    Ok(())
}

fn five(answer: &EffectiveDecision) -> [i64; 5] {
    let decision = &answer.decision;
    [
        i64::from(answer.passes()),
        or_unknown(decision.known_limit()),
        or_unknown(decision.known_remaining()),
        retry_ms(decision),
        decision.known_reset_after().map_or(UNKNOWN, ms),
    ]
}

fn retry_ms(decision: &Decision) -> i64 {
    match decision.verdict {
        Verdict::Allow => 0,
        Verdict::Wait(span) | Verdict::Deny(Retry::After(span)) => ms(span),
        Verdict::Deny(Retry::Never) => -1,
        Verdict::Deny(Retry::OnRelease) => -2,
    }
}

/// Rounds up, so that a client that waits this long is not too early.
fn ms(span: Span) -> i64 {
    clamped(span.as_micros().div_ceil(1_000))
}

/// Stands for a number that is not known.
const UNKNOWN: i64 = -1;

fn or_unknown(value: Option<u64>) -> i64 {
    value.map_or(UNKNOWN, clamped)
}

fn clamped(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_number_is_minus_one() {
        let second = Retry::After(Span::from_secs(1));
        let cases = [
            (Decision::UNLIMITED, [1, -1, -1, 0, 0]),
            (Decision::without_state(Verdict::Allow), [1, -1, -1, 0, -1]),
            (Decision::without_state(Verdict::Deny(second)), [0, -1, 0, 1_000, -1]),
            (Decision::without_state(Verdict::Deny(Retry::OnRelease)), [0, -1, 0, -2, -1]),
        ];
        for (decision, expected) in cases {
            assert_eq!(five(&EffectiveDecision::enforced(decision)), expected, "{decision:?}");
        }
    }
}

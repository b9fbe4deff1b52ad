//! `/v1/check`, `/v1/peek`, `/v1/reset` and `/v1/refund`.

use super::check_body::{CHECK, CHECK_OR_CHECKS, CheckBody, WITHOUT_COST, parse};
use super::decision;
use super::problem::Problem;
use super::resolved_check::ResolvedCheck;
use super::response::RawResponse;
use crate::engine::{ClientEngine, EffectiveDecision, Engine, LimitRequest};
use crate::store::IdempotencyKey;
use tidegate_http::{HeaderStyle, LimitStatus};

/// Decides one check, or several atomically.
pub(super) async fn check(
    engine: ClientEngine<'_>,
    body: &[u8],
    style: HeaderStyle,
) -> Result<RawResponse, Problem> {
    let mut parsed = parse(body, CHECK_OR_CHECKS)?;
    if let Some(checks) = parsed.checks.take() {
        if parsed.id.is_some() {
            return Err(Problem::bad("`id` is for a single check: remove it or `checks`"));
        }
        if parsed.has_check_members() {
            return Err(Problem::bad("move the other fields into each entry of `checks`"));
        }
        return check_all(engine, checks, style).await;
    }
    let id = parsed.id.take();
    let check = parsed.resolve(engine)?;
    let answer = match &id {
        None => engine.check(&check.request()).await?,
        Some(id) => engine.check_once(&check.request(), IdempotencyKey::new(id)?).await?,
    };
    Ok(respond(&check, answer, style))
}

async fn check_all(
    engine: ClientEngine<'_>,
    checks: Vec<CheckBody<'_>>,
    style: HeaderStyle,
) -> Result<RawResponse, Problem> {
    let checks: Vec<ResolvedCheck<'_>> = checks
        .into_iter()
        .enumerate()
        .map(|(index, check)| check.resolve(engine).map_err(|problem| problem.in_check(index)))
        .collect::<Result<_, _>>()?;
    let asks: Vec<LimitRequest<'_>> = checks.iter().map(ResolvedCheck::request).collect();
    let joint = engine.check_all(&asks).await?;
    let statuses: Vec<LimitStatus<'_>> = checks
        .iter()
        .zip(&joint.each)
        .filter_map(|(check, answer)| check.limit.status(*answer))
        .collect();
    Ok(decision::answer(style, &statuses, &joint.all, |out| decision::each(out, &joint.each)))
}

/// Returns what [`check`] would answer, and charges nothing.
pub(super) async fn peek(
    engine: ClientEngine<'_>,
    body: &[u8],
    style: HeaderStyle,
) -> Result<RawResponse, Problem> {
    let check = parse(body, CHECK)?.resolve(engine)?;
    let answer = engine.peek(&check.request()).await?;
    Ok(respond(&check, answer, style))
}

/// Resets a key, and returns its new state.
pub(super) async fn reset(
    engine: ClientEngine<'_>,
    body: &[u8],
    style: HeaderStyle,
) -> Result<RawResponse, Problem> {
    let check = parse(body, WITHOUT_COST)?.resolve(engine)?;
    let ask = check.request();
    engine.reset(ask.limit, ask.key).await?;
    state_of_key(&engine, &check, style).await
}

/// Refunds a cost, and returns the key's new state.
pub(super) async fn refund(
    engine: ClientEngine<'_>,
    body: &[u8],
    style: HeaderStyle,
) -> Result<RawResponse, Problem> {
    let check = parse(body, CHECK)?.resolve(engine)?;
    engine.refund(&check.request()).await?;
    state_of_key(&engine, &check, style).await
}

/// Peeks with a cost of 0, which is never denied.
async fn state_of_key(
    engine: &Engine,
    check: &ResolvedCheck<'_>,
    style: HeaderStyle,
) -> Result<RawResponse, Problem> {
    let answer = engine.peek(&LimitRequest { cost: 0, ..check.request() }).await?;
    Ok(respond(check, answer, style))
}

fn respond(
    check: &ResolvedCheck<'_>,
    answer: EffectiveDecision,
    style: HeaderStyle,
) -> RawResponse {
    decision::answer(style, check.limit.status(answer).as_slice(), &answer, |_| ())
}

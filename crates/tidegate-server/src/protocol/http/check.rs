//! `/v1/check`, `/v1/peek`, `/v1/reset` and `/v1/refund`.

use super::decision;
use super::page::Answered;
use super::problem::Problem;
use super::question::Question;
use super::said::{self, FREE, ONE, SEVERAL, Said};
use crate::engine::{Answer, ClientEngine, Engine, LimitRequest};
use crate::store::IdempotencyKey;
use tidegate_http::{HeaderStyle, LimitStatus};

/// Decides, one question or several as one.
pub(super) async fn check(
    engine: ClientEngine<'_>,
    body: &[u8],
    style: HeaderStyle,
) -> Result<Answered, Problem> {
    let mut said = said::read(body, SEVERAL)?;
    if let Some(checks) = said.checks.take() {
        if said.id.is_some() {
            return Err(Problem::bad("`id` is for one question, and not for several as one"));
        }
        if said.is_question() {
            return Err(Problem::bad("what stands beside `checks` belongs into each of them"));
        }
        return check_all(engine, checks, style).await;
    }
    let id = said.id.take();
    let question = said.question(engine)?;
    let answer = match &id {
        None => engine.check(&question.ask()).await?,
        Some(id) => engine.check_once(&question.ask(), IdempotencyKey::new(id)?).await?,
    };
    Ok(tell(&question, answer, style))
}

async fn check_all(
    engine: ClientEngine<'_>,
    checks: Vec<Said<'_>>,
    style: HeaderStyle,
) -> Result<Answered, Problem> {
    let questions: Vec<Question<'_>> = checks
        .into_iter()
        .enumerate()
        .map(|(place, said)| said.question(engine).map_err(|problem| problem.within(place)))
        .collect::<Result<_, _>>()?;
    let asks: Vec<LimitRequest<'_>> = questions.iter().map(Question::ask).collect();
    let joint = engine.check_all(&asks).await?;
    let told: Vec<LimitStatus<'_>> = questions
        .iter()
        .zip(&joint.each)
        .filter_map(|(question, answer)| question.limit.status(*answer))
        .collect();
    Ok(decision::answer(style, &told, &joint.all, |out| decision::each(out, &joint.each)))
}

/// Says what [`check`] would say to one question.
pub(super) async fn peek(
    engine: ClientEngine<'_>,
    body: &[u8],
    style: HeaderStyle,
) -> Result<Answered, Problem> {
    let question = said::read(body, ONE)?.question(engine)?;
    let answer = engine.peek(&question.ask()).await?;
    Ok(tell(&question, answer, style))
}

/// Forgets a key, and says what it has then.
pub(super) async fn reset(
    engine: ClientEngine<'_>,
    body: &[u8],
    style: HeaderStyle,
) -> Result<Answered, Problem> {
    let question = said::read(body, FREE)?.question(engine)?;
    let ask = question.ask();
    engine.reset(ask.limit, ask.key).await?;
    what_is_left(&engine, &question, style).await
}

/// Gives back what was charged, and says what the key has then.
pub(super) async fn refund(
    engine: ClientEngine<'_>,
    body: &[u8],
    style: HeaderStyle,
) -> Result<Answered, Problem> {
    let question = said::read(body, ONE)?.question(engine)?;
    engine.refund(&question.ask()).await?;
    what_is_left(&engine, &question, style).await
}

/// Asks for nothing, which is never denied.
async fn what_is_left(
    engine: &Engine,
    question: &Question<'_>,
    style: HeaderStyle,
) -> Result<Answered, Problem> {
    let answer = engine.peek(&LimitRequest { cost: 0, ..question.ask() }).await?;
    Ok(tell(question, answer, style))
}

fn tell(question: &Question<'_>, answer: Answer, style: HeaderStyle) -> Answered {
    decision::answer(style, question.limit.status(answer).as_slice(), &answer, |_| ())
}

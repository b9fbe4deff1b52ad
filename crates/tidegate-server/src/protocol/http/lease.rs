//! `/v1/acquire` and `/v1/release`: a place under a concurrency limit, held over the wire.

use super::decision::{self, member};
use super::page::{Answered, JSON, Page};
use super::problem::Problem;
use super::said::{self, LEASE, ONE};
use crate::engine::{Answer, ClientEngine, Engine, Lease, LeaseId};
use http::StatusCode;
use std::io::Write;
use tidegate_http::{HeaderStyle, millis_ceil};

/// Takes a place, and says what to give it back by.
pub(super) async fn acquire(
    engine: ClientEngine<'_>,
    body: &[u8],
    style: HeaderStyle,
) -> Result<Answered, Problem> {
    let question = said::read(body, ONE)?.question(engine)?;
    if !question.limit.rule().is_concurrency() {
        return Err(Problem::bad(format!(
            "limit `{}` counts requests, not who is in flight: ask /v1/check",
            question.limit.name()
        )));
    }
    let limit = &*question.limit;
    Ok(match engine.acquire(&question.ask()).await? {
        Ok(lease) => {
            let answer = Answer::enforced(lease.decision);
            let told = limit.status(answer);
            decision::answer(style, told.as_slice(), &answer, |out| held(out, &lease))
        }
        Err(answer) => decision::answer(style, limit.status(answer).as_slice(), &answer, |_| ()),
    })
}

fn held(out: &mut Vec<u8>, lease: &Lease) {
    write!(out, r#","lease":"{}""#, lease.id).expect("a buffer takes all");
    match lease.lease {
        Some(lease) => member(out, r#","lease_ms":"#, millis_ceil(lease)),
        None => out.extend_from_slice(br#","lease_ms":null"#),
    }
}

/// Gives a place back.
pub(super) async fn release(engine: &Engine, body: &[u8]) -> Result<Answered, Problem> {
    let said = said::read(body, LEASE)?;
    let Some(text) = said.lease else {
        return Err(Problem::bad("`lease` is missing: what /v1/acquire answered"));
    };
    let lease: LeaseId = text
        .parse()
        .map_err(|_| Problem::bad("`lease` is not one: it has 32 hexadecimal digits"))?;
    let is_released = engine.release(lease).await?;
    Ok(Page::new(StatusCode::OK).body(JSON, |out| {
        write!(out, r#"{{"released":{is_released}}}"#).expect("a buffer takes all");
    }))
}

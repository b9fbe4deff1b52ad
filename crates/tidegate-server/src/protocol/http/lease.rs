//! `/v1/acquire` and `/v1/release`: permits of concurrency limits, held under a lease.

use super::check_body::{CHECK, RELEASE, parse};
use super::decision::{self, member};
use super::problem::Problem;
use super::response::{JSON, RawResponse, ResponseBuilder};
use crate::engine::{ClientEngine, EffectiveDecision, Engine, Lease, LeaseId};
use http::StatusCode;
use std::io::Write;
use tidegate_http::{HeaderStyle, millis_ceil};

/// Acquires a permit, and returns the lease to release it with.
pub(super) async fn acquire(
    engine: ClientEngine<'_>,
    body: &[u8],
    style: HeaderStyle,
) -> Result<RawResponse, Problem> {
    let check = parse(body, CHECK)?.resolve(engine)?;
    if !check.limit.rule().is_concurrency() {
        return Err(Problem::bad(format!(
            "limit `{}` is not a concurrency limit: use /v1/check",
            check.limit.name()
        )));
    }
    let limit = &*check.limit;
    Ok(match engine.acquire(&check.request()).await? {
        Ok(lease) => {
            let answer = EffectiveDecision::enforced(lease.decision);
            let status = limit.status(answer);
            decision::answer(style, status.as_slice(), &answer, |out| put_lease(out, &lease))
        }
        Err(answer) => decision::answer(style, limit.status(answer).as_slice(), &answer, |_| ()),
    })
}

fn put_lease(out: &mut Vec<u8>, lease: &Lease) {
    write!(out, r#","lease":"{}""#, lease.id).expect("writing to a vector cannot fail");
    match lease.lease {
        Some(lease) => member(out, r#","lease_ms":"#, millis_ceil(lease)),
        None => out.extend_from_slice(br#","lease_ms":null"#),
    }
}

/// Releases a permit.
pub(super) async fn release(engine: &Engine, body: &[u8]) -> Result<RawResponse, Problem> {
    let Some(text) = parse(body, RELEASE)?.lease else {
        return Err(Problem::bad("`lease` is missing: send the lease that /v1/acquire returned"));
    };
    let lease: LeaseId =
        text.parse().map_err(|_| Problem::bad("`lease` must have 32 hexadecimal digits"))?;
    let is_released = engine.release(lease).await?;
    Ok(ResponseBuilder::new(StatusCode::OK).body(JSON, |out| {
        write!(out, r#"{{"released":{is_released}}}"#).expect("writing to a vector cannot fail");
    }))
}

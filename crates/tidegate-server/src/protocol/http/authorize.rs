//! `/v1/authorize`: a proxy holds a request and asks whether it may pass (nginx `auth_request`, forward-auth of
//! Traefik and Caddy).
//!
//! Always   All limits that count the request are asked as one: it is charged to all of them, or to none.
//! Always   The proxy lets it pass as soon as it is answered, so who has to wait is answered after the wait.
//! Always   A proxy takes 2xx for yes, and follows or hands on 3xx: a denial is never less than 400, whatever the
//!          limit's fallback says.

use super::decision;
use super::original::{Family, Original};
use super::page::{Answered, Page};
use super::problem::Problem;
use super::query::parameters;
use super::question::bounded;
use crate::config::{Fallback, near};
use crate::engine::{Answer, ClientEngine, LimitRequest};
use crate::matching::{self, Counted, Look};
use crate::server::Server;
use http::request::Parts;
use http::{HeaderValue, StatusCode};
use std::borrow::Cow;
use std::net::SocketAddr;
use tidegate::store::ClientId;
use tidegate::{Clock, Verdict};
use tidegate_http::{HeaderStyle, LimitStatus};

const PARAMETERS: [&str; 6] = ["limit", "key", "cost", "deny", "headers", "from"];

/// The status of a denial, unless the proxy or the limit's fallback names another.
const DENIED: StatusCode = StatusCode::TOO_MANY_REQUESTS;

/// So many limits may be named.
const LIMITS_MAX: usize = super::said::CHECKS_MAX;

/// Decides about the request that a proxy holds.
pub(super) async fn authorize(
    server: &Server,
    request: &Parts,
    (peer, id): (SocketAddr, ClientId),
    style: HeaderStyle,
) -> Result<Answered, Problem> {
    let asked = Asked::read(request.uri.query().unwrap_or_default())?;
    let original = Original::read(request, asked.from)?;
    let counted = {
        let config = server.config();
        asked.counted(server.engine.by(id), &original.request(peer, &config.server))?
    };
    let cost = asked.cost;
    let asks: Vec<LimitRequest<'_>> = counted
        .iter()
        .map(|counted| LimitRequest { limit: &counted.limit, key: &counted.key, cost })
        .collect();
    let joint = server.engine.check_all(&asks).await?;
    let told: Vec<LimitStatus<'_>> = counted
        .iter()
        .zip(&joint.each)
        .filter_map(|(counted, answer)| counted.limit.status(*answer))
        .collect();
    if let Verdict::Wait(span) = joint.all.decision.verdict {
        let clock = server.engine.clock();
        clock.sleep_until(clock.now() + span).await;
    }
    let fallback = fallback(&counted, &joint.each);
    Ok(tell((&told, &joint.all), style, fallback, asked.deny))
}

/// What the first limit that denies and has something instead has.
fn fallback<'a>(counted: &'a [Counted], answers: &[Answer]) -> Option<&'a Fallback> {
    let mut denying = counted.iter().zip(answers).filter(|(_, answer)| !answer.passes());
    denying.find_map(|(counted, _)| counted.limit.config().fallback.as_ref())
}

fn tell(
    (told, all): (&[LimitStatus<'_>], &Answer),
    style: HeaderStyle,
    fallback: Option<&Fallback>,
    deny: Option<StatusCode>,
) -> Answered {
    if all.passes() {
        let mut page = Page::new(StatusCode::NO_CONTENT);
        style.write(&mut page, told, &all.decision);
        return page.empty();
    }
    // The proxy's own configuration goes first: nginx makes 500 of a status that it does not know.
    let status = deny.or(fallback.and_then(Fallback::denial_status)).unwrap_or(DENIED);
    match fallback {
        Some(fallback) => instead(fallback, status, (told, all), style),
        None => decision::deny(status, style, (told, all), |_| ()),
    }
}

/// The limit's own content for a denied caller, under a status that the proxy takes for a denial.
fn instead(
    fallback: &Fallback,
    status: StatusCode,
    (told, all): (&[LimitStatus<'_>], &Answer),
    style: HeaderStyle,
) -> Answered {
    let kind = HeaderValue::from_str(&fallback.content_type);
    let mut page = Page::new(status);
    style.write(&mut page, told, &all.decision);
    page.body(kind.unwrap_or(HeaderValue::from_static("text/plain; charset=utf-8")), |out| {
        out.extend_from_slice(fallback.body.as_bytes());
    })
}

/// What the proxy's configuration asks for.
#[derive(Debug)]
struct Asked<'a> {
    from: Option<Family>,
    limits: Vec<Cow<'a, [u8]>>,
    key: Option<Cow<'a, [u8]>>,
    cost: u64,
    /// The status of a denial, where the proxy names one.
    deny: Option<StatusCode>,
}

impl<'a> Asked<'a> {
    fn read(query: &'a str) -> Result<Self, Problem> {
        let mut asked = Self { from: None, limits: Vec::new(), key: None, cost: 1, deny: None };
        for (name, value) in parameters(query) {
            match &*name {
                b"from" => asked.from = Some(Family::named(&value)?),
                b"limit" => asked.limits.push(value),
                b"key" => asked.key = Some(bounded(value)?),
                b"cost" => asked.cost = cost(&value)?,
                b"deny" => asked.deny = Some(status(&value)?),
                b"headers" => {}
                _ => return Err(unknown(&name)),
            }
        }
        if asked.limits.len() > LIMITS_MAX {
            return Err(Problem::bad(format!("at most {LIMITS_MAX} limits may be named")));
        }
        if asked.limits.is_empty() && asked.key.is_some() {
            return Err(Problem::bad("`key` is for limits that are named: say `limit` too"));
        }
        Ok(asked)
    }

    /// The refusal of a request that has no key.
    fn refusal(&self, detail: String) -> Problem {
        Problem::new(self.deny.unwrap_or(DENIED), detail)
    }

    /// The limits that are named, or all that count the request.
    fn counted(
        &self,
        engine: ClientEngine<'_>,
        request: &matching::Request<'_>,
    ) -> Result<Vec<Counted>, Problem> {
        if self.limits.is_empty() {
            let counted = matching::counted(&engine.limits(), request);
            return counted.map_err(|missing| self.refusal(missing.to_string()));
        }
        let named = self.limits.iter().map(|name| self.named(name, engine, request));
        named.filter_map(Result::transpose).collect()
    }

    /// One that is named: for the key that is said, or for the one that it finds in the request.
    fn named(
        &self,
        name: &[u8],
        engine: ClientEngine<'_>,
        request: &matching::Request<'_>,
    ) -> Result<Option<Counted>, Problem> {
        let name = std::str::from_utf8(name).map_err(|_| Problem::bad("`limit` is no text"))?;
        let limit = engine.find(name)?;
        limit.ensure_checkable()?;
        if let Some(key) = &self.key {
            return Ok(Some(Counted { limit, key: key.to_vec() }));
        }
        let look = matching::look(limit.config(), request);
        match look {
            Look::Counts { key, .. } => Ok(Some(Counted { limit, key })),
            Look::Refuses(fault) => Err(self.refusal(fault.refusal(name).to_string())),
            _ => Ok(None),
        }
    }
}

pub(super) fn cost(text: &[u8]) -> Result<u64, Problem> {
    let cost = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
    cost.ok_or_else(|| Problem::bad(format!("`cost` is a whole number from 0 to {}", u64::MAX)))
}

fn status(text: &[u8]) -> Result<StatusCode, Problem> {
    let status = StatusCode::from_bytes(text).ok();
    status
        .filter(|status| status.is_client_error() || status.is_server_error())
        .ok_or_else(|| Problem::bad("`deny` is a status from 400 to 599"))
}

fn unknown(name: &[u8]) -> Problem {
    let name = String::from_utf8_lossy(&name[..name.len().min(64)]);
    match near(&name, PARAMETERS.into_iter()) {
        Some(near) => Problem::bad(format!("unknown parameter; did you mean `{near}`?")),
        None => Problem::bad(format!("unknown parameter; there are {}", PARAMETERS.join(", "))),
    }
}

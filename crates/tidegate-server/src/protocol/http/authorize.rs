//! `/v1/authorize`: decides whether a proxy may forward a request (nginx `auth_request`, forward-auth of Traefik and Caddy).
//!
//! Invariant The request is charged to all limits that count it, or to none.
//! Invariant The proxy forwards the request as soon as it gets the response, so a request that has to wait is answered after the
//!           wait.
//! Invariant A proxy takes 2xx as permission and follows or forwards 3xx, so the status of a denial is never below 400, whatever the
//!           limit's fallback says.

use super::decision;
use super::original_request::{HeaderFamily, OriginalRequest};
use super::problem::Problem;
use super::query::parameters;
use super::resolved_check::bounded;
use super::response::{RawResponse, ResponseBuilder};
use crate::config::{Fallback, near};
use crate::engine::{ClientEngine, EffectiveDecision, LimitRequest};
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

/// Default status of a denial.
const DENIED: StatusCode = StatusCode::TOO_MANY_REQUESTS;

/// Maximum number of `limit` parameters.
const LIMITS_MAX: usize = super::check_body::CHECKS_MAX;

/// Decides about the request that a proxy describes.
pub(super) async fn authorize(
    server: &Server,
    request: &Parts,
    (peer, client): (SocketAddr, ClientId),
    style: HeaderStyle,
) -> Result<RawResponse, Problem> {
    let parameters = Parameters::parse(request.uri.query().unwrap_or_default())?;
    let original = OriginalRequest::read(request, parameters.from)?;
    let counted = {
        let config = server.config();
        parameters.counted(server.engine.by(client), &original.request(peer, &config.server))?
    };
    let cost = parameters.cost;
    let asks: Vec<LimitRequest<'_>> = counted
        .iter()
        .map(|counted| LimitRequest { limit: &counted.limit, key: &counted.key, cost })
        .collect();
    let joint = server.engine.check_all(&asks).await?;
    let statuses: Vec<LimitStatus<'_>> = counted
        .iter()
        .zip(&joint.each)
        .filter_map(|(counted, answer)| counted.limit.status(*answer))
        .collect();
    if let Verdict::Wait(span) = joint.all.decision.verdict {
        let clock = server.engine.clock();
        clock.sleep_until(clock.now() + span).await;
    }
    let fallback = fallback(&counted, &joint.each);
    Ok(respond((&statuses, &joint.all), style, fallback, parameters.deny))
}

/// Returns the first fallback among the limits that deny.
fn fallback<'a>(counted: &'a [Counted], answers: &[EffectiveDecision]) -> Option<&'a Fallback> {
    let mut denying = counted.iter().zip(answers).filter(|(_, answer)| !answer.passes());
    denying.find_map(|(counted, _)| counted.limit.config().fallback.as_ref())
}

fn respond(
    (statuses, all): (&[LimitStatus<'_>], &EffectiveDecision),
    style: HeaderStyle,
    fallback: Option<&Fallback>,
    deny: Option<StatusCode>,
) -> RawResponse {
    if all.passes() {
        let mut page = ResponseBuilder::new(StatusCode::NO_CONTENT);
        style.write(&mut page, statuses, &all.decision);
        return page.empty();
    }
    // The proxy's parameter has precedence: nginx answers 500 if it gets a status that it does not know.
    let status = deny.or(fallback.and_then(Fallback::denial_status)).unwrap_or(DENIED);
    match fallback {
        Some(fallback) => respond_fallback(fallback, status, (statuses, all), style),
        None => decision::deny(status, style, (statuses, all), |_| ()),
    }
}

/// Renders the fallback's content, with a status that the proxy takes as a denial.
fn respond_fallback(
    fallback: &Fallback,
    status: StatusCode,
    (statuses, all): (&[LimitStatus<'_>], &EffectiveDecision),
    style: HeaderStyle,
) -> RawResponse {
    let content_type = HeaderValue::from_str(&fallback.content_type);
    let mut page = ResponseBuilder::new(status);
    style.write(&mut page, statuses, &all.decision);
    page.body(
        content_type.unwrap_or(HeaderValue::from_static("text/plain; charset=utf-8")),
        |out| {
            out.extend_from_slice(fallback.body.as_bytes());
        },
    )
}

/// The parameters of the query, which the proxy's configuration contains.
#[derive(Debug)]
struct Parameters<'a> {
    from: Option<HeaderFamily>,
    limits: Vec<Cow<'a, [u8]>>,
    key: Option<Cow<'a, [u8]>>,
    cost: u64,
    /// The status of a denial.
    deny: Option<StatusCode>,
}

impl<'a> Parameters<'a> {
    fn parse(query: &'a str) -> Result<Self, Problem> {
        let mut parsed = Self { from: None, limits: Vec::new(), key: None, cost: 1, deny: None };
        for (name, value) in parameters(query) {
            match &*name {
                b"from" => parsed.from = Some(HeaderFamily::named(&value)?),
                b"limit" => parsed.limits.push(value),
                b"key" => parsed.key = Some(bounded(value)?),
                b"cost" => parsed.cost = cost(&value)?,
                b"deny" => parsed.deny = Some(status(&value)?),
                b"headers" => {}
                _ => return Err(unknown(&name)),
            }
        }
        if parsed.limits.len() > LIMITS_MAX {
            return Err(Problem::bad(format!("at most {LIMITS_MAX} limits may be named")));
        }
        if parsed.limits.is_empty() && parsed.key.is_some() {
            return Err(Problem::bad(
                "`key` needs `limit`: a limit without `limit` takes its key from the request",
            ));
        }
        Ok(parsed)
    }

    /// Returns the response to a request without a key.
    fn refusal(&self, detail: String) -> Problem {
        Problem::new(self.deny.unwrap_or(DENIED), detail)
    }

    /// Returns the limits of the `limit` parameters, or all that count the request, with their keys.
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

    /// Returns the limit of a `limit` parameter with its key: the `key` parameter, or the key that the limit finds in the request.
    fn named(
        &self,
        name: &[u8],
        engine: ClientEngine<'_>,
        request: &matching::Request<'_>,
    ) -> Result<Option<Counted>, Problem> {
        let name = std::str::from_utf8(name).map_err(|_| Problem::bad("`limit` is not UTF-8"))?;
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
    match near(&name, PARAMETERS) {
        Some(near) => Problem::bad(format!("unknown parameter; did you mean `{near}`?")),
        None => Problem::bad(format!("unknown parameter; there are {}", PARAMETERS.join(", "))),
    }
}

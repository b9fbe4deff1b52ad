//! Who may come in: what is looked at before anybody reads what a request asks.
//!
//! Always   A browser that a stranger's page steers gets nothing and changes nothing: it cannot send JSON as JSON, nor the
//!          fields that a proxy sends, to another origin without asking first, and nobody here says yes to that
//!          question. What it can send says where it comes from.
//! Always   A page under a name that leads to us by a trick (DNS rebinding) is at home there and may send what it likes; a GET
//!          of its own does not even say whence. Where no token keeps it out, the name does.

use super::original::is_told;
use super::problem::Problem;
use super::query::parameter;
use super::route::Route;
use crate::config::ServerConfig;
pub(crate) use crate::matching::without_port;
use crate::server::Server;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST, HeaderName, ORIGIN, TRANSFER_ENCODING};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, StatusCode, Version};
use std::net::IpAddr;
use std::sync::atomic::Ordering;

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const API_KEY: HeaderName = HeaderName::from_static("x-api-key");

/// The one host that the request is for. hyper lets through what has none, or two.
pub(crate) fn host(request: &Parts) -> Result<&str, Problem> {
    let mut hosts = request.headers.get_all(HOST).iter();
    let (host, other) = (hosts.next(), hosts.next());
    let authority = request.uri.authority().filter(|_| request.version >= Version::HTTP_2);
    let text = match (host, authority) {
        (Some(host), _) => host.to_str().ok(),
        (None, Some(authority)) => Some(authority.as_str()),
        (None, None) => None,
    };
    match text {
        Some(text) if !text.is_empty() && other.is_none() => Ok(text),
        _ => Err(Problem::bad("the request must have one Host field, and only one")),
    }
}

/// Refuses a target in absolute form (`GET http://host/path`), which only a proxy is sent. Go hands on an opaque target (`x:http://h/`) so,
/// whatever URL Caddy is configured to ask: then the client chooses the path.
pub(super) fn own_target(request: &Parts) -> Result<(), Problem> {
    if request.version >= Version::HTTP_2 || request.uri.authority().is_none() {
        return Ok(());
    }
    Err(Problem::bad(
        "the request target must be a path, such as `/v1/check`: this server is no forward proxy",
    ))
}

/// Refuses a question of a proxy at a path that does not decide: a proxy takes every 2xx for a yes.
pub(super) fn no_question(route: Route, request: &Parts) -> Result<(), Problem> {
    let answers_proxies = matches!(route, Route::Authorize | Route::Explain);
    let is_question = is_told(&request.headers) || parameter(request.uri.query(), "from").is_some();
    if answers_proxies || !is_question {
        return Ok(());
    }
    Err(Problem::bad(
        "only /v1/authorize and /v1/explain take `from`, `X-Original-…` and `X-Forwarded-Uri` or `-Method`: let the proxy ask \
         /v1/authorize",
    ))
}

/// Whether a stranger's page may have sent it. A page under a name that leads to us by a trick is at that name's origin,
/// so an origin must be loopback's; programs have none.
pub(crate) fn no_page(headers: &HeaderMap) -> Result<(), Problem> {
    let is_from_here = |site: &HeaderValue| matches!(site.as_bytes(), b"same-origin" | b"none");
    let is_local = |origin: &HeaderValue| {
        let origin = origin.to_str().ok().and_then(|origin| origin.split_once("://"));
        origin.is_some_and(|(_, host)| is_loopback(without_port(host)))
    };
    if headers.get(SEC_FETCH_SITE).is_none_or(is_from_here)
        && headers.get(ORIGIN).is_none_or(is_local)
    {
        return Ok(());
    }
    Err(Problem::new(
        StatusCode::FORBIDDEN,
        "this comes from another site's page (`Origin`, `Sec-Fetch-Site`); a proxy that asks about such a request tells \
         which by `X-Original-URI` or `X-Forwarded-Uri`",
    ))
}

/// Whether a host is this machine and no other.
pub(crate) fn is_loopback(name: &str) -> bool {
    let literal: Option<IpAddr> = name.trim_matches(['[', ']']).parse().ok();
    name.eq_ignore_ascii_case("localhost") || literal.is_some_and(|literal| literal.is_loopback())
}

/// Without a token or a certificate, loopback is asked by a name that is loopback's, or that it was told. Beyond loopback,
/// somebody has said that anybody may ask.
pub(super) fn own_name(server: &Server, host: &str) -> Result<(), Problem> {
    let config = &server.config().server;
    let is_local = config.http.is_some_and(|at| at.ip().is_loopback());
    if !is_local || !config.tokens.is_empty() || config.needs_certificate() {
        return Ok(());
    }
    let name = without_port(host);
    // A name without a dot is nobody's on the internet: it is a proxy's own word for us.
    let is_ours = is_loopback(name) || !name.contains(['.', ':']);
    if is_ours || config.hosts.iter().any(|known| known.eq_ignore_ascii_case(name)) {
        return Ok(());
    }
    Err(Problem::new(
        StatusCode::FORBIDDEN,
        "without tokens, the host must be localhost, 127.0.0.1, [::1] or one of `hosts` in [server], or a name \
         without a dot; a proxy that hands on its client's is told not to (Caddy: `header_up Host {upstream_hostport}`)",
    ))
}

/// Whether it is clear where the body ends. hyper lets through what others behind or before us may read
/// otherwise.
pub(crate) fn framing(headers: &HeaderMap) -> Result<(), Problem> {
    let mut encodings = headers.get_all(TRANSFER_ENCODING).iter();
    match (encodings.next(), encodings.next()) {
        (None, _) => Ok(()),
        (Some(encoding), None) if encoding.as_bytes().eq_ignore_ascii_case(b"chunked") => Ok(()),
        _ => Err(Problem::bad("the only Transfer-Encoding there is here is `chunked`")),
    }
}

/// A token is needed, and none that is good was shown.
pub(super) struct NoToken;

/// The token by which whoever asks may ask, if it needs one.
pub(super) fn good_token<'a>(
    server: &Server,
    headers: &'a HeaderMap,
) -> Result<Option<&'a [u8]>, NoToken> {
    let (bearer, api_key) = (bearer(headers), headers.get(API_KEY).map(HeaderValue::as_bytes));
    if server.admits(bearer) {
        return Ok(bearer);
    }
    if api_key.is_some() && server.admits(api_key) { Ok(api_key) } else { Err(NoToken) }
}

/// The same; who shows none that is good hears what to do.
pub(crate) fn token<'a>(
    server: &Server,
    headers: &'a HeaderMap,
) -> Result<Option<&'a [u8]>, Problem> {
    if let Ok(token) = good_token(server, headers) {
        return Ok(token);
    }
    if bearer(headers).is_some() || headers.contains_key(API_KEY) {
        server.status.wrong_tokens.http.fetch_add(1, Ordering::Relaxed);
    }
    Err(Problem::new(
        StatusCode::UNAUTHORIZED,
        "a token is needed: send it as `Authorization: Bearer …` or `X-Api-Key: …`",
    ))
}

/// The token that is offered, on every wire that has headers. Blanks around it are not part of it.
pub(crate) fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    bearer_in(headers.get(AUTHORIZATION)?)
}

/// The token in a value of `Authorization`.
fn bearer_in(value: &HeaderValue) -> Option<&[u8]> {
    let (scheme, token) = value.as_bytes().split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"bearer ").then(|| token.trim_ascii())
}

/// Whether this field has one of the server's own tokens: then it says who the proxy is, and not who its client is.
pub(super) fn is_own_token(server: &ServerConfig, name: &HeaderName, value: &HeaderValue) -> bool {
    let offered = if *name == AUTHORIZATION {
        bearer_in(value)
    } else {
        (*name == API_KEY).then(|| value.as_bytes())
    };
    offered.is_some_and(|offered| server.tokens.iter().any(|token| token.is(offered)))
}

/// Whether the body is what it has to be.
pub(crate) fn is_json(headers: &HeaderMap) -> Result<(), Problem> {
    const KIND: &[u8] = b"application/json";
    let kind = headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes);
    let is_json = kind.and_then(|kind| kind.split_at_checked(KIND.len())).is_some_and(
        |(kind, parameters)| {
            kind.eq_ignore_ascii_case(KIND)
                && matches!(parameters.trim_ascii_start().first(), None | Some(b';'))
        },
    );
    if is_json {
        return Ok(());
    }
    Err(Problem::new(
        StatusCode::UNSUPPORTED_MEDIA_TYPE,
        "the body must be JSON and say so: `Content-Type: application/json`",
    ))
}

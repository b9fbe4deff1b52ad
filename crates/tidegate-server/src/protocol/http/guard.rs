//! Access control: checks before the body of a request is parsed.
//!
//! Invariant A page of another site, in a browser, can neither read nor change anything: without a CORS preflight, which this server
//!           never grants, it can send neither JSON with its content type nor the header fields of a proxy. Its other requests have
//!           `Origin` or `Sec-Fetch-Site`.
//! Invariant A page whose host name was made to point at this server (DNS rebinding) may send any request, and its GET has no
//!           `Origin`. Where no token is needed, the host name is checked.

use super::original_request::has_original_request;
use super::problem::Problem;
use super::query::parameter;
use super::route::Route;
use crate::matching::without_port;
use crate::server::Server;
use http::header::{CONTENT_TYPE, HOST, HeaderName, ORIGIN, TRANSFER_ENCODING};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, StatusCode, Version};
use std::net::IpAddr;

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Returns the request's one host. hyper accepts requests with none or with two.
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

/// Refuses a target in absolute form (`GET http://host/path`), which is for proxies. Go forwards an opaque target (`x:http://h/`)
/// in this form, so behind Caddy the client could choose the path.
pub(super) fn refuse_absolute_target(request: &Parts) -> Result<(), Problem> {
    if request.version >= Version::HTTP_2 || request.uri.authority().is_none() {
        return Ok(());
    }
    Err(Problem::bad(
        "the request target must be a path, such as `/v1/check`: this server is no forward proxy",
    ))
}

/// Refuses the request of a proxy at a path that does not decide, because a proxy takes every 2xx as permission.
pub(super) fn refuse_proxy_request(route: Route, request: &Parts) -> Result<(), Problem> {
    let answers_proxies = matches!(route, Route::Authorize | Route::Explain);
    let is_of_proxy =
        has_original_request(&request.headers) || parameter(request.uri.query(), "from").is_some();
    if answers_proxies || !is_of_proxy {
        return Ok(());
    }
    Err(Problem::bad(
        "only /v1/authorize and /v1/explain take `from`, `X-Original-…` and `X-Forwarded-Uri` or `-Method`: configure the proxy to request \
         /v1/authorize",
    ))
}

/// Refuses a request that a page of another site may have sent. With DNS rebinding the page's origin is the rebound name, so an
/// origin must be on loopback; programs send none.
pub(super) fn refuse_cross_site(headers: &HeaderMap) -> Result<(), Problem> {
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
        "this request comes from a page of another site (`Origin`, `Sec-Fetch-Site`); a proxy that forwards such a request must \
         send `X-Original-URI` or `X-Forwarded-Uri`",
    ))
}

/// Returns whether a host name means this machine.
pub(crate) fn is_loopback(name: &str) -> bool {
    let literal: Option<IpAddr> = name.trim_matches(['[', ']']).parse().ok();
    name.eq_ignore_ascii_case("localhost") || literal.is_some_and(|literal| literal.is_loopback())
}

/// Refuses a request by a foreign host name to a listener on loopback that needs neither token nor certificate. A listener beyond
/// loopback without a token is open to all clients because the configuration says so.
pub(super) fn check_host_name(server: &Server, host: &str) -> Result<(), Problem> {
    let config = &server.config().server;
    let is_local = config.http.is_some_and(|at| at.ip().is_loopback());
    if !is_local || !config.tokens.is_empty() || config.needs_certificate() {
        return Ok(());
    }
    let name = without_port(host);
    // A name without a dot does not exist on the internet: it is the name of an upstream in a proxy.
    let is_ours = is_loopback(name) || !name.contains(['.', ':']);
    if is_ours || config.hosts.iter().any(|known| known.eq_ignore_ascii_case(name)) {
        return Ok(());
    }
    Err(Problem::new(
        StatusCode::FORBIDDEN,
        "without tokens, the host must be localhost, 127.0.0.1, [::1] or one of `hosts` in [server], or a name \
         without a dot; configure a proxy that forwards its client's host not to (Caddy: `header_up Host {upstream_hostport}`)",
    ))
}

/// Refuses a `Transfer-Encoding` that hyper accepts and other servers may interpret differently.
pub(super) fn check_framing(headers: &HeaderMap) -> Result<(), Problem> {
    let mut encodings = headers.get_all(TRANSFER_ENCODING).iter();
    match (encodings.next(), encodings.next()) {
        (None, _) => Ok(()),
        (Some(encoding), None) if encoding.as_bytes().eq_ignore_ascii_case(b"chunked") => Ok(()),
        _ => Err(Problem::bad("the only supported Transfer-Encoding is `chunked`")),
    }
}

/// Refuses a body without the content type of JSON.
pub(super) fn require_json(headers: &HeaderMap) -> Result<(), Problem> {
    const JSON: &[u8] = b"application/json";
    let value = headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes);
    let is_json = value.and_then(|value| value.split_at_checked(JSON.len())).is_some_and(
        |(content_type, parameters)| {
            content_type.eq_ignore_ascii_case(JSON)
                && matches!(parameters.trim_ascii_start().first(), None | Some(b';'))
        },
    );
    if is_json {
        return Ok(());
    }
    Err(Problem::new(
        StatusCode::UNSUPPORTED_MEDIA_TYPE,
        "the body must be JSON, with `Content-Type: application/json`",
    ))
}

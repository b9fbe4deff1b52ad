//! Access control of the admin listener.

use super::Route;
use crate::config::ServerConfig;
use crate::matching::without_port;
use crate::protocol::http::{Problem, bearer, host, is_loopback};
use crate::server::Server;
use http::header::HOST;
use http::request::Parts;
use http::{HeaderValue, StatusCode, Version};
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::Ordering;

/// Refuses a request without the necessary token, from a foreign host name, or from a page of another site.
pub(super) fn check(server: &Server, request: &Parts, route: Route) -> Result<(), Problem> {
    let config = &server.config().server;
    // Simple health probes use HTTP/1.0, which has no host.
    if let Route::Live | Route::Ready = route
        && request.version < Version::HTTP_11
        && !request.headers.contains_key(HOST)
    {
        return Ok(());
    }
    let host = host(request)?;
    match route {
        Route::Live | Route::Ready => return Ok(()),
        // The dashboard contains no data, and asks the operator for the token.
        Route::Page(_) => {}
        _ => require_token(server, config, request)?,
    }
    // A token or a client certificate also protects against DNS rebinding.
    if config.admin_token.is_none() && !config.admin_needs_certificate() {
        check_local(config.admin, host)?;
    }
    let changes = matches!(route, Route::Reload | Route::ClearAdHocRules);
    if changes { check_same_site(request, host) } else { Ok(()) }
}

/// Returns whether a request has the operator's token.
pub(crate) fn is_authenticated(server: &Server, request: &Parts) -> bool {
    let config = server.config();
    let token = config.server.admin_token.as_ref();
    token.is_some_and(|token| bearer(&request.headers).is_some_and(|offered| token.is(offered)))
}

fn require_token(server: &Server, config: &ServerConfig, request: &Parts) -> Result<(), Problem> {
    let Some(token) = &config.admin_token else { return Ok(()) };
    let offered = bearer(&request.headers);
    if offered.is_some_and(|offered| token.is(offered)) {
        return Ok(());
    }
    if offered.is_some() {
        server.status.wrong_tokens.admin.fetch_add(1, Ordering::Relaxed);
    }
    let detail = "the operator's token is needed: send it as `Authorization: Bearer …`";
    Err(Problem::new(StatusCode::UNAUTHORIZED, detail))
}

/// Refuses requests to a listener that needs neither token nor certificate, except on loopback and by a host name of loopback.
fn check_local(listener: Option<SocketAddr>, host: &str) -> Result<(), Problem> {
    let address = listener.map(|listener| listener.ip());
    if !address.is_some_and(|address| address.is_loopback()) {
        let detail = "this listener is not on loopback: set `admin_token`, or `client_ca` in [server.admin_tls] and give \
                      clients certificates";
        return Err(Problem::new(StatusCode::FORBIDDEN, detail));
    }
    let name = without_port(host);
    let literal: Option<IpAddr> = name.trim_matches(['[', ']']).parse().ok();
    if is_loopback(name) || (literal.is_some() && literal == address) {
        return Ok(());
    }
    let detail = "without a token, the host must be localhost, 127.0.0.1 or [::1]";
    Err(Problem::new(StatusCode::FORBIDDEN, detail))
}

/// Refuses a request that a page of another site may have sent.
fn check_same_site(request: &Parts, host: &str) -> Result<(), Problem> {
    let field = |name: &str| request.headers.get(name).map(HeaderValue::as_bytes);
    let is_own = |origin: &[u8]| {
        let rest = origin.strip_prefix(b"http://").or_else(|| origin.strip_prefix(b"https://"));
        rest.is_some_and(|rest| rest.eq_ignore_ascii_case(host.as_bytes()))
    };
    let is_from_here = |site: &[u8]| matches!(site, b"same-origin" | b"none");
    if field("origin").is_none_or(is_own) && field("sec-fetch-site").is_none_or(is_from_here) {
        return Ok(());
    }
    Err(Problem::new(StatusCode::FORBIDDEN, "this request comes from a page of another site"))
}

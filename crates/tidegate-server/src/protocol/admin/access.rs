//! Who may look, and who may change something.

use super::Route;
use crate::config::ServerConfig;
use crate::protocol::http::{Problem, bearer, host, is_loopback, without_port};
use crate::server::Server;
use http::header::HOST;
use http::request::Parts;
use http::{HeaderValue, StatusCode, Version};
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::Ordering;

/// Whether this request may have what it asks for.
pub(super) fn check(server: &Server, request: &Parts, route: Route) -> Result<(), Problem> {
    let config = &server.config().server;
    // For whoever starts and stops servers; they tell nothing else. Simple probes speak HTTP/1.0, which has no hosts.
    if let Route::Live | Route::Ready = route
        && request.version < Version::HTTP_11
        && !request.headers.contains_key(HOST)
    {
        return Ok(());
    }
    let host = host(request)?;
    match route {
        Route::Live | Route::Ready => return Ok(()),
        // The page is the same for everybody, and asks for the token itself.
        Route::Page(_) => {}
        _ => token(server, config, request)?,
    }
    // Who has shown a certificate is known, and no page can rename itself to a name that ours is not for.
    if config.admin_token.is_none() && !config.admin_needs_certificate() {
        local(config.admin, host)?;
    }
    let changes = matches!(route, Route::Reload | Route::ClearAdHocRules);
    if changes { same_site(request, host) } else { Ok(()) }
}

/// Whether a request shows the operator's token.
pub(crate) fn is_authenticated(server: &Server, request: &Parts) -> bool {
    let config = server.config();
    let token = config.server.admin_token.as_ref();
    token.is_some_and(|token| bearer(&request.headers).is_some_and(|offered| token.is(offered)))
}

fn token(server: &Server, config: &ServerConfig, request: &Parts) -> Result<(), Problem> {
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

/// Without a token or a certificate, only loopback may ask, and only by a name that is loopback's.
fn local(listener: Option<SocketAddr>, host: &str) -> Result<(), Problem> {
    let address = listener.map(|listener| listener.ip());
    if !address.is_some_and(|address| address.is_loopback()) {
        let detail = "this listener is not on loopback: give it a token with `admin_token`, or clients \
                      certificates with `client_ca` in [server.admin_tls]";
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

/// A change must not come from another site's page.
fn same_site(request: &Parts, host: &str) -> Result<(), Problem> {
    let field = |name: &str| request.headers.get(name).map(HeaderValue::as_bytes);
    let is_own = |origin: &[u8]| {
        let rest = origin.strip_prefix(b"http://").or_else(|| origin.strip_prefix(b"https://"));
        rest.is_some_and(|rest| rest.eq_ignore_ascii_case(host.as_bytes()))
    };
    let is_from_here = |site: &[u8]| matches!(site, b"same-origin" | b"none");
    if field("origin").is_none_or(is_own) && field("sec-fetch-site").is_none_or(is_from_here) {
        return Ok(());
    }
    Err(Problem::new(StatusCode::FORBIDDEN, "this comes from another site's page"))
}

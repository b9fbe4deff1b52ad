//! HTTP: `POST /v1/check` and the other endpoints for clients.
//!
//! ```text
//! route             the table of paths
//! guard, token      access control
//! check, lease      JSON requests: check_body (parse), resolved_check (find the limit), decision (render)
//! authorize         requests of proxies: original_request (the client's request), query (parameters)
//! explain           why a request is or is not limited
//! response, problem responses and errors
//! ```
//!
//! Invariant [`answer`] is a function of a request that has arrived completely, so it needs no socket. hyper gets a [`service`] for
//!           each connection.
//! Invariant An error is a problem (RFC 9457) whose detail says what to do; a denial is not an error but a decision with status 429.
//! Cost      A request takes one search in the table of paths, one pass over the body, and one buffer for the response.

mod authorize;
pub(crate) mod base64;
mod body;
mod check;
mod check_body;
mod decision;
mod explain;
mod guard;
mod lease;
mod original_request;
mod problem;
mod query;
mod resolved_check;
mod response;
mod route;
mod style;
#[cfg(test)]
pub(crate) mod tests;
mod token;

pub(crate) use body::{BODY_BYTES_MAX, collect};
pub(crate) use guard::{host, is_loopback};
pub(crate) use problem::Problem;
pub(crate) use query::parameter;
pub use response::RawResponse;
pub(crate) use response::{JSON, ResponseBuilder};
pub(crate) use route::find;
#[cfg(test)]
pub(crate) use route::{ADMIN_PATHS, ROUTES};
pub use tidegate_http::HeaderStyle;
pub(crate) use token::bearer;

use crate::config::ServerConfig;
use crate::server::Server;
use crate::server::Wire;
use bytes::Bytes;
use http::request::Parts;
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::{Service, service_fn};
use route::Route;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;

/// The `OpenAPI` 3.1 description.
const OPENAPI: &[u8] = include_bytes!("openapi.json");
const HOME: &str = include_str!("home.txt");

/// Returns the service of one connection from `peer`. The guard that `on_request` returns is kept while a request that has arrived
/// completely is answered.
pub fn service<H: Send>(
    server: Arc<Server>,
    peer: SocketAddr,
    on_request: impl Fn(&Parts) -> H + Clone + Send,
) -> impl Service<Request<Incoming>, Response = Response<Full<Bytes>>, Error = Infallible, Future: Send>
+ Clone {
    service_fn(move |request: Request<Incoming>| {
        let (server, on_request) = (Arc::clone(&server), on_request.clone());
        async move {
            let (request, body) = request.into_parts();
            let patience = server.request_patience();
            let response = match collect(body, patience).await {
                Ok(body) => {
                    let _guard = on_request(&request);
                    answer(&server, &request, &body, peer).await
                }
                Err(problem) => problem.answer(),
            };
            Ok(response.into_response())
        }
    })
}

/// Returns whether a token is needed and the request has a valid one.
pub(crate) fn is_authenticated(server: &Server, request: &Parts) -> bool {
    server.must_authenticate(Wire::Http) && token::valid_token(server, &request.headers).is_ok()
}

/// Answers a request from `peer`.
pub async fn answer(
    server: &Server,
    request: &Parts,
    body: &[u8],
    peer: SocketAddr,
) -> RawResponse {
    match try_answer(server, request, body, peer).await {
        Ok(response) => response,
        Err(problem) => problem.answer(),
    }
}

async fn try_answer(
    server: &Server,
    request: &Parts,
    body: &[u8],
    peer: SocketAddr,
) -> Result<RawResponse, Problem> {
    let host = host(request)?;
    guard::check_framing(&request.headers)?;
    guard::refuse_absolute_target(request)?;
    let route = Route::of(request)?;
    guard::refuse_proxy_request(route, request)?;
    let mut token = None;
    if !route.is_public() {
        let is_proxied =
            route == Route::Authorize && original_request::has_original_request(&request.headers);
        if !is_proxied {
            guard::refuse_cross_site(&request.headers)?;
        }
        if !route.has_body() {
            guard::check_host_name(server, host)?;
        }
        token = token::require_token(server, &request.headers)?;
    }
    if route.has_body() {
        guard::require_json(&request.headers)?;
    }
    let client = server.peer(peer.ip(), token);
    let (engine, style) = (server.engine.by(client), style::style(request, route)?);
    let may_wait = route.may_wait(engine.store().shared().is_some());
    let _waiting = may_wait.then(|| server.wait(Wire::Http, client)).transpose()?;
    match route {
        Route::Check => check::check(engine, body, style).await,
        Route::Peek => check::peek(engine, body, style).await,
        Route::Reset => check::reset(engine, body, style).await,
        Route::Refund => check::refund(engine, body, style).await,
        Route::Acquire => lease::acquire(engine, body, style).await,
        Route::Release => lease::release(&engine, body).await,
        Route::Authorize => authorize::authorize(server, request, (peer, client), style).await,
        Route::Explain => explain::explain(server, request, peer).await,
        Route::ExplainDescribed => explain::explain_described(server, body).await,
        Route::OpenApi => Ok(fixed(JSON, OPENAPI)),
        Route::Home => Ok(home(&server.config().server, host)),
    }
}

/// Renders the start page, whose example command works as it is: it has this server's host name.
fn home(config: &ServerConfig, host: &str) -> RawResponse {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-_:[]".contains(&byte);
    let host = if host.bytes().all(is_plain) { host } else { "127.0.0.1:8080" };
    let scheme = if config.tls.is_some() { "https" } else { "http" };
    let token = if config.tokens.is_empty() { "" } else { "-H 'Authorization: Bearer TOKEN' " };
    let text = HOME.replace("{url}", &format!("{scheme}://{host}")).replace("{token}", token);
    let content_type = HeaderValue::from_static("text/plain; charset=utf-8");
    ResponseBuilder::new(StatusCode::OK)
        .body(content_type, |out| out.extend_from_slice(text.as_bytes()))
}

fn fixed(content_type: HeaderValue, body: &'static [u8]) -> RawResponse {
    ResponseBuilder::new(StatusCode::OK).body(content_type, |out| out.extend_from_slice(body))
}

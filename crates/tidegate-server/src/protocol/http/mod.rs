//! HTTP: `POST /v1/check` and its siblings, for whoever has `curl`.
//!
//! Always   [`answer`] is a function of a request that has arrived: it can be asked without a socket. Whoever
//!          accepts connections gives each of them a [`service`].
//! Always   What is wrong with a request is said as a problem (RFC 9457) that tells what to do; a denial is not an
//!          error, but a decision under status 429.
//! Fast     One request is one look into a table of routes, one pass over the body and one buffer for the answer:
//!          no router, no layers, nothing boxed.

mod authorize;
pub(crate) mod base64;
mod body;
mod check;
mod decision;
mod explain;
mod guard;
mod lease;
mod original;
mod page;
mod problem;
mod query;
mod question;
mod route;
mod said;
mod style;
#[cfg(test)]
pub(crate) mod tests;

pub(crate) use body::{BODY_BYTES_MAX, collect};
pub(crate) use guard::{bearer, host, is_loopback, without_port};
pub use page::Answered;
pub(crate) use page::{JSON, Page};
pub(crate) use problem::Problem;
pub(crate) use query::parameter;
#[cfg(test)]
pub(crate) use route::ROUTES;
pub(crate) use route::find;
pub use tidegate_http::HeaderStyle;

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

/// The description of all of this for programs (`OpenAPI` 3.1).
const OPENAPI: &[u8] = include_bytes!("openapi.json");
const HOME: &str = include_str!("home.txt");

/// What answers one connection, which comes from `peer`. What `hold` hands out is kept while a request that has come whole is
/// answered.
pub fn service<H: Send>(
    server: Arc<Server>,
    peer: SocketAddr,
    hold: impl Fn(&Parts) -> H + Clone + Send,
) -> impl Service<Request<Incoming>, Response = Response<Full<Bytes>>, Error = Infallible, Future: Send>
+ Clone {
    service_fn(move |request: Request<Incoming>| {
        let (server, hold) = (Arc::clone(&server), hold.clone());
        async move {
            let (request, body) = request.into_parts();
            let patience = server.request_patience();
            let answered = match collect(body, patience).await {
                Ok(body) => {
                    let _holding = hold(&request);
                    answer(&server, &request, &body, peer).await
                }
                Err(problem) => problem.answer(),
            };
            Ok(answered.into_response())
        }
    })
}

/// Whether a token is needed and a request shows one.
pub(crate) fn is_authenticated(server: &Server, request: &Parts) -> bool {
    server.must_authenticate(Wire::Http) && guard::good_token(server, &request.headers).is_ok()
}

/// The answer to a request that came from `peer`.
pub async fn answer(server: &Server, request: &Parts, body: &[u8], peer: SocketAddr) -> Answered {
    match try_answer(server, request, body, peer).await {
        Ok(answered) => answered,
        Err(problem) => problem.answer(),
    }
}

async fn try_answer(
    server: &Server,
    request: &Parts,
    body: &[u8],
    peer: SocketAddr,
) -> Result<Answered, Problem> {
    let host = host(request)?;
    guard::framing(&request.headers)?;
    guard::own_target(request)?;
    let route = Route::of(request)?;
    guard::no_question(route, request)?;
    let mut token = None;
    if !route.is_public() {
        let is_proxied = route == Route::Authorize && original::is_told(&request.headers);
        if !is_proxied {
            guard::no_page(&request.headers)?;
        }
        if !route.has_body() {
            guard::own_name(server, host)?;
        }
        token = guard::token(server, &request.headers)?;
    }
    if route.has_body() {
        guard::is_json(&request.headers)?;
    }
    let id = server.peer(peer.ip(), token);
    let (engine, style) = (server.engine.by(id), style::style(request, route)?);
    let may_wait = route.may_wait(engine.store().shared().is_some());
    let _waiting = may_wait.then(|| server.wait(Wire::Http, id)).transpose()?;
    match route {
        Route::Check => check::check(engine, body, style).await,
        Route::Peek => check::peek(engine, body, style).await,
        Route::Reset => check::reset(engine, body, style).await,
        Route::Refund => check::refund(engine, body, style).await,
        Route::Acquire => lease::acquire(engine, body, style).await,
        Route::Release => lease::release(&engine, body).await,
        Route::Authorize => authorize::authorize(server, request, (peer, id), style).await,
        Route::Explain => explain::explain(server, request, peer).await,
        Route::ExplainAsked => explain::explain_asked(server, body).await,
        Route::OpenApi => Ok(fixed(JSON, OPENAPI)),
        Route::Home => Ok(home(&server.config().server, host)),
    }
}

/// What there is, with a command that works as it is: for this server, by the name that it was called by.
fn home(config: &ServerConfig, host: &str) -> Answered {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-_:[]".contains(&byte);
    let host = if host.bytes().all(is_plain) { host } else { "127.0.0.1:8080" };
    let scheme = if config.tls.is_some() { "https" } else { "http" };
    let token = if config.tokens.is_empty() { "" } else { "-H 'Authorization: Bearer TOKEN' " };
    let text = HOME.replace("{url}", &format!("{scheme}://{host}")).replace("{token}", token);
    let kind = HeaderValue::from_static("text/plain; charset=utf-8");
    Page::new(StatusCode::OK).body(kind, |out| out.extend_from_slice(text.as_bytes()))
}

fn fixed(kind: HeaderValue, body: &'static [u8]) -> Answered {
    Page::new(StatusCode::OK).body(kind, |out| out.extend_from_slice(body))
}

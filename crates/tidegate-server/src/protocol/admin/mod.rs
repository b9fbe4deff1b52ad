//! The operator's listener: metrics, health, what each limit does, and a page that shows it.
//!
//! Always   It has a listener, a token and certificates of its own. Where it needs neither a token nor a certificate, it
//!          answers only on loopback, and only to who calls it by a name of loopback: a page in the operator's browser must not reach it
//!          by renaming itself (DNS rebinding).
//! Always   Nothing here decides about anybody. All that can be changed: the configuration is read again, and rules that clients
//!          brought are forgotten.
//! Always   Keys are in `/v1/top` and nowhere else; metrics have labels from the configuration only.

mod access;
mod exposition;
mod health;
mod limits;
mod metrics;
mod page;
mod reload;
#[cfg(test)]
mod tests;

use crate::protocol::http::{Answered, Problem, collect, find};
use crate::server::Server;
use bytes::Bytes;
use http::request::Parts;
use http::{Method, Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::{Service, service_fn};
use std::convert::Infallible;
use std::sync::Arc;

/// Whether a request shows that whoever asks is the operator.
pub(crate) use access::is_authenticated;

/// What answers one connection, and lets the heads of its requests be seen.
pub fn service(
    server: Arc<Server>,
    see: impl Fn(&Parts) + Clone + Send,
) -> impl Service<Request<Incoming>, Response = Response<Full<Bytes>>, Error = Infallible, Future: Send>
+ Clone {
    service_fn(move |request: Request<Incoming>| {
        let (server, see) = (Arc::clone(&server), see.clone());
        async move {
            let (request, body) = request.into_parts();
            see(&request);
            let patience = server.request_patience();
            // No request has a body that says anything, but a connection is only good when it is read.
            let answered = match collect(body, patience).await {
                Ok(_) => answer(&server, &request).await,
                Err(problem) => problem.answer(),
            };
            Ok(answered.into_response())
        }
    })
}

/// The answer to a request.
pub async fn answer(server: &Arc<Server>, request: &Parts) -> Answered {
    match try_answer(server, request).await {
        Ok(answered) => answered,
        Err(problem) => problem.answer(),
    }
}

/// What can be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Route {
    Metrics,
    Live,
    Ready,
    Limits,
    Top,
    Reload,
    ClearAdHocRules,
    Page(page::Part),
}

const ROUTES: &[(&str, Method, Route)] = &[
    ("/metrics", Method::GET, Route::Metrics),
    ("/livez", Method::GET, Route::Live),
    ("/readyz", Method::GET, Route::Ready),
    ("/v1/limits", Method::GET, Route::Limits),
    ("/v1/top", Method::GET, Route::Top),
    ("/v1/reload", Method::POST, Route::Reload),
    ("/v1/ad-hoc-rules/clear", Method::POST, Route::ClearAdHocRules),
    ("/", Method::GET, Route::Page(page::Part::Html)),
    ("/dashboard.css", Method::GET, Route::Page(page::Part::Css)),
    ("/dashboard.js", Method::GET, Route::Page(page::Part::Js)),
];

/// Whether there is something at this path here.
pub(crate) fn has_path(path: &str) -> bool {
    ROUTES.iter().any(|(known, ..)| *known == path)
}

async fn try_answer(server: &Arc<Server>, request: &Parts) -> Result<Answered, Problem> {
    let route = find(ROUTES, request)?;
    access::check(server, request, route)?;
    match route {
        Route::Metrics => Ok(metrics::answer(server, &request.headers)),
        Route::Live => Ok(health::live()),
        Route::Ready => Ok(health::ready(server, request.uri.query())),
        Route::Limits => Ok(limits::all(server)),
        Route::Top => limits::top(server, request.uri.query()),
        Route::Reload => reload::answer(server).await,
        Route::ClearAdHocRules => limits::clear(server, request.uri.query()),
        Route::Page(part) => Ok(page::answer(part)),
    }
}

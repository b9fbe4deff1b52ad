//! The admin listener: metrics, health, statistics of limits, and a dashboard.
//!
//! Invariant It has its own listener, token and certificates. If it needs neither token nor certificate, it answers only on loopback
//!           and only requests with a host name of loopback, as a protection against DNS rebinding.
//! Invariant The admin listener makes no decisions. It can change two things: reload the configuration, and remove ad-hoc rules.
//! Invariant Only `/v1/top` returns keys; the labels of metrics come from the configuration.

mod access;
mod exposition;
mod health;
mod limits;
mod metrics;
mod page;
mod reload;
#[cfg(test)]
mod tests;

use crate::protocol::http::{Problem, RawResponse, collect, find};
use crate::server::Server;
use bytes::Bytes;
use http::request::Parts;
use http::{Method, Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::{Service, service_fn};
use std::convert::Infallible;
use std::sync::Arc;

pub(crate) use access::is_authenticated;

/// Returns the service of one connection, which passes the head of each request to `on_request`.
pub fn service(
    server: Arc<Server>,
    on_request: impl Fn(&Parts) + Clone + Send,
) -> impl Service<Request<Incoming>, Response = Response<Full<Bytes>>, Error = Infallible, Future: Send>
+ Clone {
    service_fn(move |request: Request<Incoming>| {
        let (server, on_request) = (Arc::clone(&server), on_request.clone());
        async move {
            let (request, body) = request.into_parts();
            on_request(&request);
            let patience = server.request_patience();
            // Bodies are ignored, but must be read before the connection's next request.
            let response = match collect(body, patience).await {
                Ok(_) => answer(&server, &request).await,
                Err(problem) => problem.answer(),
            };
            Ok(response.into_response())
        }
    })
}

/// Answers a request.
pub async fn answer(server: &Arc<Server>, request: &Parts) -> RawResponse {
    match try_answer(server, request).await {
        Ok(response) => response,
        Err(problem) => problem.answer(),
    }
}

/// An endpoint.
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

async fn try_answer(server: &Arc<Server>, request: &Parts) -> Result<RawResponse, Problem> {
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

//! A service behind the layers, and requests for it.

use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use std::convert::Infallible;
use tidegate::{Limiter, ManualClock};
use tidegate_tower::{Limit, Peer};
use tower::util::ServiceExt;
use tower_service::Service;

pub(crate) type Body = Full<Bytes>;

/// A service that responds with the status in the request's header `answer`, or with 200.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Inner;

impl Service<Request<Body>> for Inner {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = std::future::Ready<Result<Response<Body>, Infallible>>;

    fn poll_ready(
        &mut self,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Result<(), Infallible>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let status = request.headers().get("answer");
        let status = status
            .map_or(StatusCode::OK, |status| StatusCode::from_bytes(status.as_bytes()).unwrap());
        let mut response = Response::new(Full::new(Bytes::from_static(b"0123456789")));
        *response.status_mut() = status;
        std::future::ready(Ok(response))
    }
}

pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: String,
}

impl Reply {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }
}

/// Returns a limit whose clock only moves when it is advanced.
pub(crate) fn limit(name: &str, rule: &str, clock: &ManualClock) -> Limit<ManualClock> {
    Limit::over(name, Limiter::with_clock(rule.parse().unwrap(), clock.clone()))
}

pub(crate) fn get(path: &str) -> http::request::Builder {
    Request::get(path)
}

/// Returns a gRPC call.
pub(crate) fn call() -> http::request::Builder {
    Request::post("/pkg.Service/Call").header("content-type", "application/grpc")
}

/// Returns a request from this peer.
pub(crate) fn from(peer: &str) -> http::request::Builder {
    get("/").extension(Peer(peer.parse().unwrap()))
}

pub(crate) async fn ask<S, R>(service: &S, request: http::request::Builder) -> Reply
where
    S: Service<Request<Body>, Response = Response<R>> + Clone,
    S::Error: std::fmt::Debug,
    R: http_body::Body<Data = Bytes>,
    R::Error: std::fmt::Debug,
{
    let request = request.body(Body::default()).unwrap();
    let response = service.clone().oneshot(request).await.unwrap();
    let (parts, body) = response.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    let body = String::from_utf8(body.to_vec()).unwrap();
    Reply { status: parts.status.as_u16(), headers: parts.headers, body }
}

//! Outgoing calls, and gRPC over real connections.

use axum::Router;
use axum::routing::get;
use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Empty};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::time::Duration;
use tidegate::clock::TokioClock;
use tidegate::{Limiter, ManualClock, Span};
use tidegate_tower::{ConcurrencyLayer, Key, Limit, OutgoingError, OutgoingLayer, RateLimitLayer};
use tokio::time::Instant;
use tower::util::ServiceExt;
use tower_layer::Layer;
use tower_service::Service;

#[tokio::test]
async fn a_hyper_client_is_limited_by_host_with_the_same_layer() {
    let address = greeter().await;
    let client = Client::builder(TokioExecutor::new()).build_http::<Empty<Bytes>>();
    let per_host = Limit::new("host", "2/h").unwrap().key(Key::host());
    let client = RateLimitLayer::new(per_host).unwrap().layer(client);
    let ask = |host: String| {
        let request = Request::get(format!("http://{host}/")).body(Empty::new()).unwrap();
        let client = client.clone();
        async move {
            let response = client.oneshot(request).await.unwrap();
            let status = response.status().as_u16();
            (status, response.into_body().collect().await.unwrap().to_bytes())
        }
    };
    assert_eq!(ask(address.to_string()).await, (200, Bytes::from("hello")));
    assert_eq!(ask(address.to_string()).await.0, 200);
    assert_eq!(ask(address.to_string()).await.0, 429, "made here, without a call");
    assert_eq!(ask(format!("localhost:{}", address.port())).await.0, 200);
}

#[tokio::test(start_paused = true)]
async fn calls_wait_for_their_turn_or_fail_with_an_error() {
    let limiter = Limiter::with_clock("1/s".parse().unwrap(), TokioClock::new());
    let layer = OutgoingLayer::over(limiter, Duration::from_millis(1_500));
    let client = layer.layer(tower::service_fn(|request: u32| async move {
        if request == 0 { Err(std::io::Error::other("refused")) } else { Ok(request) }
    }));
    let (start, call) = (Instant::now(), |request| client.clone().oneshot(request));
    let (a, b, c) = tokio::join!(call(1), call(2), call(3));
    assert_eq!((a.unwrap(), b.unwrap()), (1, 2));
    assert_eq!(start.elapsed().as_secs(), 1);
    let error = c.unwrap_err();
    assert!(matches!(error, OutgoingError::Denied(_)));
    let source = std::error::Error::source(&error).unwrap().to_string();
    assert_eq!(source, "denied: retry after 500ms");
    let error = call(0).await.unwrap_err();
    assert_eq!(error.to_string(), "refused", "the error is passed on");
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_given_up_gives_back_its_turn_or_permit() {
    for rule in ["1/h", "concurrency 1"] {
        let limiter = Limiter::with_clock(rule.parse().unwrap(), TokioClock::new());
        let layer = OutgoingLayer::over(limiter.clone(), Duration::from_secs(7_200));
        let client = layer.layer(tower::service_fn(|seconds: u64| async move {
            tokio::time::sleep(Duration::from_secs(seconds)).await;
            Ok::<_, Infallible>(())
        }));
        let first = tokio::spawn(client.clone().oneshot(1));
        tokio::task::yield_now().await;
        let second = client.clone().oneshot(1);
        assert!(tokio::time::timeout(Duration::from_millis(10), second).await.is_err());
        first.abort();
        let _ = first.await;
        let wait = limiter.request(&b""[..]).within(Duration::from_secs(3_600)).acquire();
        assert!(wait.await.is_ok(), "{rule}");
    }
}

#[tokio::test]
async fn a_permit_is_released_when_the_client_has_responded_even_if_the_call_is_kept() {
    let limiter = Limiter::with_clock("concurrency 1".parse().unwrap(), TokioClock::new());
    let layer = OutgoingLayer::over(limiter.clone(), Duration::ZERO);
    let mut client = layer.layer(tower::service_fn(async |()| Ok::<_, Infallible>(())));
    let mut call = Box::pin(client.call(()));
    assert!((&mut call).await.is_ok());
    assert!(limiter.try_acquire(&b""[..]).is_ok(), "the call is over");
    drop(call);
}

async fn greeter() -> SocketAddr {
    crate::sockets::serve(Router::new().route("/", get(|| async { "hello" }))).await
}

/// Ignores a proxy that is set in the environment of the test.
fn reqwest_client() -> reqwest::Client {
    reqwest::Client::builder().no_proxy().build().unwrap()
}

fn reqwest_request(host: impl std::fmt::Display) -> reqwest::Request {
    reqwest::Request::new(Method::GET, format!("http://{host}/").parse().unwrap())
}

#[tokio::test]
async fn a_reqwest_client_is_limited_by_host_with_its_own_requests() {
    let address = greeter().await;
    let host = |request: &reqwest::Request| request.url().authority().to_owned();
    let layer = OutgoingLayer::by("2/h", Duration::ZERO, host).unwrap();
    let client = layer.layer(reqwest_client());
    let ask = |host: String| client.clone().oneshot(reqwest_request(host));
    for _ in 0..2 {
        let response = ask(address.to_string()).await.unwrap();
        assert_eq!((response.status().as_u16(), &*response.text().await.unwrap()), (200, "hello"));
    }
    let denied = ask(address.to_string()).await.unwrap_err();
    assert!(matches!(denied, OutgoingError::Denied(_)), "{denied:?}");
    assert!(ask(format!("localhost:{}", address.port())).await.is_ok(), "another host");
}

#[tokio::test]
async fn a_call_of_reqwest_waits_for_its_turn() {
    let (address, clock) = (greeter().await, ManualClock::new());
    let limiter = Limiter::with_clock("1/s".parse().unwrap(), clock.clone());
    let client = OutgoingLayer::over(limiter, Duration::from_secs(1)).layer(reqwest_client());
    let ask = || client.clone().oneshot(reqwest_request(address));
    assert!(ask().await.is_ok());
    let second = tokio::spawn(ask());
    while clock.sleepers() == 0 {
        tokio::task::yield_now().await;
    }
    assert!(!second.is_finished());
    clock.advance(Span::from_secs(1));
    assert_eq!(second.await.unwrap().unwrap().status(), 200);
}

#[tokio::test]
async fn errors_of_reqwest_are_passed_on_unchanged() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let layer = OutgoingLayer::new("1/h", Duration::ZERO).unwrap();
    let failed = layer.layer(reqwest_client()).oneshot(reqwest_request(address)).await;
    let Err(OutgoingError::Failed(error)) = failed else { panic!("{failed:?}") };
    assert!(error.is_connect(), "{error:?}");
}

/// reqwest converts requests and responses from and to those of the crate `http`, so all layers fit around it.
#[tokio::test]
async fn a_permit_around_reqwest_is_held_until_the_body_is_read() {
    let (address, client) = (greeter().await, reqwest_client());
    let client = tower::service_fn(move |request: Request<String>| {
        let client = client.clone();
        async move {
            let response = client.execute(request.try_into()?).await?;
            Ok::<_, reqwest::Error>(Response::<reqwest::Body>::from(response))
        }
    });
    let client = ConcurrencyLayer::for_all("concurrency 1").unwrap().layer(client);
    let ask = || {
        let request = Request::get(format!("http://{address}/")).body(String::new()).unwrap();
        client.clone().oneshot(request)
    };
    let first = ask().await.unwrap();
    assert_eq!(first.status(), 200);
    assert_eq!(ask().await.unwrap().status(), 503, "made here, without a call");
    assert_eq!(first.into_body().collect().await.unwrap().to_bytes(), "hello");
    assert_eq!(ask().await.unwrap().status(), 200);
}

/// tonic over HTTP/2: the client gets a denial as a gRPC status.
#[tokio::test]
async fn tonic_clients_see_resource_exhausted() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let layer = RateLimitLayer::per_ip("1/h").unwrap().peer(|extensions| {
        let info = extensions.get::<tonic::transport::server::TcpConnectInfo>()?;
        info.remote_addr().map(|address| address.ip())
    });
    let (_, health) = tonic_health::server::health_reporter();
    let server = tonic::transport::Server::builder().layer(layer).add_service(health);
    let incoming = tonic::transport::server::TcpIncoming::from(listener);
    tokio::spawn(async move { server.serve_with_incoming(incoming).await.unwrap() });
    let channel = tonic::transport::Endpoint::from_shared(format!("http://{address}"));
    let channel = channel.unwrap().connect().await.unwrap();
    let mut client = tonic_health::pb::health_client::HealthClient::new(channel);
    let ask = || tonic_health::pb::HealthCheckRequest { service: String::new() };
    let first = client.check(ask()).await.unwrap();
    assert!(first.metadata().get("ratelimit").is_some());
    let denied = client.check(ask()).await.unwrap_err();
    assert_eq!(denied.code(), tonic::Code::ResourceExhausted);
    assert_eq!(denied.message(), "denied: retry after 1h by per-ip");
    assert_eq!(denied.metadata().get("retry-after").unwrap(), "3600");
}

//! Real servers on loopback: many connections, one limit.

use crate::concurrency::{InFlightCount, InFlightGuard};
use crate::fixture::limit;
use axum::Router;
use axum::routing::get;
use http::{Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use tidegate::{Limiter, ManualClock};
use tidegate_tower::{ConcurrencyLayer, Key, Limit, Peer, RateLimitLayer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tower::util::ServiceExt;
use tower_layer::Layer;

/// Serves the app on a free port until the test ends.
pub(crate) async fn serve(app: Router) -> SocketAddr {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let app = app.into_make_service_with_connect_info::<SocketAddr>();
    tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
    address
}

async fn status(address: SocketAddr, path: &str) -> u16 {
    // Each request has its own client, and so its own connection.
    let client = Client::builder(TokioExecutor::new()).build_http::<Empty<bytes::Bytes>>();
    let request = Request::get(format!("http://{address}{path}")).body(Empty::new()).unwrap();
    let response = client.request(request).await.unwrap();
    let status = response.status().as_u16();
    response.into_body().collect().await.unwrap();
    status
}

/// tower's own `RateLimit` does not hold here: axum clones the service for each connection.
#[tokio::test(flavor = "multi_thread")]
async fn the_limit_holds_under_axum_with_many_connections() {
    let handled = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&handled);
    let answer = move || async move { counter.fetch_add(1, Ordering::Relaxed).to_string() };
    let layer = RateLimitLayer::new(limit("ip", "50/h", &ManualClock::new()).key(Key::ip()));
    let app = Router::new()
        .route("/", get(answer.clone()))
        .route("/other", get(answer))
        .layer(layer.unwrap());
    let address = serve(app).await;
    let asks = (0..200).map(|turn| status(address, if turn % 2 == 0 { "/" } else { "/other" }));
    let mut tasks = tokio::task::JoinSet::new();
    asks.for_each(|ask| drop(tasks.spawn(ask)));
    let mut admitted = 0;
    while let Some(status) = tasks.join_next().await {
        match status.unwrap() {
            200 => admitted += 1,
            status => assert_eq!(status, 429),
        }
    }
    assert_eq!((admitted, handled.load(Ordering::Relaxed)), (50, 50));
}

/// A hyper server without axum: hyper does not provide the peer, so the accept loop adds it to the requests.
#[tokio::test(flavor = "multi_thread")]
async fn the_limit_holds_under_hyper_alone_with_many_connections() {
    let limit = limit("ip", "10/h", &ManualClock::new()).key(Key::ip());
    let inner = tower::service_fn(|request: Request<Incoming>| async move {
        assert_eq!(request.uri().path(), "/");
        Ok::<_, Infallible>(Response::new("hello".to_owned()))
    });
    let service = RateLimitLayer::new(limit).unwrap().layer(inner);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (stream, peer) = listener.accept().await.unwrap();
            let service = service.clone();
            let of_peer = hyper::service::service_fn(move |mut request: Request<Incoming>| {
                request.extensions_mut().insert(Peer::from(peer));
                service.clone().oneshot(request)
            });
            let http = hyper::server::conn::http1::Builder::new();
            tokio::spawn(http.serve_connection(TokioIo::new(stream), of_peer));
        }
    });
    let mut tasks = tokio::task::JoinSet::new();
    (0..50).for_each(|_| drop(tasks.spawn(status(address, "/"))));
    let statuses = tasks.join_all().await;
    let count = |wanted: u16| statuses.iter().filter(|status| **status == wanted).count();
    assert_eq!((count(200), count(429)), (10, 40));
    let client = Client::builder(TokioExecutor::new()).build_http::<Empty<bytes::Bytes>>();
    let refused = client.get(format!("http://{address}/").parse().unwrap()).await.unwrap();
    assert_eq!(refused.headers()["content-type"], "application/problem+json");
    assert_eq!(refused.headers()["retry-after"], "360");
    let body = refused.into_body().collect().await.unwrap().to_bytes();
    assert!(std::str::from_utf8(&body).unwrap().contains(r#""status":429"#), "{body:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_route_layer_limits_its_routes_only() {
    let layer = RateLimitLayer::new(limit("heavy", "1/h", &ManualClock::new())).unwrap();
    let app = Router::new()
        .route("/heavy", get(|| async { "heavy" }))
        .route_layer(layer)
        .route("/light", get(|| async { "light" }));
    let address = serve(app).await;
    assert_eq!(status(address, "/heavy").await, 200);
    assert_eq!(status(address, "/heavy").await, 429);
    assert_eq!(status(address, "/light").await, 200);
    assert_eq!(status(address, "/nowhere").await, 404);
}

/// A body that ends only when the client disconnects.
struct Endless {
    _present: InFlightGuard,
}

impl http_body::Body for Endless {
    type Data = bytes::Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<bytes::Bytes>, Infallible>>> {
        Poll::Ready(Some(Ok(Frame::data(bytes::Bytes::from_static(&[0; 1_024])))))
    }
}

/// Sends a request, reads this number of bytes of the response, and closes the connection.
async fn disconnect(address: SocketAddr, after_bytes: usize) {
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
    stream.read_exact(&mut vec![0; after_bytes]).await.unwrap();
}

/// T13, also if the client disconnects while its request waits for a permit.
#[tokio::test(flavor = "multi_thread")]
async fn clients_that_disconnect_leave_nothing_in_flight() {
    let limiter = Limiter::new("concurrency 5 wait 1h".parse().unwrap());
    let layer = ConcurrencyLayer::new(Limit::over("permits", limiter.clone())).unwrap();
    let in_flight = InFlightCount::default();
    let counted = in_flight.clone();
    let answer = || async move { axum::body::Body::new(Endless { _present: counted.enter() }) };
    let address = serve(Router::new().route("/", get(answer)).layer(layer)).await;
    let mut clients = tokio::task::JoinSet::new();
    for turn in 0..300 {
        clients.spawn(disconnect(address, [0, 1, 500, 200_000][turn % 4]));
    }
    clients.join_all().await;
    // The server notices a closed connection later than the client.
    let all = limiter.request(&b""[..]).cost(5).within(Duration::from_secs(60)).acquire().await;
    assert!(all.is_ok(), "a permit has leaked");
    assert_eq!(in_flight.now.load(Ordering::SeqCst), 0);
    assert_eq!(in_flight.most.load(Ordering::SeqCst), 5);
}

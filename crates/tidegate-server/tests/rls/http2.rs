//! The service over a real HTTP/2 connection, as a gRPC client sees it.

use crate::harness::{about, limit, seen};
use bytes::Bytes;
use http::uri::PathAndQuery;
use hyper::client::conn::http2::SendRequest;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use tidegate::snapshot::Snapshot;
use tidegate::{ManualClock, Span, Timestamp};
use tidegate_server::clock::ServerClock;
use tidegate_server::config::{Caps, Config, ServerConfig, Token};
use tidegate_server::protocol::grpc::proto::{Code, RateLimitRequest, RateLimitResponse};
use tidegate_server::protocol::grpc::{Grpc, NAME, PATH};
use tidegate_server::server::Server;
use tokio::net::{TcpListener, TcpStream};
use tonic::body::Body;
use tonic::codegen::{BoxFuture, Service};
use tonic::{Request, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_prost::ProstCodec;

/// A connection that tonic's clients can use.
#[derive(Clone)]
struct Connection(SendRequest<Body>);

impl Service<http::Request<Body>> for Connection {
    type Response = http::Response<hyper::body::Incoming>;
    type Error = hyper::Error;
    type Future = BoxFuture<Self::Response, Self::Error>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<hyper::Result<()>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, mut request: http::Request<Body>) -> Self::Future {
        let path = request.uri().path().to_owned();
        *request.uri_mut() = format!("http://tests{path}").parse().unwrap();
        let mut connection = self.0.clone();
        Box::pin(async move { connection.send_request(request).await })
    }
}

fn server(tokens: &[&str]) -> Arc<Server> {
    let tokens = tokens.iter().map(|token| Token::new(*token)).collect();
    let config = Config {
        server: ServerConfig { tokens, ..ServerConfig::default() },
        limits: vec![limit("calls", "2/min fixed", "key")],
        ..Config::default()
    };
    let clock = ManualClock::at(Timestamp::from_micros(2_222_000_000));
    Server::new(config, None, ServerClock::Manual(clock), Snapshot::default())
}

async fn connect(server: &Arc<Server>) -> Connection {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let grpc = Grpc::new(Arc::clone(server));
    tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let service = service_fn(move |request| {
            let grpc = grpc.clone();
            async move { Ok::<_, Infallible>(grpc.answer(request, || ()).await) }
        });
        let connection = http2::Builder::new(TokioExecutor::new());
        connection.serve_connection(TokioIo::new(stream), service).await
    });
    let stream = TokioIo::new(TcpStream::connect(address).await.unwrap());
    let (sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), stream).await.unwrap();
    tokio::spawn(connection);
    Connection(sender)
}

async fn call(
    connection: &Connection,
    path: &'static str,
    request: Request<RateLimitRequest>,
) -> Result<RateLimitResponse, Status> {
    let codec: ProstCodec<RateLimitRequest, RateLimitResponse> = ProstCodec::new();
    let mut client = tonic::client::Grpc::new(connection.clone());
    client.ready().await.unwrap();
    let path = PathAndQuery::from_static(path);
    client.unary(request, path, codec).await.map(tonic::Response::into_inner)
}

async fn ask(
    connection: &Connection,
    request: RateLimitRequest,
) -> Result<RateLimitResponse, Status> {
    call(connection, PATH, Request::new(request)).await
}

#[tokio::test]
async fn calls_are_answered_until_the_limit_is_used_up() {
    let connection = connect(&server(&[])).await;
    for expected in [(Code::Ok, 1), (Code::Ok, 0), (Code::OverLimit, 0)] {
        let answer = ask(&connection, about("key=value")).await.unwrap();
        assert_eq!(answer.overall_code(), expected.0);
        assert_eq!(seen(&answer), [expected]);
    }
}

#[tokio::test]
async fn a_request_beyond_the_bounds_is_refused_with_the_reason() {
    let connection = connect(&server(&[])).await;
    let mut no_domain = about("key=value");
    no_domain.domain.clear();
    let mut many = about("key=value");
    many.descriptors = vec![many.descriptors[0].clone(); 10_000];
    let mut long = about("key=value");
    long.descriptors[0].entries[0].value = "v".repeat(1 << 20);
    let mut nothing = about("key=value");
    nothing.descriptors.clear();
    for (request, reason) in [
        (no_domain, "rate limit domain must not be empty"),
        (nothing, "rate limit descriptor list must not be empty"),
        (many, "the request has more than 64 descriptors"),
        (long, "descriptor 0 has a key or a value of 1048576 bytes, and may have 4096"),
    ] {
        let refused = ask(&connection, request).await.unwrap_err();
        assert_eq!((refused.code(), refused.message()), (tonic::Code::InvalidArgument, reason));
    }
    assert!(ask(&connection, about("key=value")).await.is_ok(), "the connection stays open");
}

#[tokio::test]
async fn a_message_of_more_than_4_mb_is_not_read() {
    let connection = connect(&server(&[])).await;
    let mut huge = about("key=value");
    huge.descriptors[0].entries[0].value = "v".repeat(5 << 20);
    let refused = ask(&connection, huge).await.unwrap_err();
    assert_eq!(refused.code(), tonic::Code::OutOfRange);
}

#[tokio::test]
async fn other_methods_are_not_implemented() {
    let connection = connect(&server(&[])).await;
    let v2 = "/envoy.service.ratelimit.v2.RateLimitService/ShouldRateLimit";
    let refused = call(&connection, v2, Request::new(about("key=value"))).await.unwrap_err();
    assert_eq!(refused.code(), tonic::Code::Unimplemented);
    let mut raw = connection.0.clone();
    let get = http::Request::get(format!("http://tests{PATH}")).body(Body::empty()).unwrap();
    let answer = raw.send_request(get).await.unwrap();
    assert_eq!(answer.headers()["grpc-status"], "12");
}

#[tokio::test]
async fn a_call_needs_a_valid_token() {
    let connection = connect(&server(&["first", "second"])).await;
    let offering = |offered: Option<&str>| {
        let mut request = Request::new(about("key=value"));
        if let Some(offered) = offered {
            request.metadata_mut().insert("authorization", offered.parse().unwrap());
        }
        request
    };
    for wrong in [None, Some("Bearer third"), Some("first"), Some("Basic first"), Some("Bearer ")] {
        let refused = call(&connection, PATH, offering(wrong)).await.unwrap_err();
        assert_eq!(refused.code(), tonic::Code::Unauthenticated, "{wrong:?}");
    }
    for right in ["Bearer first", "bearer second", "Bearer  first", "BEARER \tsecond"] {
        assert!(call(&connection, PATH, offering(Some(right))).await.is_ok(), "{right}");
    }
}

#[tokio::test]
async fn bytes_that_are_no_message_are_refused() {
    let connection = connect(&server(&[])).await;
    let mut raw = connection.0.clone();
    let frame = Bytes::from_static(&[0, 0, 0, 0, 3, 0x0a, 9, b'd']);
    let post = http::Request::post(format!("http://tests{PATH}"))
        .header("content-type", "application/grpc")
        .body(Body::new(http_body_util::Full::new(frame)))
        .unwrap();
    let answer = raw.send_request(post).await.unwrap();
    assert_eq!(answer.headers()["grpc-status"], "3");
}

// T47
#[tokio::test]
async fn one_waiting_request_too_many_is_rejected_at_once() {
    let caps = Caps { waiting_max: 1, ..Caps::default() };
    let config = Config {
        server: ServerConfig { caps, ..ServerConfig::default() },
        limits: vec![limit("line", "1/min queue capacity 9", "key")],
        ..Config::default()
    };
    let clock = ManualClock::at(Timestamp::from_micros(2_222_000_000));
    let server_clock = ServerClock::Manual(clock.clone());
    let server = Server::new(config, None, server_clock, Snapshot::default());
    let connection = connect(&server).await;
    assert!(ask(&connection, about("key=value")).await.is_ok(), "the first request does not wait");
    let waits = tokio::spawn({
        let connection = connection.clone();
        async move { ask(&connection, about("key=value")).await }
    });
    while clock.sleepers() == 0 {
        tokio::task::yield_now().await;
    }
    for number in 1..=3 {
        let refused = ask(&connection, about("key=value")).await.unwrap_err();
        assert_eq!(refused.code(), tonic::Code::ResourceExhausted);
        assert_eq!(server.status.refused.grpc.load(Ordering::Relaxed), number);
    }
    clock.advance(Span::from_secs(60));
    assert!(waits.await.unwrap().is_ok(), "the waiting request is admitted");
}

#[tokio::test]
async fn health_follows_the_drain_and_needs_no_token() {
    let server = server(&["secret"]);
    let connection = connect(&server).await;
    let mut health = HealthClient::new(connection);
    let about = |service: &str| HealthCheckRequest { service: service.to_owned() };
    for service in ["", NAME] {
        let answer = health.check(about(service)).await.unwrap();
        assert_eq!(answer.get_ref().status(), ServingStatus::Serving);
    }
    let unknown = health.check(about("other")).await.unwrap_err();
    assert_eq!(unknown.code(), tonic::Code::NotFound);

    let mut watched = health.watch(about(NAME)).await.unwrap().into_inner();
    let mut strange = health.watch(about("other")).await.unwrap().into_inner();
    let next = watched.message().await.unwrap().unwrap();
    assert_eq!(next.status(), ServingStatus::Serving);
    let next = strange.message().await.unwrap().unwrap();
    assert_eq!(next.status(), ServingStatus::ServiceUnknown);
    server.status.drain.begin();
    for mut stream in [watched, strange] {
        let next = stream.message().await.unwrap().unwrap();
        assert_eq!(next.status(), ServingStatus::NotServing);
        assert!(stream.message().await.unwrap().is_none(), "the stream ends");
    }
    let answer = health.check(about("")).await.unwrap();
    assert_eq!(answer.get_ref().status(), ServingStatus::NotServing);
}

//! gRPC: Envoy's rate limit service, version 3, and gRPC's own health service.
//!
//! ```text
//! Grpc           one HTTP request: its token, peer and method
//!   codec        the message's bytes
//!   request      parses the message, bounded (fields: its encoding; proto: its definition)
//!   limit_lookup the limits and keys of its descriptors (envoy_rate: rules as Envoy's rates)
//!   rls          decides
//!   reply        renders the response
//! ```
//!
//! Invariant A request without a necessary token is rejected before its message is read.

mod codec;
mod envoy_rate;
mod fields;
mod health;
mod limit_lookup;
pub mod proto;
mod reply;
mod request;
mod rls;

pub use fields::Malformed;
pub use request::{
    BadRequest, DESCRIPTORS_MAX, DOMAIN_BYTES_MAX, Descriptor, ENTRIES_MAX, Request, TEXT_BYTES_MAX,
};
pub use rls::RateLimits;

use crate::protocol::http::bearer;
use crate::server::{Server, Wire};
use bytes::{Bytes, BytesMut};
use codec::RequestBytes;
use health::ServerHealth;
use http_body_util::{BodyExt, Full};
use proto::RateLimitResponse;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tidegate::store::ClientId;
use tokio::sync::{Semaphore, SemaphorePermit};
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::{Body as HttpBody, StdError};
use tonic::server::UnaryService;
use tonic_health::pb::health_server::HealthServer;

/// Name of the rate limit service.
pub const NAME: &str = "envoy.service.ratelimit.v3.RateLimitService";
/// Path of its one method.
pub const PATH: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

/// Maximum length of a message. [`Request`] has further bounds.
const MESSAGE_BYTES_MAX: usize = 4 << 20;
/// Length of the prefix of a message.
const PREFIX_BYTES: usize = 5;
/// Maximum length of a health check's message, which names a service.
const HEALTH_BYTES_MAX: usize = 4 << 10;
const HEALTH_PATH: &str = "/grpc.health.v1.Health/";

/// The gRPC services. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Grpc {
    limits: Arc<RateLimits>,
    health: HealthServer<ServerHealth>,
    /// Bytes of incomplete messages that this connection may always have, whatever other connections have.
    own_parts: Arc<Semaphore>,
    /// The address of the connection's peer; `None` for calls from this program.
    address: Option<IpAddr>,
}

/// Enough for hundreds of ordinary messages.
const OWN_PARTS_BYTES: usize = 64 << 10;

impl Grpc {
    /// Returns the services of this server.
    pub fn new(server: Arc<Server>) -> Self {
        let health = HealthServer::new(ServerHealth(Arc::clone(&server)))
            .max_decoding_message_size(HEALTH_BYTES_MAX);
        let limits = Arc::new(RateLimits::new(server));
        let own_parts = Arc::new(Semaphore::new(OWN_PARTS_BYTES));
        Self { limits, health, own_parts, address: None }
    }

    /// Returns the services for a connection from this address.
    #[must_use]
    pub fn for_connection(&self, address: IpAddr) -> Self {
        let own_parts = Arc::new(Semaphore::new(OWN_PARTS_BYTES));
        Self { own_parts, address: Some(address), ..self.clone() }
    }

    /// Answers one HTTP/2 request. Calls `on_authenticated` if a token is needed and the request has one.
    ///
    /// This function finds the method by its path: tonic's router would box the request, the response and the future.
    pub async fn answer<B>(
        &self,
        request: http::Request<B>,
        on_authenticated: impl FnOnce(),
    ) -> http::Response<Body>
    where
        B: HttpBody<Data = Bytes> + Send + 'static,
        B::Error: Into<StdError> + Send + 'static,
    {
        let path = request.uri().path();
        if request.method() != http::Method::POST {
            return Status::unimplemented("the method must be POST").into_http();
        }
        if path == PATH {
            return self.should_rate_limit(request, on_authenticated).await;
        }
        if path.starts_with(HEALTH_PATH) {
            return self.check_health(request).await;
        }
        Status::unimplemented("there is no such method").into_http()
    }

    /// Answers a health check. It needs no token, so it uses only its connection's bytes and not those that all connections share.
    async fn check_health<B>(&self, request: http::Request<B>) -> http::Response<Body>
    where
        B: HttpBody<Data = Bytes> + Send + 'static,
        B::Error: Into<StdError> + Send + 'static,
    {
        let request = match self.receive(request, PartBytes::for_health(&self.own_parts)).await {
            Ok(request) => request,
            Err(status) => return status.into_http(),
        };
        let mut health = self.health.clone();
        let Ok(response) = tonic::codegen::Service::call(&mut health, request).await;
        response
    }

    async fn should_rate_limit<B>(
        &self,
        request: http::Request<B>,
        on_authenticated: impl FnOnce(),
    ) -> http::Response<Body>
    where
        B: HttpBody<Data = Bytes> + Send + 'static,
        B::Error: Into<StdError> + Send + 'static,
    {
        let (server, token) = (self.limits.server(), bearer(request.headers()));
        if !server.admits(token) {
            let wrong = u64::from(token.is_some());
            server.status.wrong_tokens.grpc.fetch_add(wrong, Ordering::Relaxed);
            return Status::unauthenticated("a token is needed: `authorization: Bearer …`")
                .into_http();
        }
        if server.must_authenticate(Wire::Grpc) {
            on_authenticated();
        }
        let peer = self.address.map_or(ClientId::OWN, |address| server.peer(address, token));
        let part_bytes = PartBytes::for_call(&self.own_parts, server);
        let request = match self.receive(request, part_bytes).await {
            Ok(request) => request,
            Err(status) => return status.into_http(),
        };
        // After it has arrived: otherwise slow clients would use up the places of requests that wait.
        let _waiting = match server.wait(Wire::Grpc, peer) {
            Ok(waiting) => waiting,
            Err(busy) => return Status::resource_exhausted(busy.to_string()).into_http(),
        };
        let mut grpc =
            tonic::server::Grpc::new(RequestBytes).max_decoding_message_size(MESSAGE_BYTES_MAX);
        let method = |request: tonic::Request<Bytes>| async move {
            let read = Request::read(request.get_ref())
                .map_err(|refused| Status::invalid_argument(refused.to_string()))?;
            self.limits.answer_for(peer, &read).await.map(tonic::Response::new)
        };
        grpc.unary(Method(method), request).await
    }
}

impl Grpc {
    /// Receives the whole message, if it arrives in time and within the bounds: a client can neither keep a stream open by sending
    /// nothing, nor use up memory with many incomplete messages.
    async fn receive<B>(
        &self,
        request: http::Request<B>,
        part_bytes: PartBytes<'_>,
    ) -> Result<http::Request<Full<Bytes>>, Status>
    where
        B: HttpBody<Data = Bytes> + Send + 'static,
        B::Error: Into<StdError> + Send + 'static,
    {
        let (parts, body) = request.into_parts();
        let patience = self.limits.server().request_patience();
        let late = |_| Status::deadline_exceeded("the message did not arrive in time");
        let body =
            tokio::time::timeout(patience, collect(body, part_bytes)).await.map_err(late)??;
        Ok(http::Request::from_parts(parts, Full::new(body)))
    }
}

async fn collect<B>(body: B, mut part_bytes: PartBytes<'_>) -> Result<Bytes, Status>
where
    B: HttpBody<Data = Bytes>,
{
    let mut body = std::pin::pin!(body);
    let mut all = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let broken = |_| Status::cancelled("the message is incomplete");
        let Ok(piece) = frame.map_err(broken)?.into_data() else { continue };
        // Most messages arrive in one piece, which is not copied.
        if all.is_empty() && body.is_end_stream() && piece.len() <= part_bytes.message_bytes_max {
            return Ok(piece);
        }
        if all.len() + piece.len() > part_bytes.message_bytes_max + PREFIX_BYTES {
            return Err(Status::out_of_range("the message is too long"));
        }
        if !part_bytes.grow(piece.len()) {
            return Err(Status::resource_exhausted("too many bytes of incomplete messages"));
        }
        all.extend_from_slice(&piece);
    }
    Ok(all.freeze())
}

/// Reservations for the bytes of an incomplete message.
struct PartBytes<'a> {
    message_bytes_max: usize,
    /// The connection's own bytes.
    own: &'a Semaphore,
    /// The server, whose bytes all connections share.
    server: Option<&'a Server>,
    of_own: Option<SemaphorePermit<'a>>,
    of_shared: Option<SemaphorePermit<'a>>,
}

impl<'a> PartBytes<'a> {
    /// Returns the reservations of a call that has a token.
    fn for_call(own: &'a Semaphore, server: &'a Server) -> Self {
        let (message_bytes_max, server) = (MESSAGE_BYTES_MAX, Some(server));
        Self { message_bytes_max, own, server, of_own: None, of_shared: None }
    }

    /// Returns the reservations of a call that needs no token.
    fn for_health(own: &'a Semaphore) -> Self {
        let (message_bytes_max, server) = (HEALTH_BYTES_MAX, None);
        Self { message_bytes_max, own, server, of_own: None, of_shared: None }
    }

    /// Reserves more bytes; returns `false` if there are none.
    fn grow(&mut self, bytes: usize) -> bool {
        let own = u32::try_from(bytes).ok().and_then(|bytes| self.own.try_acquire_many(bytes).ok());
        let (reserved, more) = match own {
            Some(more) => (&mut self.of_own, Some(more)),
            None => (
                &mut self.of_shared,
                self.server.and_then(|server| server.reserve_partial_message(bytes)),
            ),
        };
        let Some(more) = more else { return false };
        match reserved {
            Some(reserved) => reserved.merge(more),
            None => *reserved = Some(more),
        }
        true
    }
}

/// A method whose future has a name, so that it need not be boxed.
struct Method<F>(F);

impl<F, A> UnaryService<Bytes> for Method<F>
where
    F: FnMut(tonic::Request<Bytes>) -> A,
    A: Future<Output = Result<tonic::Response<RateLimitResponse>, Status>>,
{
    type Response = RateLimitResponse;
    type Future = A;

    fn call(&mut self, request: tonic::Request<Bytes>) -> A {
        self.0(request)
    }
}

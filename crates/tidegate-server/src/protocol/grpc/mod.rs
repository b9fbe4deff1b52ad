//! gRPC: Envoy's rate limit service, version 3, and gRPC's own health service.
//!
//! ```text
//! Grpc          one HTTP request: who asks, which method
//!   codec       the message's bytes
//!   request     what is asked, bounded
//!   book        which limits count it, by which keys
//!   rls         what is decided
//!   reply       what Envoy is told
//! ```
//!
//! Always   Who needs a token and has none is turned away before the request is read.

mod book;
mod codec;
mod health;
pub mod proto;
mod rate;
mod reply;
mod request;
mod rls;
mod wire;

pub use request::{
    BadRequest, DESCRIPTORS_MAX, DOMAIN_BYTES_MAX, Descriptor, ENTRIES_MAX, Request, TEXT_BYTES_MAX,
};
pub use rls::RateLimits;
pub use wire::Malformed;

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

/// What the rate limit service is called.
pub const NAME: &str = "envoy.service.ratelimit.v3.RateLimitService";
/// Where its one method is.
pub const PATH: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

/// A message is no longer than this; it may then still be more than a [`Request`] can be.
const MESSAGE_BYTES_MAX: usize = 4 << 20;
/// What stands before it.
const PREFIX_BYTES: usize = 5;
/// A health check names a service.
const HEALTH_BYTES_MAX: usize = 4 << 10;
const HEALTH_PATH: &str = "/grpc.health.v1.Health/";

/// All that is served over gRPC. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Grpc {
    limits: Arc<RateLimits>,
    health: HealthServer<ServerHealth>,
    /// Bytes that this connection may have of messages that have not come whole, whatever others do.
    own_parts: Arc<Semaphore>,
    /// The address of the connection's peer; `None` for calls from this program.
    address: Option<IpAddr>,
}

/// Hundreds of ordinary messages.
const OWN_PARTS_BYTES: usize = 64 << 10;

impl Grpc {
    /// The services of this server.
    pub fn new(server: Arc<Server>) -> Self {
        let health = HealthServer::new(ServerHealth(Arc::clone(&server)))
            .max_decoding_message_size(HEALTH_BYTES_MAX);
        let limits = Arc::new(RateLimits::new(server));
        let own_parts = Arc::new(Semaphore::new(OWN_PARTS_BYTES));
        Self { limits, health, own_parts, address: None }
    }

    /// The same for a connection that comes from this address.
    #[must_use]
    pub fn for_connection(&self, address: IpAddr) -> Self {
        let own_parts = Arc::new(Semaphore::new(OWN_PARTS_BYTES));
        Self { own_parts, address: Some(address), ..self.clone() }
    }

    /// Answers one HTTP/2 request. Calls `on_authenticated` if a token is needed and the request has one.
    ///
    /// The method is found by its path here: tonic's router would box the request, the response and the future.
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
            return Status::unimplemented("a call is a POST").into_http();
        }
        if path == PATH {
            return self.should_rate_limit(request, on_authenticated).await;
        }
        if path.starts_with(HEALTH_PATH) {
            return self.check_health(request).await;
        }
        Status::unimplemented("there is no such method here").into_http()
    }

    /// It needs no token, so it takes no room from what those who have one share.
    async fn check_health<B>(&self, request: http::Request<B>) -> http::Response<Body>
    where
        B: HttpBody<Data = Bytes> + Send + 'static,
        B::Error: Into<StdError> + Send + 'static,
    {
        let request = match self.whole(request, PartsRoom::for_health(&self.own_parts)).await {
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
        let room = PartsRoom::for_call(&self.own_parts, server);
        let request = match self.whole(request, room).await {
            Ok(request) => request,
            Err(status) => return status.into_http(),
        };
        // Not before it has come: who is slow with many would take the places of those who are not.
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
    /// The request with all of its message, if that comes in time: a stream may not be held open by saying
    /// nothing on it, nor memory by saying much on many.
    async fn whole<B>(
        &self,
        request: http::Request<B>,
        room: PartsRoom<'_>,
    ) -> Result<http::Request<Full<Bytes>>, Status>
    where
        B: HttpBody<Data = Bytes> + Send + 'static,
        B::Error: Into<StdError> + Send + 'static,
    {
        let (parts, body) = request.into_parts();
        let patience = self.limits.server().request_patience();
        let late = |_| Status::deadline_exceeded("the message did not come in time");
        let body = tokio::time::timeout(patience, collect(body, room)).await.map_err(late)??;
        Ok(http::Request::from_parts(parts, Full::new(body)))
    }
}

async fn collect<B>(body: B, mut room: PartsRoom<'_>) -> Result<Bytes, Status>
where
    B: HttpBody<Data = Bytes>,
{
    let mut body = std::pin::pin!(body);
    let mut all = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let broken = |_| Status::cancelled("the message broke off");
        let Ok(piece) = frame.map_err(broken)?.into_data() else { continue };
        // Most messages come in one piece, which is used as it is.
        if all.is_empty() && body.is_end_stream() && piece.len() <= room.message_bytes_max {
            return Ok(piece);
        }
        if all.len() + piece.len() > room.message_bytes_max + PREFIX_BYTES {
            return Err(Status::out_of_range("the message is too long"));
        }
        if !room.grow(piece.len()) {
            return Err(Status::resource_exhausted("too much has half come"));
        }
        all.extend_from_slice(&piece);
    }
    Ok(all.freeze())
}

/// Room for what has come of a message.
struct PartsRoom<'a> {
    message_bytes_max: usize,
    /// What the connection has for itself, and whose server has more for all together.
    own: &'a Semaphore,
    server: Option<&'a Server>,
    /// What is taken of the one and of the other.
    of_own: Option<SemaphorePermit<'a>>,
    of_shared: Option<SemaphorePermit<'a>>,
}

impl<'a> PartsRoom<'a> {
    /// For a call that has shown its token.
    fn for_call(own: &'a Semaphore, server: &'a Server) -> Self {
        let (message_bytes_max, server) = (MESSAGE_BYTES_MAX, Some(server));
        Self { message_bytes_max, own, server, of_own: None, of_shared: None }
    }

    /// For a call that need not show any.
    fn for_health(own: &'a Semaphore) -> Self {
        let (message_bytes_max, server) = (HEALTH_BYTES_MAX, None);
        Self { message_bytes_max, own, server, of_own: None, of_shared: None }
    }

    /// Takes room for so many bytes more, if there is.
    fn grow(&mut self, bytes: usize) -> bool {
        let own = u32::try_from(bytes).ok().and_then(|bytes| self.own.try_acquire_many(bytes).ok());
        let (room, more) = match own {
            Some(more) => (&mut self.of_own, Some(more)),
            None => (
                &mut self.of_shared,
                self.server.and_then(|server| server.reserve_partial_message(bytes)),
            ),
        };
        let Some(more) = more else { return false };
        match room {
            Some(room) => room.merge(more),
            None => *room = Some(more),
        }
        true
    }
}

/// A method whose future has a name, so that nobody has to box it.
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

//! One thread that accepts connections and serves them.

use super::deadlines::{ConnectionState, Connections};
use super::stream::MonitoredStream;
use super::unauthenticated::Unauthenticated;
use super::{Wire, http1, http2, resp, shutdown, tls};
use crate::protocol::admin;
use crate::protocol::grpc::Grpc;
use crate::server::Server;
use ::http::Request;
use ::http::request::Parts;
use hyper::body::Incoming;
use hyper::service::service_fn;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tidegate::store::ClientId;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::AbortHandle;

/// A socket to accept connections from.
pub(super) struct Listener {
    pub(super) wire: Wire,
    pub(super) socket: std::net::TcpListener,
}

#[derive(Clone)]
struct Worker {
    server: Arc<Server>,
    grpc: Grpc,
    connections: Arc<Connections>,
    shared: Arc<SharedByWorkers>,
    /// Becomes `true` when the server shuts down.
    closing: watch::Receiver<bool>,
}

/// What all workers share about connections.
pub(super) struct SharedByWorkers {
    /// Unauthenticated connections of the RESP, HTTP and gRPC listeners.
    clients: Arc<Unauthenticated>,
    /// Unauthenticated connections of the admin listener.
    operators: Arc<Unauthenticated>,
    /// Permits to tell a rejected peer why.
    rejections: Arc<Semaphore>,
}

impl SharedByWorkers {
    pub(super) fn new(server: &Server) -> Self {
        // Each takes a descriptor, of which there may be few.
        let rejections = REJECTIONS_MAX.min(1 + server.connections_max() / 4);
        Self {
            clients: Arc::default(),
            operators: Arc::default(),
            rejections: Arc::new(Semaphore::new(rejections)),
        }
    }

    fn unauthenticated(&self, wire: Wire) -> &Arc<Unauthenticated> {
        match wire {
            Wire::Admin => &self.operators,
            Wire::Resp | Wire::Http | Wire::Grpc => &self.clients,
        }
    }
}

/// Admin connections that there are even with few descriptors.
const ADMIN_CONNECTIONS_MIN: u64 = 8;
/// Interval at which a drain checks for open connections.
const DRAIN_STEP: Duration = Duration::from_millis(20);
/// Connections reserved for the admin listener, so that a flood of clients does not shut the operator out.
pub(crate) const ADMIN_CONNECTIONS_MAX: u64 = 64;
/// Time for a rejected peer to read why.
const REJECTION_TIME: Duration = Duration::from_millis(100);
/// Rejected peers that are sent the reason at the same time.
pub(crate) const REJECTIONS_MAX: usize = 64;
/// Pause after a first failed accept; it doubles with each further failure.
const ACCEPT_PAUSE_MIN: Duration = Duration::from_millis(5);
const ACCEPT_PAUSE_MAX: Duration = Duration::from_millis(500);

/// Serves connections until the server shuts down and all peers have left or their time is over.
pub(super) fn run(
    runtime: &Runtime,
    (server, shared): (Arc<Server>, Arc<SharedByWorkers>),
    listeners: Vec<Listener>,
    closing: watch::Receiver<bool>,
) {
    let drain = server.config().server.drain;
    let grpc = Grpc::new(Arc::clone(&server));
    let worker = Worker { server, grpc, connections: Arc::default(), shared, closing };
    runtime.block_on(async {
        let connections = Arc::clone(&worker.connections);
        let server = Arc::clone(&worker.server);
        let must_authenticate = move |wire| server.must_authenticate(wire);
        tokio::spawn(async move { connections.enforce_deadlines(must_authenticate).await });
        let accepting = listeners.into_iter().map(|it| tokio::spawn(worker.clone().accept_all(it)));
        let accepting: Vec<_> = accepting.collect();
        let mut closing = worker.closing.clone();
        shutdown(&mut closing).await;
        accepting.iter().for_each(tokio::task::JoinHandle::abort);
        worker.drain(drain).await;
    });
}

impl Worker {
    async fn drain(&self, time: Duration) {
        let all_closed = async {
            while self.connections.len() > 0 {
                self.connections.close_idle();
                tokio::time::sleep(DRAIN_STEP).await;
            }
        };
        if tokio::time::timeout(time, all_closed).await.is_err() {
            let open = self.connections.len();
            tracing::warn!("closed {open} connections that were still open at the end of `drain`");
            self.connections.close_all();
            tokio::task::yield_now().await;
        }
    }

    async fn accept_all(self, listener: Listener) {
        let wire = listener.wire;
        let socket = match TcpListener::from_std(listener.socket) {
            Ok(socket) => socket,
            Err(error) => return tracing::error!("cannot accept {wire} connections: {error}"),
        };
        let mut pause = ACCEPT_PAUSE_MIN;
        loop {
            match socket.accept().await {
                Ok((stream, peer)) => {
                    pause = ACCEPT_PAUSE_MIN;
                    self.accept(stream, peer, wire);
                }
                Err(error) if is_of_one_peer(&error) => {}
                Err(error) => {
                    tracing::warn!("cannot accept {wire} connections at present: {error}");
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(ACCEPT_PAUSE_MAX);
                }
            }
        }
    }

    fn accept(&self, stream: TcpStream, peer: SocketAddr, wire: Wire) {
        let status = &self.server.status;
        let config = self.server.config();
        // From the present configuration: a reload may have changed the certificates.
        let tls = tls::acceptor(&config.server, wire);
        let address = self.server.peer(peer.ip(), None);
        if !self.has_capacity(wire, address) {
            status.rejected.of(wire).fetch_add(1, Ordering::Relaxed);
            // In a flood most peers get no reason, because sending it takes a descriptor.
            let permit = Arc::clone(&self.shared.rejections).try_acquire_owned();
            if let (None, Ok(permit)) = (tls, permit) {
                tokio::spawn(reject(stream, wire, permit));
            }
            return;
        }
        let caps = self.server.config().server.caps;
        status.connections.of(wire).fetch_add(1, Ordering::Relaxed);
        let (id, state) = self.connections.add(wire, &caps);
        let worker = self.clone();
        let guard = ConnectionGuard { worker: worker.clone(), wire, id, state: Arc::clone(&state) };
        let served = Arc::clone(&state);
        let task = tokio::spawn(async move {
            let _guard = guard;
            // Answers are written whole, so waiting for more to send would only delay them.
            let _ = stream.set_nodelay(true);
            let ended = match tls {
                None => worker.serve(stream, peer, wire, served).await,
                Some(tls) => match tls.accept(stream).await {
                    Ok(stream) => {
                        if worker.server.is_certificate_enough(wire) {
                            served.set_authenticated();
                        }
                        worker.serve(stream, peer, wire, served).await
                    }
                    Err(error) => Err(error),
                },
            };
            if let Err(error) = ended {
                tracing::debug!(%peer, %wire, "connection ended: {error}");
            }
        });
        self.connections.set_abort_handle(id, task.abort_handle());
        self.register_unauthenticated(wire, address, &state, task.abort_handle());
    }

    /// Returns whether one more connection may be accepted, perhaps after closing an unauthenticated one for it.
    fn has_capacity(&self, wire: Wire, address: ClientId) -> bool {
        let status = &self.server.status;
        let open = |wire| status.connections.of(wire).load(Ordering::Relaxed);
        let unauthenticated = self.shared.unauthenticated(wire);
        let is_full = match wire {
            Wire::Admin => open(Wire::Admin) >= self.admin_connections_max(),
            // Each count is read once: connections come and go meanwhile, so a difference of counts could be wrong.
            Wire::Resp | Wire::Http | Wire::Grpc => {
                let counts = [Wire::Resp, Wire::Http, Wire::Grpc].map(open);
                if unauthenticated.count(address) >= self.server.connections_per_address() {
                    return false;
                }
                counts.iter().sum::<u64>() >= self.server.connections_max() as u64
            }
        };
        let can_close = wire == Wire::Admin || self.server.must_authenticate(wire);
        !is_full || (can_close && unauthenticated.close_one())
    }

    /// Returns the maximum number of admin connections: with few descriptors, as many as clients may have.
    fn admin_connections_max(&self) -> u64 {
        let clients = self.server.connections_max() as u64;
        ADMIN_CONNECTIONS_MAX.min(clients.max(ADMIN_CONNECTIONS_MIN))
    }

    /// Registers a connection until its peer authenticates. Where peers need not authenticate, connections of the admin listener are
    /// closed for each other, and others are only counted.
    fn register_unauthenticated(
        &self,
        wire: Wire,
        address: ClientId,
        state: &Arc<ConnectionState>,
        close: AbortHandle,
    ) {
        let must_authenticate = self.server.must_authenticate(wire);
        if must_authenticate {
            let time = self.server.config().server.caps.unauthenticated;
            state.require_authentication_within(time);
        }
        let close = (must_authenticate || wire == Wire::Admin).then_some(close);
        self.shared.unauthenticated(wire).add(address, state, close);
    }

    async fn serve<S>(
        &self,
        stream: S,
        peer: SocketAddr,
        wire: Wire,
        state: Arc<ConnectionState>,
    ) -> io::Result<()>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (server, closing) = (Arc::clone(&self.server), self.closing.clone());
        match wire {
            Wire::Resp => resp::serve(stream, server, peer, &state).await,
            Wire::Http => {
                let stream = MonitoredStream::http1(stream, state);
                http1::serve_plain(stream, &server, peer, closing).await
            }
            Wire::Grpc => self.serve_grpc(stream, peer, state).await,
            Wire::Admin => {
                let stream = MonitoredStream::http1(stream, state);
                let shared = Arc::clone(&server);
                let authenticate = stream
                    .authenticate_by(move |head: &Parts| admin::is_authenticated(&shared, head));
                http1::serve(stream, admin::service(server, authenticate), closing).await
            }
        }
    }

    async fn serve_grpc<S>(
        &self,
        stream: S,
        peer: SocketAddr,
        state: Arc<ConnectionState>,
    ) -> io::Result<()>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (grpc, shared) = (self.grpc.for_connection(peer.ip()), Arc::clone(&state));
        let service = service_fn(move |request: Request<Incoming>| {
            let (grpc, state) = (grpc.clone(), Arc::clone(&shared));
            let answering = state.begin_answer();
            async move {
                let answered = grpc.answer(request, || state.set_authenticated()).await;
                drop(answering);
                Ok(answered)
            }
        });
        let stream = MonitoredStream::http2(stream, state);
        http2::serve(stream, service, self.closing.clone()).await
    }
}

/// Removes a connection from all counts, however its task ends.
struct ConnectionGuard {
    worker: Worker,
    wire: Wire,
    id: u64,
    state: Arc<ConnectionState>,
}

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        self.state.release_slot();
        self.worker.server.status.connections.of(self.wire).fetch_sub(1, Ordering::Relaxed);
        self.worker.connections.remove(self.id);
    }
}

/// Returns whether an error of `accept` concerns only one peer, which has disconnected.
fn is_of_one_peer(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}

/// Tells a peer that the server has too many connections. The rest of its input is read: closing a socket with unread bytes resets the
/// connection, and the message is lost.
async fn reject(mut stream: TcpStream, wire: Wire, _permit: OwnedSemaphorePermit) {
    let message: &[u8] = match wire {
        Wire::Resp => b"-ERR max number of clients reached\r\n",
        Wire::Http | Wire::Admin => {
            b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\ncontent-length: 0\r\n\
              connection: close\r\n\r\n"
        }
        Wire::Grpc => b"",
    };
    let write_and_drain = async {
        stream.write_all(message).await?;
        stream.shutdown().await?;
        stream.read(&mut [0; 1_024]).await
    };
    let _ = tokio::time::timeout(REJECTION_TIME, write_and_drain).await;
}

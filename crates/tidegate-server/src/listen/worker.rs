//! One thread that accepts and serves.

use super::Wire;
use super::activity::{Activity, Peers};
use super::http::{Watched, closed, serve_http1, serve_http2};
use super::plain;
use super::strangers::Strangers;
use super::wakeful::Wakeful;
use crate::config::ServerConfig;
use crate::grpc::Grpc;
use crate::server::Server;
use crate::tls::Alpn;
use crate::{admin, resp};
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
use tokio_rustls::TlsAcceptor;

/// A socket to accept from.
pub(super) struct Door {
    pub(super) wire: Wire,
    pub(super) listener: std::net::TcpListener,
}

#[derive(Clone)]
struct Worker {
    server: Arc<Server>,
    grpc: Grpc,
    peers: Arc<Peers>,
    rooms: Arc<Rooms>,
    /// Becomes `true` when it is time to go.
    closing: watch::Receiver<bool>,
}

/// What all workers share of who is in.
pub(super) struct Rooms {
    /// Those who have not shown who they are, of the listeners that decide.
    strangers: Arc<Strangers>,
    /// The same of the operator's.
    visitors: Arc<Strangers>,
    /// Who is turned away and has not heard why yet.
    turned_away: Arc<Semaphore>,
}

impl Rooms {
    pub(super) fn new(server: &Server) -> Self {
        // Each takes a descriptor, of which there may be few.
        let turned_away = TURNED_AWAY_MAX.min(1 + server.connections_max() / 4);
        Self {
            strangers: Arc::default(),
            visitors: Arc::default(),
            turned_away: Arc::new(Semaphore::new(turned_away)),
        }
    }

    fn of(&self, wire: Wire) -> &Arc<Strangers> {
        match wire {
            Wire::Admin => &self.visitors,
            Wire::Resp | Wire::Http | Wire::Grpc => &self.strangers,
        }
    }
}

/// How long a drain waits before it looks again.
const DRAIN_STEP: Duration = Duration::from_millis(20);
/// The operator has places that nobody else can take: who watches a flood must not be shut out by it.
pub(crate) const ADMIN_CONNECTIONS_MAX: u64 = 64;
/// How long who is turned away has to hear why.
const TURN_AWAY: Duration = Duration::from_millis(100);
/// And so many can be told at once.
pub(crate) const TURNED_AWAY_MAX: usize = 64;
/// The longest pause after a failed accept.
const ACCEPT_PAUSE_MAX: Duration = Duration::from_millis(500);

/// Works until it is time to go and everybody has left.
pub(super) fn work(
    runtime: &Runtime,
    (server, rooms): (Arc<Server>, Arc<Rooms>),
    doors: Vec<Door>,
    closing: watch::Receiver<bool>,
    wakeful: Arc<Wakeful>,
) {
    let drain = server.config().server.drain;
    let grpc = Grpc::new(Arc::clone(&server));
    let peers = Arc::new(Peers::new(Arc::clone(&wakeful)));
    let worker = Worker { server, grpc, peers, rooms, closing };
    runtime.block_on(async {
        let peers = Arc::clone(&worker.peers);
        let server = Arc::clone(&worker.server);
        let must_show = move |wire| server.must_show_itself(wire);
        tokio::spawn(async move { peers.watch(must_show).await });
        tokio::spawn(async move { wakeful.stand_by().await });
        let doors = doors.into_iter().map(|door| tokio::spawn(worker.clone().accept_all(door)));
        let doors: Vec<_> = doors.collect();
        let mut closing = worker.closing.clone();
        closed(&mut closing).await;
        doors.iter().for_each(tokio::task::JoinHandle::abort);
        let everybody = async {
            while worker.peers.len() > 0 {
                worker.peers.end_idle();
                tokio::time::sleep(DRAIN_STEP).await;
            }
        };
        if tokio::time::timeout(drain, everybody).await.is_err() {
            tracing::warn!("{} peers did not leave in time and were cut off", worker.peers.len());
            worker.peers.end_all();
            tokio::task::yield_now().await;
        }
    });
}

impl Worker {
    async fn accept_all(self, door: Door) {
        let door_wire = door.wire;
        let listener = match TcpListener::from_std(door.listener) {
            Ok(listener) => listener,
            Err(error) => return tracing::error!("cannot accept on {door_wire}: {error}"),
        };
        let mut pause = Duration::from_millis(5);
        loop {
            match listener.accept().await {
                Ok((stream, peer)) => {
                    pause = Duration::from_millis(5);
                    self.welcome(stream, peer, door_wire);
                }
                Err(error) if is_of_one_peer(&error) => {}
                Err(error) => {
                    tracing::warn!("cannot accept on {door_wire} now: {error}");
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(ACCEPT_PAUSE_MAX);
                }
            }
        }
    }

    fn welcome(&self, stream: TcpStream, peer: SocketAddr, wire: Wire) {
        let status = &self.server.status;
        let config = self.server.config();
        // As of now: a reload may have put other certificates in place.
        let tls = acceptor(&config.server, wire);
        let address = self.server.peer(peer.ip(), None);
        if !self.has_room(wire, address) {
            status.rejected.of(wire).fetch_add(1, Ordering::Relaxed);
            // In a flood, most of them hear nothing: to say it takes a descriptor.
            let turn = Arc::clone(&self.rooms.turned_away).try_acquire_owned();
            if let (None, Ok(turn)) = (tls, turn) {
                tokio::spawn(turn_away(stream, wire, turn));
            }
            return;
        }
        let caps = self.server.config().server.caps;
        status.connections.of(wire).fetch_add(1, Ordering::Relaxed);
        let (number, activity) = self.peers.enter(wire, &caps);
        let worker = self.clone();
        let guard = Guard { worker: worker.clone(), wire, number, activity: Arc::clone(&activity) };
        let served = Arc::clone(&activity);
        let task = tokio::spawn(async move {
            let _guard = guard;
            // Answers are written whole; waiting for more to send would only delay them.
            let _ = stream.set_nodelay(true);
            let ended = match tls {
                None => worker.serve(stream, peer, wire, served).await,
                Some(tls) => match tls.accept(stream).await {
                    Ok(stream) => {
                        if worker.server.is_certificate_enough(wire) {
                            served.is_known();
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
        self.peers.handle(number, task.abort_handle());
        self.know(wire, address, &activity, task.abort_handle());
    }

    /// Whether one more may come in; perhaps a connection that has shown no token has to leave for it, where tokens are needed.
    fn has_room(&self, wire: Wire, address: ClientId) -> bool {
        let status = &self.server.status;
        let here = |wire| status.connections.of(wire).load(Ordering::Relaxed);
        let strangers = self.rooms.of(wire);
        let is_full = match wire {
            Wire::Admin => here(Wire::Admin) >= ADMIN_CONNECTIONS_MAX,
            // Each read once: of what comes and goes meanwhile no difference can be taken.
            Wire::Resp | Wire::Http | Wire::Grpc => {
                let others = [Wire::Resp, Wire::Http, Wire::Grpc].map(here);
                let has_share = strangers.of(address) < self.server.connections_per_address();
                if !has_share {
                    return false;
                }
                others.iter().sum::<u64>() >= self.server.connections_max() as u64
            }
        };
        let makes_room = wire == Wire::Admin || self.server.must_show_itself(wire);
        !is_full || (makes_room && strangers.close_one())
    }

    /// Keeps a connection in mind until its peer has shown who it is. Where nobody has to, the operator's make room for each
    /// other, and others are counted only.
    fn know(&self, wire: Wire, address: ClientId, activity: &Arc<Activity>, close: AbortHandle) {
        let must_show = self.server.must_show_itself(wire);
        if must_show {
            activity.must_be_known_within(self.server.config().server.caps.unauthenticated);
        }
        let close = (must_show || wire == Wire::Admin).then_some(close);
        self.rooms.of(wire).enter(address, activity, close);
    }

    async fn serve<S>(
        &self,
        stream: S,
        peer: SocketAddr,
        wire: Wire,
        activity: Arc<Activity>,
    ) -> io::Result<()>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (server, closing) = (Arc::clone(&self.server), self.closing.clone());
        if wire == Wire::Resp {
            return resp::serve(stream, server, peer, &activity).await;
        }
        if wire == Wire::Grpc {
            let (grpc, watched) =
                (self.grpc.for_connection(peer.ip(), &activity), Arc::clone(&activity));
            let service = service_fn(move |request: Request<Incoming>| {
                let (grpc, answering) = (grpc.clone(), watched.answers());
                async move {
                    let answered = grpc.answer(request).await;
                    drop(answering);
                    Ok(answered)
                }
            });
            return serve_http2(Watched::http2(stream, activity), service, closing).await;
        }
        let stream = Watched::http1(stream, activity);
        match wire {
            Wire::Admin => {
                let knows = stream.knows(|head: &Parts| admin::is_known(&server, head));
                serve_http1(stream, admin::service(server.clone(), knows), closing).await
            }
            _ => plain::serve(stream, &server, peer, closing).await,
        }
    }
}

/// What a peer of this listener is accepted with, if it is to speak TLS.
fn acceptor(config: &ServerConfig, wire: Wire) -> Option<TlsAcceptor> {
    let alpn = match wire {
        Wire::Resp => Alpn::None,
        Wire::Http | Wire::Admin => Alpn::Http1,
        Wire::Grpc => Alpn::Http2,
    };
    config.tls_of(wire).map(|tls| tls.credentials.acceptor(alpn))
}

/// Counts a peer out, however its task ends.
struct Guard {
    worker: Worker,
    wire: Wire,
    number: u64,
    activity: Arc<Activity>,
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.activity.gives_up_place();
        self.worker.server.status.connections.of(self.wire).fetch_sub(1, Ordering::Relaxed);
        self.worker.peers.leave(self.number);
    }
}

/// Whether it is only the one peer that has gone again.
fn is_of_one_peer(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}

/// Says why. What the peer has sent is read first: closing a socket with unread bytes in it takes back what
/// was written.
async fn turn_away(mut stream: TcpStream, wire: Wire, _turn: OwnedSemaphorePermit) {
    let message: &[u8] = match wire {
        Wire::Resp => b"-ERR max number of clients reached\r\n",
        Wire::Http | Wire::Admin => {
            b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\ncontent-length: 0\r\n\
              connection: close\r\n\r\n"
        }
        Wire::Grpc => b"",
    };
    let say = async {
        stream.write_all(message).await?;
        stream.shutdown().await?;
        stream.read(&mut [0; 1_024]).await
    };
    let _ = tokio::time::timeout(TURN_AWAY, say).await;
}

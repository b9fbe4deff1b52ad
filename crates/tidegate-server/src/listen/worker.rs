//! One thread that accepts and serves.

use super::Wire;
use super::activity::{Activity, Peers};
use super::http::{Watched, closed, serve_http1, serve_http2};
use super::plain;
use super::wakeful::Wakeful;
use crate::config::ServerConfig;
use crate::grpc::Grpc;
use crate::server::Server;
use crate::tls::Alpn;
use crate::{admin, resp};
use ::http::Request;
use hyper::body::Incoming;
use hyper::service::service_fn;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
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
    /// Who is turned away and has not heard why yet.
    turned_away: Arc<Semaphore>,
    /// Becomes `true` when it is time to go.
    closing: watch::Receiver<bool>,
}

/// How long a drain waits before it looks again.
const DRAIN_STEP: Duration = Duration::from_millis(20);
/// The operator has places that nobody else can take: who watches a flood must not be shut out by it.
const ADMIN_CONNECTIONS_MAX: u64 = 64;
/// How long who is turned away has to hear why.
const TURN_AWAY: Duration = Duration::from_millis(100);
/// And so many can be told at once.
const TURNED_AWAY_MAX: usize = 64;
/// The longest pause after a failed accept.
const ACCEPT_PAUSE_MAX: Duration = Duration::from_millis(500);

/// Works until it is time to go and everybody has left.
pub(super) fn work(
    runtime: &Runtime,
    server: Arc<Server>,
    doors: Vec<Door>,
    closing: watch::Receiver<bool>,
    wakeful: Arc<Wakeful>,
) {
    let drain = server.config().server.drain;
    let grpc = Grpc::new(Arc::clone(&server));
    let turned_away = Arc::new(Semaphore::new(TURNED_AWAY_MAX));
    let peers = Arc::new(Peers::new(Arc::clone(&wakeful)));
    let worker = Worker { server, grpc, peers, turned_away, closing };
    runtime.block_on(async {
        let peers = Arc::clone(&worker.peers);
        tokio::spawn(async move { peers.watch().await });
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
        let caps = config.server.caps;
        let here = |wire| status.connections.of(wire).load(Ordering::Relaxed);
        let has_room = match wire {
            Wire::Admin => here(Wire::Admin) < ADMIN_CONNECTIONS_MAX,
            // Each read once: of what comes and goes meanwhile no difference can be taken.
            Wire::Resp | Wire::Http | Wire::Grpc => {
                let others = [Wire::Resp, Wire::Http, Wire::Grpc].map(here);
                others.iter().sum::<u64>() < caps.connections_max as u64
            }
        };
        if !has_room {
            status.rejected.of(wire).fetch_add(1, Ordering::Relaxed);
            // In a flood, most of them hear nothing: to say it takes a descriptor.
            if let (None, Ok(turn)) = (tls, Arc::clone(&self.turned_away).try_acquire_owned()) {
                tokio::spawn(turn_away(stream, wire, turn));
            }
            return;
        }
        status.connections.of(wire).fetch_add(1, Ordering::Relaxed);
        let (number, activity) = self.peers.enter(&caps);
        let worker = self.clone();
        let guard = Guard { worker: worker.clone(), wire, number };
        let task = tokio::spawn(async move {
            let _guard = guard;
            // Answers are written whole; waiting for more to send would only delay them.
            let _ = stream.set_nodelay(true);
            let ended = match tls {
                None => worker.serve(stream, peer, wire, activity).await,
                Some(tls) => match tls.accept(stream).await {
                    Ok(stream) => worker.serve(stream, peer, wire, activity).await,
                    Err(error) => Err(error),
                },
            };
            if let Err(error) = ended {
                tracing::debug!(%peer, %wire, "connection ended: {error}");
            }
        });
        self.peers.handle(number, task.abort_handle());
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
            return resp::serve(stream, server, &activity).await;
        }
        if wire == Wire::Grpc {
            let (grpc, watched) = (self.grpc.for_connection(), Arc::clone(&activity));
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
            Wire::Admin => serve_http1(stream, admin::service(server), closing).await,
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
}

impl Drop for Guard {
    fn drop(&mut self) {
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

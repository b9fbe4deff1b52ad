//! One connection from a client to the server.

use std::future::pending;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::select;
use tokio::sync::watch;

use super::counts::Counts;
use super::fault::Fault;
use super::replies;

pub(super) const PIECE_BYTES_MAX: usize = 64 * 1024;

/// How the connection ends for the client.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// FIN.
    Close,
    /// RST.
    Reset,
}

pub(super) struct Connection {
    fault: watch::Receiver<Fault>,
    pub(super) counts: Arc<Counts>,
    /// Whether a black hole has swallowed bytes, after which nothing passes any more.
    is_lost: AtomicBool,
}

impl Connection {
    pub(super) fn new(fault: watch::Receiver<Fault>, counts: Arc<Counts>) -> Self {
        Self { fault, counts, is_lost: AtomicBool::new(false) }
    }

    pub(super) async fn run(self, mut client: TcpStream, server: SocketAddr) {
        let end = select! {
            end = self.pass(&mut client, server) => end,
            () = self.becomes(Fault::Refuse) => End::Reset,
        };
        if end == End::Reset {
            // Fails only if the client has already closed the connection.
            let _ = client.set_zero_linger();
        }
    }

    async fn pass(&self, client: &mut TcpStream, server: SocketAddr) -> End {
        // A black hole must not reveal whether the server is up.
        if self.fault() == Fault::BlackHole {
            return self.swallow(client).await;
        }
        let Ok(mut server) = TcpStream::connect(server).await else { return End::Reset };
        if client.set_nodelay(true).and(server.set_nodelay(true)).is_err() {
            return End::Reset;
        }
        let (from_client, to_client) = client.split();
        let (from_server, to_server) = server.split();
        select! {
            end = self.requests(from_client, to_server) => end,
            end = replies::pass(self, from_server, to_client) => end,
        }
    }

    async fn swallow(&self, client: &mut TcpStream) -> End {
        let mut piece = vec![0; PIECE_BYTES_MAX];
        while !matches!(client.read(&mut piece).await, Ok(0) | Err(_)) {}
        End::Close
    }

    async fn requests(&self, mut from: ReadHalf<'_>, mut to: WriteHalf<'_>) -> End {
        let mut piece = vec![0; PIECE_BYTES_MAX];
        loop {
            let bytes = match from.read(&mut piece).await {
                Ok(0) if self.is_lost() => return End::Close,
                Ok(0) => {
                    // The client may still wait for replies; the server closes the connection after them.
                    let _ = to.shutdown().await;
                    return pending().await;
                }
                Ok(bytes) => bytes,
                Err(_) => return End::Reset,
            };
            if self.is_lost() {
                continue;
            }
            if to.write_all(&piece[..bytes]).await.is_err() {
                return End::Reset;
            }
            self.counts.request_bytes.add(bytes);
        }
    }

    pub(super) fn fault(&self) -> Fault {
        *self.fault.borrow()
    }

    /// Returns whether the bytes just read, and all that follow, are swallowed.
    pub(super) fn is_lost(&self) -> bool {
        if self.fault() == Fault::BlackHole {
            self.is_lost.store(true, Ordering::SeqCst);
        }
        self.is_lost.load(Ordering::SeqCst)
    }

    pub(super) async fn becomes(&self, fault: Fault) {
        if self.fault.clone().wait_for(|now| *now == fault).await.is_err() {
            // The proxy is being dropped.
            pending::<()>().await;
        }
    }
}

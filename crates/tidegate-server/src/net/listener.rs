//! Binds the sockets, starts the worker threads, and stops them.

use super::Wire;
use super::worker::{self, Listener, SharedByWorkers};
use crate::server::Server;
use anyhow::Context;
use socket2::{Domain, Socket, Type};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::JoinHandle;
use tokio::sync::watch;

/// The addresses of the listeners, with the real port where the configuration has port 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Addresses {
    /// RESP listen address.
    pub resp: Option<SocketAddr>,
    /// HTTP listen address.
    pub http: Option<SocketAddr>,
    /// gRPC listen address.
    pub grpc: Option<SocketAddr>,
    /// Admin listen address.
    pub admin: Option<SocketAddr>,
}

/// A server that accepts connections.
#[derive(Debug)]
pub struct Running {
    /// The server.
    pub server: Arc<Server>,
    /// Where it listens.
    pub addresses: Addresses,
    closing: watch::Sender<bool>,
    workers: Vec<JoinHandle<()>>,
}

/// Connections that the kernel queues until they are accepted.
const BACKLOG: i32 = 4_096;

/// Listens at the configured addresses, with a worker thread for each core.
///
/// # Errors
///
/// Fails if an address cannot be bound, or if the configuration refuses to start (a listener beyond loopback without a token).
pub fn start(server: Arc<Server>) -> anyhow::Result<Running> {
    let config = server.config();
    let config = &config.server;
    let mut bound = Vec::new();
    if let Some(refusal) = config.refusal() {
        anyhow::bail!(refusal);
    }
    for (wire, addr) in config.listeners() {
        bound.push((wire, bind(wire, addr)?));
    }
    let (closing, is_closing) = watch::channel(false);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let mut workers = Vec::with_capacity(threads);
    let shared = Arc::new(SharedByWorkers::new(&server));
    for number in 0..threads {
        let listeners = bound
            .iter()
            .map(|(wire, socket)| Ok(Listener { wire: *wire, socket: socket.try_clone()? }));
        let listeners: Vec<Listener> = listeners.collect::<anyhow::Result<_>>()?;
        let (state, is_closing) = ((Arc::clone(&server), Arc::clone(&shared)), is_closing.clone());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.context("cannot start a worker thread's runtime")?;
        let thread = std::thread::Builder::new().name(format!("worker-{number}"));
        workers.push(thread.spawn(move || {
            worker::run(&runtime, state, listeners, is_closing);
            // Does not wait for a reload, which may hang on a disk that does not answer.
            runtime.shutdown_background();
        })?);
    }
    let addresses = addresses(&bound)?;
    Ok(Running { server, addresses, closing, workers })
}

impl Running {
    /// Stops accepting connections, waits for open requests for at most `drain`, and ends the worker threads.
    ///
    /// # Errors
    ///
    /// Fails if a worker thread has panicked.
    pub fn stop(self) -> anyhow::Result<()> {
        self.server.status.drain.begin();
        self.closing.send_replace(true);
        for worker in self.workers {
            worker.join().map_err(|_| anyhow::anyhow!("a worker thread has panicked"))?;
        }
        Ok(())
    }
}

fn bind(wire: Wire, addr: SocketAddr) -> anyhow::Result<TcpListener> {
    let flag = wire.to_string().to_lowercase();
    let context = || {
        format!(
            "cannot listen on {addr} for {wire}; choose another address with --{flag} ADDR, or --{flag} off"
        )
    };
    let socket =
        Socket::new(Domain::for_address(addr), Type::STREAM, None).with_context(context)?;
    socket.set_reuse_address(true).with_context(context)?;
    socket.set_nonblocking(true).with_context(context)?;
    socket.bind(&addr.into()).with_context(context)?;
    socket.listen(BACKLOG).with_context(context)?;
    Ok(socket.into())
}

fn addresses(bound: &[(Wire, TcpListener)]) -> anyhow::Result<Addresses> {
    let mut addresses = Addresses::default();
    for (wire, listener) in bound {
        let addr = Some(listener.local_addr()?);
        match wire {
            Wire::Resp => addresses.resp = addr,
            Wire::Http => addresses.http = addr,
            Wire::Grpc => addresses.grpc = addr,
            Wire::Admin => addresses.admin = addr,
        }
    }
    Ok(addresses)
}

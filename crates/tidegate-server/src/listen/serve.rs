//! Binds the sockets, starts the workers, and stops them again.

use super::Wire;
use super::wakeful::Wakeful;
use super::worker::{self, Door, Rooms};
use crate::server::Server;
use anyhow::Context;
use socket2::{Domain, Socket, Type};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::JoinHandle;
use tokio::runtime::Runtime;
use tokio::sync::watch;

/// Where it listens, as bound: a port of 0 has become a real one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Addresses {
    /// Redis clients.
    pub resp: Option<SocketAddr>,
    /// HTTP clients.
    pub http: Option<SocketAddr>,
    /// Envoy.
    pub grpc: Option<SocketAddr>,
    /// The operator.
    pub admin: Option<SocketAddr>,
}

/// A server that listens.
#[derive(Debug)]
pub struct Running {
    /// What it is.
    pub server: Arc<Server>,
    /// Where it is.
    pub addresses: Addresses,
    closing: watch::Sender<bool>,
    workers: Vec<JoinHandle<()>>,
}

/// So many may wait to be accepted.
const BACKLOG: i32 = 4_096;

/// Listens where the configuration says, with as many threads as there are cores.
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
    let rooms = Arc::new(Rooms::new(&server));
    for number in 0..threads {
        let doors = bound
            .iter()
            .map(|(wire, listener)| Ok(Door { wire: *wire, listener: listener.try_clone()? }));
        let doors: Vec<Door> = doors.collect::<anyhow::Result<_>>()?;
        let (server, is_closing) = (Arc::clone(&server), is_closing.clone());
        let rooms = Arc::clone(&rooms);
        let worker = std::thread::Builder::new().name(format!("worker-{number}"));
        let wakeful = Arc::new(Wakeful::new(config.stay_awake.into()));
        let runtime = runtime(&wakeful).context("a worker cannot start")?;
        let work = move || worker::work(&runtime, (server, rooms), doors, is_closing, wakeful);
        workers.push(worker.spawn(work)?);
    }
    let addresses = addresses(&bound)?;
    Ok(Running { server, addresses, closing, workers })
}

/// A worker's runtime, which asks before it sleeps.
pub(super) fn runtime(wakeful: &Arc<Wakeful>) -> std::io::Result<Runtime> {
    // It has the waker of a task, which has the runtime: whoever held both would never end.
    let wakeful = Arc::downgrade(wakeful);
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let before_sleep = move || {
        if let Some(wakeful) = wakeful.upgrade() {
            wakeful.before_sleep();
        }
    };
    builder.enable_all().on_thread_park(before_sleep).build()
}

impl Running {
    /// Stops accepting, waits for those who are being answered, and ends.
    pub fn stop(self) -> anyhow::Result<()> {
        self.server.status.drain.begin();
        self.closing.send_replace(true);
        for worker in self.workers {
            worker.join().map_err(|_| anyhow::anyhow!("a worker has panicked"))?;
        }
        Ok(())
    }
}

fn bind(wire: Wire, addr: SocketAddr) -> anyhow::Result<TcpListener> {
    let flag = wire.to_string().to_lowercase();
    let context = || {
        format!(
            "cannot listen on {addr} for {wire}; choose another place with --{flag} ADDR, or --{flag} off"
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

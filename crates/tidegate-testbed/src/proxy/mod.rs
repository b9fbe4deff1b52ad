//! A network that fails as it is told: a TCP proxy on loopback, whose fault is switched while it runs.
//!
//! Rejected iptables and tc: they need root, and two tests at a time would disturb each other.
//! Always   When [`FaultProxy::set`] returns, the fault holds for every byte that is read from then on.
//! Always   Nothing is left when it is dropped: its thread has ended, and with it all connections.

mod acceptor;
mod connection;
mod counts;
mod fault;
mod replies;

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::mpsc as blocking;
use std::thread::{self, JoinHandle};

use tokio::runtime;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use self::acceptor::{Acceptor, Order};
use self::counts::Counts;
pub use self::fault::Fault;
use crate::port::Port;

/// Stands between clients and one server.
///
/// If the server is down, clients are accepted and then reset: only [`Fault::Refuse`] refuses.
pub struct FaultProxy {
    port: Port,
    counts: Arc<Counts>,
    // In this order: the thread ends when nobody can give it orders any more.
    orders: UnboundedSender<Order>,
    _thread: Joined,
}

impl FaultProxy {
    /// To this server, and without a fault at first.
    pub fn to(server: SocketAddr) -> Self {
        let (port, counts) = (Port::claim(), Arc::new(Counts::default()));
        // Here and not on the thread, so that whoever has the address can connect.
        let listener = TcpListener::bind(port.address()).expect("the port is ours");
        listener.set_nonblocking(true).expect("a socket has that");
        let (orders, taken) = unbounded_channel();
        let acceptor = Acceptor::new(server, Arc::clone(&counts));
        let thread = thread::spawn(move || {
            let runtime = runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("there are descriptors").block_on(acceptor.run(listener, taken));
        });
        Self { port, counts, orders, _thread: Joined(Some(thread)) }
    }

    /// Changes how it behaves, for open and new connections.
    pub fn set(&self, fault: Fault) {
        let (done, is_done) = blocking::channel();
        self.orders.send(Order { fault, done }).expect("its thread runs as long as we do");
        is_done.recv().expect("it does what it is told");
    }

    /// Where it listens; the same before and after [`Fault::Refuse`].
    pub fn address(&self) -> SocketAddr {
        self.port.address()
    }

    /// `redis://127.0.0.1:port/`.
    pub fn url(&self) -> String {
        format!("redis://{}/", self.address())
    }

    /// How many connections it has accepted.
    pub fn connections(&self) -> u64 {
        self.counts.connections.load()
    }

    /// How many bytes of requests it has passed on to the server.
    pub fn request_bytes(&self) -> u64 {
        self.counts.request_bytes.load()
    }

    /// How many bytes of replies it has passed on to clients.
    pub fn reply_bytes(&self) -> u64 {
        self.counts.reply_bytes.load()
    }
}

struct Joined(Option<JoinHandle<()>>);

impl Drop for Joined {
    fn drop(&mut self) {
        // If it has panicked, the next order has said so.
        let _ = self.0.take().map(JoinHandle::join);
    }
}

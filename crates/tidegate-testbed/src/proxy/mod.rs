//! A TCP proxy on loopback that injects faults, which can be changed while it runs.
//!
//! Rejected iptables and tc: they need root, and concurrent tests would disturb each other.
//! Always   When [`FaultProxy::set`] returns, the fault applies to every byte that is read from then on.
//! Always   When it is dropped, its thread and all connections have ended.

mod acceptor;
mod connection;
mod counts;
mod fault;
mod replies;
mod shared_state;

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

/// A proxy between clients and one server.
///
/// If the server is down, clients are accepted and then reset: only [`Fault::Refuse`] refuses.
pub struct FaultProxy {
    port: Port,
    counts: Arc<Counts>,
    // Dropped before the thread is joined: the thread ends when the sender is gone.
    orders: UnboundedSender<Order>,
    _thread: Joined,
}

impl FaultProxy {
    /// Starts a proxy to this server, without a fault.
    pub fn to(server: SocketAddr) -> Self {
        let (port, counts) = (Port::claim(), Arc::new(Counts::default()));
        // Bound here and not on the thread, so that clients can connect when this returns.
        let listener = TcpListener::bind(port.address()).expect("the port is ours");
        listener.set_nonblocking(true).expect("a socket can be non-blocking");
        let (orders, taken) = unbounded_channel();
        let acceptor = Acceptor::new(server, Arc::clone(&counts));
        let thread = thread::spawn(move || {
            let runtime = runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("descriptors are free").block_on(acceptor.run(listener, taken));
        });
        Self { port, counts, orders, _thread: Joined(Some(thread)) }
    }

    /// Changes how it behaves, for open and new connections.
    pub fn set(&self, fault: Fault) {
        let (done, is_done) = blocking::channel();
        self.orders.send(Order { fault, done }).expect("the thread runs as long as the proxy");
        is_done.recv().expect("the thread acknowledges each order");
    }

    /// Returns its address, which [`Fault::Refuse`] does not change.
    pub fn address(&self) -> SocketAddr {
        self.port.address()
    }

    /// Returns its URL: `redis://127.0.0.1:port/`.
    pub fn url(&self) -> String {
        format!("redis://{}/", self.address())
    }

    /// Returns the number of accepted connections.
    pub fn connections(&self) -> u64 {
        self.counts.connections.load()
    }

    /// Returns the number of bytes forwarded to the server.
    pub fn request_bytes(&self) -> u64 {
        self.counts.request_bytes.load()
    }

    /// Returns the number of bytes forwarded to clients.
    pub fn reply_bytes(&self) -> u64 {
        self.counts.reply_bytes.load()
    }
}

struct Joined(Option<JoinHandle<()>>);

impl Drop for Joined {
    fn drop(&mut self) {
        // A panic of the thread has failed the order after it.
        let _ = self.0.take().map(JoinHandle::join);
    }
}

//! The proxy's thread: receives orders, accepts connections, and closes the listener under `Fault::Refuse`.

use std::future::pending;
use std::io;
use std::net::{self, SocketAddr};
use std::sync::Arc;
use std::sync::mpsc::Sender;

use tokio::net::{TcpListener, TcpStream};
use tokio::select;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::connection;
use super::counts::Counts;
use super::fault::Fault;
use super::shared_state::SharedState;

pub(super) struct Order {
    pub(super) fault: Fault,
    pub(super) done: Sender<()>,
}

pub(super) struct Acceptor {
    server: SocketAddr,
    fault: watch::Sender<Fault>,
    counts: Arc<Counts>,
    connections: JoinSet<()>,
}

impl Acceptor {
    pub(super) fn new(server: SocketAddr, counts: Arc<Counts>) -> Self {
        let fault = watch::Sender::new(Fault::Pass);
        Self { server, fault, counts, connections: JoinSet::new() }
    }

    /// Runs until the sender of orders is dropped.
    pub(super) async fn run(
        mut self,
        listener: net::TcpListener,
        mut orders: UnboundedReceiver<Order>,
    ) {
        let address = listener.local_addr().expect("it is bound");
        let mut listener = Some(TcpListener::from_std(listener).expect("it does not block"));
        loop {
            select! {
                // Orders first: once an order is acknowledged, the caller may connect at once.
                biased;
                order = orders.recv() => {
                    let Some(Order { fault, done }) = order else { return };
                    self.fault.send_replace(fault);
                    if fault == Fault::Refuse {
                        listener = None;
                        // Each connection notices the fault by itself.
                        while self.connections.join_next().await.is_some() {}
                    } else if listener.is_none() {
                        listener = Some(TcpListener::bind(address).await.expect("the port is ours"));
                    }
                    // The thread that gave the order may have panicked.
                    let _ = done.send(());
                }
                client = accept(listener.as_ref()) => self.connect(client),
                Some(_) = self.connections.join_next() => {}
            }
        }
    }

    fn connect(&mut self, client: io::Result<TcpStream>) {
        // The client may have closed the connection before it was accepted.
        let Ok(client) = client else { return };
        self.counts.connections.add(1);
        let state = SharedState::new(self.fault.subscribe(), Arc::clone(&self.counts));
        self.connections.spawn(connection::run(state, client, self.server));
    }
}

async fn accept(listener: Option<&TcpListener>) -> io::Result<TcpStream> {
    match listener {
        Some(listener) => Ok(listener.accept().await?.0),
        None => pending().await,
    }
}

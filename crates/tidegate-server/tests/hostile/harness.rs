//! A server and its clients.

pub(crate) use crate::peer::{Directory, PATIENCE, Peer, eventually};
use std::net::SocketAddr;
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Once, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;
use tidegate::snapshot::Snapshot;
use tidegate_server::clock::ServerClock;
use tidegate_server::config::Config;
use tidegate_server::net::{self, Running};
use tidegate_server::server::Server;

/// All listeners on free ports, a second for everything, and an end after two.
pub(crate) fn config() -> Config {
    let mut config = Config::default();
    let server = &mut config.server;
    let free = Some(SocketAddr::from(([127, 0, 0, 1], 0)));
    (server.resp, server.http, server.grpc, server.admin) = (free, free, free, free);
    (server.caps.first_byte, server.caps.request) = (secs(1), secs(1));
    (server.caps.idle, server.drain) = (secs(60), secs(2));
    config
}

pub(crate) fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// A server that is tested beside others, or alone in this process: so that memory is its own.
pub(crate) struct Served {
    running: Running,
    _beside: Option<RwLockReadGuard<'static, ()>>,
    _alone: Option<Alone>,
}

static OTHERS: RwLock<()> = RwLock::new(());
static PANICS: AtomicU64 = AtomicU64::new(0);

fn count_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let is_worker = |name: &str| name.starts_with("worker-");
            let is_worker = std::thread::current().name().is_some_and(is_worker);
            PANICS.fetch_add(u64::from(is_worker), Ordering::Relaxed);
            hook(info);
        }));
    });
}

impl Deref for Served {
    type Target = Running;

    fn deref(&self) -> &Running {
        &self.running
    }
}

impl Served {
    /// Ends it. No worker may have panicked: who serves the others would hide it.
    pub(crate) fn stop(self) -> anyhow::Result<()> {
        let stopped = self.running.stop();
        assert_eq!(PANICS.load(Ordering::Relaxed), 0, "a worker has panicked");
        stopped
    }
}

pub(crate) fn start(change: impl FnOnce(&mut Config)) -> Served {
    run(server(change))
}

/// The same while no other test has a server.
pub(crate) fn start_alone(change: impl FnOnce(&mut Config)) -> Served {
    let alone = alone();
    run_alone(alone, server(change))
}

pub(crate) fn server(change: impl FnOnce(&mut Config)) -> Arc<Server> {
    let mut config = config();
    change(&mut config);
    count_panics();
    Server::new(config, None, ServerClock::system(), Snapshot::default())
}

pub(crate) fn run(server: Arc<Server>) -> Served {
    let beside = OTHERS.read().unwrap_or_else(PoisonError::into_inner);
    let running = net::start(server).expect("it listens");
    Served { running, _beside: Some(beside), _alone: None }
}

/// While this is held, no other test has a server.
pub(crate) type Alone = RwLockWriteGuard<'static, ()>;

/// Waits until no other test has a server. To be asked for first: what is made before is seen by who measures.
pub(crate) fn alone() -> Alone {
    OTHERS.write().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn run_alone(alone: Alone, server: Arc<Server>) -> Served {
    let running = net::start(server).expect("it listens");
    Served { running, _beside: None, _alone: Some(alone) }
}

impl Peer {
    pub(crate) fn resp(running: &Running) -> Self {
        Self::new(running.addresses.resp)
    }

    /// Has little room for what it does not read.
    pub(crate) fn is_narrow(&self) {
        socket2::SockRef::from(&self.0).set_recv_buffer_size(4_096).expect("a socket has one");
    }
}

/// An array of bulk strings.
pub(crate) fn array(words: &[&[u8]]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        bytes.extend_from_slice(word);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

/// One HTTP request and all of its answer.
pub(crate) fn http(address: Option<SocketAddr>, head: &str, body: &[u8]) -> String {
    let mut peer = Peer::new(address);
    let length = body.len();
    let request = format!("{head}\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n");
    peer.say([request.as_bytes(), body].concat());
    String::from_utf8_lossy(&peer.rest().expect("it answers")).into_owned()
}

pub(crate) fn status(answer: &str) -> &str {
    answer.split(' ').nth(1).unwrap_or_default()
}

/// Somebody who does no harm is answered.
pub(crate) fn serves(running: &Running) {
    assert_eq!(Peer::resp(running).ask("PING"), "+PONG");
}

/// What this process has in memory.
pub(crate) fn rss_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|kb| kb.parse().ok()).map_or(0, |kb: usize| kb * 1_024)
}

pub(crate) fn assert_grew_less(before: usize, most: usize) {
    let grown = rss_bytes().saturating_sub(before);
    assert!(grown <= most, "memory has grown by {grown} bytes, and may by {most}");
}

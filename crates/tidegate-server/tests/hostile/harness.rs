//! Servers for the tests, and helpers for their clients.

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

/// Returns a configuration with all listeners on free ports, time limits of one second, and a drain of two.
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

/// A server, either beside the servers of other tests or exclusively, so that it alone uses memory and CPU time.
pub(crate) struct TestServer {
    running: Running,
    _shared: Option<RwLockReadGuard<'static, ()>>,
    _exclusive: Option<ExclusiveGuard>,
}

static SERVERS: RwLock<()> = RwLock::new(());
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

impl Deref for TestServer {
    type Target = Running;

    fn deref(&self) -> &Running {
        &self.running
    }
}

impl TestServer {
    /// Stops the server and asserts that no worker has panicked: the other workers would hide the panic from clients.
    pub(crate) fn stop(self) -> anyhow::Result<()> {
        let stopped = self.running.stop();
        assert_eq!(PANICS.load(Ordering::Relaxed), 0, "a worker has panicked");
        stopped
    }
}

pub(crate) fn start(change: impl FnOnce(&mut Config)) -> TestServer {
    run(server(change))
}

/// Starts a server while no other test has one.
pub(crate) fn start_exclusive(change: impl FnOnce(&mut Config)) -> TestServer {
    let guard = exclusive();
    run_exclusive(guard, server(change))
}

pub(crate) fn server(change: impl FnOnce(&mut Config)) -> Arc<Server> {
    let mut config = config();
    change(&mut config);
    count_panics();
    Server::new(config, None, ServerClock::system(), Snapshot::default())
}

pub(crate) fn run(server: Arc<Server>) -> TestServer {
    let guard = SERVERS.read().unwrap_or_else(PoisonError::into_inner);
    let running = net::start(server).expect("it listens");
    TestServer { running, _shared: Some(guard), _exclusive: None }
}

/// A guard: while a test holds it, no other test has a server.
pub(crate) type ExclusiveGuard = RwLockWriteGuard<'static, ()>;

/// Waits until no other test has a server. Call it before you create anything, because another test may still
/// measure memory or descriptors.
pub(crate) fn exclusive() -> ExclusiveGuard {
    SERVERS.write().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn run_exclusive(guard: ExclusiveGuard, server: Arc<Server>) -> TestServer {
    let running = net::start(server).expect("it listens");
    TestServer { running, _shared: None, _exclusive: Some(guard) }
}

impl Peer {
    pub(crate) fn resp(running: &Running) -> Self {
        Self::new(running.addresses.resp)
    }

    /// Sets a small receive buffer, so that unread answers soon block the server.
    pub(crate) fn shrink_receive_buffer(&self) {
        socket2::SockRef::from(&self.0).set_recv_buffer_size(4_096).expect("a socket has one");
    }
}

/// Encodes a command as an array of bulk strings.
pub(crate) fn array(words: &[&[u8]]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        bytes.extend_from_slice(word);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

/// Sends one HTTP request and returns the whole response.
pub(crate) fn http(address: Option<SocketAddr>, head: &str, body: &[u8]) -> String {
    let mut peer = Peer::new(address);
    let length = body.len();
    let request = format!("{head}\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n");
    peer.send([request.as_bytes(), body].concat());
    String::from_utf8_lossy(&peer.read_to_end().expect("it answers")).into_owned()
}

pub(crate) fn status(answer: &str) -> &str {
    answer.split(' ').nth(1).unwrap_or_default()
}

/// Asserts that the server answers a harmless client.
pub(crate) fn assert_serves(running: &Running) {
    assert_eq!(Peer::resp(running).ask("PING"), "+PONG");
}

/// Returns the resident memory of this process.
pub(crate) fn rss_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|kb| kb.parse().ok()).map_or(0, |kb: usize| kb * 1_024)
}

pub(crate) fn assert_grew_less(before: usize, most: usize) {
    let grown = rss_bytes().saturating_sub(before);
    assert!(grown <= most, "memory has grown by {grown} bytes, more than {most}");
}

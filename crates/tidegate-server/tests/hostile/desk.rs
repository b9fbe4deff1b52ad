//! A server, peers of it, and ways to wait for what must happen.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::ops::Deref;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Once, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::{Duration, Instant};
use tidegate::Snapshot;
use tidegate_server::clock::ServerClock;
use tidegate_server::config::Config;
use tidegate_server::listen::{self, Running};
use tidegate_server::server::Server;

/// No test waits longer for anything.
pub(crate) const PATIENCE: Duration = Duration::from_secs(15);

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
    _alone: Option<RwLockWriteGuard<'static, ()>>,
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
    run_alone(server(change))
}

fn server(change: impl FnOnce(&mut Config)) -> Arc<Server> {
    let mut config = config();
    change(&mut config);
    count_panics();
    Server::new(config, None, ServerClock::system(), Snapshot::default())
}

pub(crate) fn run(server: Arc<Server>) -> Served {
    let beside = OTHERS.read().unwrap_or_else(PoisonError::into_inner);
    let running = listen::start(server).expect("it listens");
    Served { running, _beside: Some(beside), _alone: None }
}

pub(crate) fn run_alone(server: Arc<Server>) -> Served {
    let alone = OTHERS.write().unwrap_or_else(PoisonError::into_inner);
    let running = listen::start(server).expect("it listens");
    Served { running, _beside: None, _alone: Some(alone) }
}

/// A blocking client that says bytes and hears bytes.
pub(crate) struct Peer(pub(crate) TcpStream);

impl Peer {
    pub(crate) fn new(address: Option<SocketAddr>) -> Self {
        let stream = TcpStream::connect(address.expect("it listens there")).expect("it accepts");
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket has one");
        stream.set_write_timeout(Some(PATIENCE)).expect("a socket has one");
        stream.set_nodelay(true).expect("a socket has that");
        Self(stream)
    }

    pub(crate) fn resp(running: &Running) -> Self {
        Self::new(running.addresses.resp)
    }

    /// Has little room for what it does not read.
    pub(crate) fn is_narrow(&self) {
        socket2::SockRef::from(&self.0).set_recv_buffer_size(4_096).expect("a socket has one");
    }

    /// Who is cut off cannot say everything.
    pub(crate) fn say(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        self.0.write_all(bytes.as_ref()).is_ok()
    }

    /// A line, without its end; empty if there is none.
    pub(crate) fn line(&mut self) -> String {
        let mut line = Vec::new();
        let mut byte = [0];
        while !line.ends_with(b"\r\n") && matches!(self.0.read(&mut byte), Ok(1)) {
            line.push(byte[0]);
        }
        String::from_utf8_lossy(&line).trim_end().to_owned()
    }

    pub(crate) fn ask(&mut self, line: &str) -> String {
        self.say(format!("{line}\r\n"));
        self.line()
    }

    /// All that comes until the server ends it; `None` if it does not.
    pub(crate) fn rest(&mut self) -> Option<Vec<u8>> {
        let (mut all, mut piece) = (Vec::new(), [0; 4_096]);
        loop {
            match self.0.read(&mut piece) {
                Ok(0) => return Some(all),
                Ok(read) => all.extend_from_slice(&piece[..read]),
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => {
                    return Some(all);
                }
                Err(_) => return None,
            }
        }
    }

    /// How long it takes until the server ends it.
    pub(crate) fn ended_after(&mut self) -> Duration {
        let since = Instant::now();
        assert!(self.rest().is_some(), "the server goes on with it");
        since.elapsed()
    }

    /// Says one byte after the other, with a pause, until it is cut off.
    pub(crate) fn drip(&mut self, bytes: &[u8], pause: Duration) -> Duration {
        let since = Instant::now();
        self.0.set_read_timeout(Some(pause)).expect("a socket has one");
        for byte in bytes.iter().cycle() {
            assert!(since.elapsed() < PATIENCE, "it may drip for ever");
            if !self.say([*byte]) {
                break;
            }
            let mut heard = [0; 256];
            match self.0.read(&mut heard) {
                Ok(0) => break,
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => break,
                _ => {}
            }
        }
        since.elapsed()
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

/// Polls until it holds.
pub(crate) fn eventually(what: &str, within: Duration, mut holds: impl FnMut() -> bool) {
    let until = Instant::now() + within;
    while !holds() {
        assert!(Instant::now() < until, "not within {within:?}: {what}");
        std::thread::park_timeout(Duration::from_millis(10));
    }
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

/// A directory of its own, gone with it.
pub(crate) struct Directory(pub(crate) PathBuf);

impl Directory {
    pub(crate) fn new() -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("tidegate-hostile-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).expect("it can be made");
        Self(path)
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, text).expect("it can be written");
        path
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

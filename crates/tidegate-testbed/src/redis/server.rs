//! A running server.
//!
//! Always   The testbed itself uses a Unix socket, which works whatever a test does to the port, TLS and users.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::builder::{Builder, CONFIG, LOG, SOCKET, USER};
use super::certificates::AUTHORITY;
use super::client::Client;
use super::reply::Reply;
use crate::directory::Directory;
use crate::port::Port;
use crate::process::Process;
use crate::program;
use crate::wait::{PATIENCE, poll};

/// Name of the program and of its package.
const NAME: &str = "redis-server";
const ATTEMPTS_MAX: usize = 5;

/// A `redis-server` process on its own port, which is killed when it is dropped.
///
/// All methods take `&self`, so that a test can kill it while its clients go on.
pub struct RedisServer {
    process: Mutex<Process>,
    port: Port,
    is_tls: bool,
    is_sentinel: bool,
    // Dropped last, when no process writes to it any more.
    directory: Directory,
}

impl RedisServer {
    /// Starts a server without persistence and without a password.
    pub fn start() -> Self {
        Builder::default().start()
    }

    /// Returns a builder for a server with other options.
    pub fn builder() -> Builder {
        Builder::default()
    }

    fn start_as(builder: &Builder) -> Self {
        let mut last_log = String::new();
        for _ in 0..ATTEMPTS_MAX {
            match Self::try_start(builder) {
                Ok(server) => return server,
                // Another program has taken the port meanwhile.
                Err(log) if log.contains("Address already in use") => last_log = log,
                Err(log) => panic!("redis-server does not start:\n{log}"),
            }
        }
        panic!("{ATTEMPTS_MAX} ports were in use:\n{last_log}");
    }

    /// Starts it; the error is its log.
    fn try_start(builder: &Builder) -> Result<Self, String> {
        let (directory, port) = (Directory::new(), Port::claim());
        builder.write(&directory, &port);
        let process = Mutex::new(spawn(&directory, builder.is_sentinel()));
        let (is_tls, is_sentinel) = (builder.is_tls(), builder.is_sentinel());
        let server = Self { process, port, is_tls, is_sentinel, directory };
        server.wait_until(|| server.answers())?;
        if builder.is_replica() {
            server.wait_until(|| server.has_copy())?;
        }
        Ok(server)
    }

    /// Returns its port on loopback.
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// Returns its address.
    pub fn address(&self) -> SocketAddr {
        self.port.address()
    }

    /// Returns its URL: `redis://127.0.0.1:port/`, or `rediss:` with TLS.
    pub fn url(&self) -> String {
        let scheme = if self.is_tls { "rediss" } else { "redis" };
        format!("{scheme}://{}/", self.address())
    }

    /// Returns the path of the authority's certificate, in PEM.
    pub fn ca_path(&self) -> PathBuf {
        assert!(self.is_tls, "it was not started with `tls`");
        self.directory.join(AUTHORITY)
    }

    /// Kills it (SIGKILL). Does nothing if it is dead already.
    pub fn kill(&self) {
        self.process().kill();
    }

    /// Restarts it on the same port with the same files; kills it first if it runs.
    pub fn restart(&self) {
        self.kill();
        *self.process() = spawn(&self.directory, self.is_sentinel);
        if let Err(log) = self.wait_until(|| self.answers()) {
            panic!("redis-server does not start again:\n{log}");
        }
    }

    /// Pauses it (SIGSTOP): the system still accepts connections, which are not answered.
    pub fn pause(&self) {
        self.process().pause();
    }

    /// Resumes it after [`RedisServer::pause`].
    pub fn resume(&self) {
        self.process().resume();
    }

    /// Returns whether the process exists; it may be paused.
    pub fn is_running(&self) -> bool {
        self.process().is_running()
    }

    /// Returns whether it can answer: it runs and is not paused.
    pub(crate) fn is_awake(&self) -> bool {
        self.process().is_awake()
    }

    /// Sends a command as a user with all permissions, and returns the reply.
    pub fn command(&self, words: &[impl AsRef<[u8]>]) -> Reply {
        self.try_command(words).unwrap_or_else(|error| {
            let command = words.first().map(|word| String::from_utf8_lossy(word.as_ref()));
            panic!("redis-server does not answer {command:?}: {error}\n{}", self.log())
        })
    }

    /// Sends a command to a server that may be dead or paused.
    pub fn try_command(&self, words: &[impl AsRef<[u8]>]) -> io::Result<Reply> {
        let mut client = Client::connect_unix(&self.directory.join(SOCKET))?;
        client.command(&["AUTH", USER, ""])?;
        client.command(words)
    }

    /// Returns its log since the first start.
    pub fn log(&self) -> String {
        let log = fs::read(self.directory.join(LOG)).unwrap_or_default();
        String::from_utf8_lossy(&log).into_owned()
    }

    fn process(&self) -> MutexGuard<'_, Process> {
        // After a panic with the lock held, the process must still be killed.
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait_until(&self, mut holds: impl FnMut() -> bool) -> Result<(), String> {
        let held = poll(PATIENCE, || match (holds(), self.is_running()) {
            (true, _) => Some(true),
            (false, true) => None,
            (false, false) => Some(false),
        });
        if held == Some(true) { Ok(()) } else { Err(self.log()) }
    }

    /// Returns whether it answers, which it does not while it loads its data.
    fn answers(&self) -> bool {
        let pong = self.try_command(&["PING"]);
        pong.is_ok_and(|pong| pong == Reply::Simple("PONG".to_owned()))
    }

    /// Returns whether it is a replica in sync with its primary.
    pub(crate) fn has_copy(&self) -> bool {
        let info = self.try_command(&["INFO", "replication"]);
        info.is_ok_and(|info| info.field("master_link_status").as_deref() == Some("up"))
    }
}

impl Builder {
    /// Makes it a replica, which has a full copy when [`start`](Self::start) returns.
    pub fn replica_of(self, primary: &RedisServer) -> Self {
        assert!(!primary.is_tls, "replication over TLS is not supported here");
        self.replica_of_port(primary.port())
    }

    /// Starts it, and returns when it answers.
    pub fn start(self) -> RedisServer {
        RedisServer::start_as(&self)
    }
}

fn spawn(directory: &Directory, is_sentinel: bool) -> Process {
    let config = directory.join(CONFIG);
    let mut arguments = vec![config.as_os_str()];
    if is_sentinel {
        arguments.push(OsStr::new("--sentinel"));
    }
    Process::start(&program::find(NAME, NAME), &arguments, &directory.join(LOG))
}

//! What all listeners share: the engine, what was configured, and how the server is.

use crate::clock::ServerClock;
use crate::config::{Config, ConfigErrors};
use crate::engine::Engine;
use crate::listen::Wire;
use crate::status::{LogDrops, SnapshotStatus};
use arc_swap::ArcSwap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Duration;
use tidegate::Snapshot;
use tidegate_redis::RedisStore;
use tokio::sync::{Semaphore, SemaphorePermit, watch};

/// A server, whatever it listens to.
#[derive(Debug)]
pub struct Server {
    /// What decides.
    pub engine: Engine,
    config: ArcSwap<Config>,
    file: Option<PathBuf>,
    /// Held while the file is read and put in place: who reads later has the last word.
    reloading: Mutex<()>,
    /// Goes up when tokens change, after they are in place.
    token_changes: AtomicU64,
    /// How it is.
    pub status: Status,
    /// Bytes that may be kept of messages that have not come whole, on all connections together.
    parts: Semaphore,
    waiting_max: AtomicUsize,
}

/// Eight of the longest messages, or tens of thousands of ordinary ones.
const PARTS_BYTES_MAX: usize = 32 << 20;

/// What operators want to know besides the limits.
#[derive(Debug, Default)]
pub struct Status {
    /// Whether it is on its way out.
    pub drain: Drain,
    /// Connections, by listener.
    pub connections: ByListener,
    /// Connections that were turned away, by listener.
    pub rejected: ByListener,
    /// Requests that wait for a store or for their turn.
    pub waiting: AtomicUsize,
    /// Requests that were refused because too many waited, by listener.
    pub refused: ByListener,
    /// Wrong tokens that were offered, by listener.
    pub wrong_tokens: ByListener,
    /// Reloads that worked, and those that did not.
    pub reloads: AtomicU64,
    /// See [`reloads`](Self::reloads).
    pub failed_reloads: AtomicU64,
    /// Whether the last reload did not work: then the configuration before it is still in force.
    pub is_config_stale: AtomicBool,
    /// Lines of the log that were dropped; empty where the process logs in its own way.
    pub log: OnceLock<Arc<LogDrops>>,
    /// How snapshots go.
    pub snapshot: SnapshotStatus,
}

/// Whether a server is on its way out: looked up, or waited for by as many as like to.
#[derive(Debug)]
pub struct Drain(watch::Sender<bool>);

impl Default for Drain {
    fn default() -> Self {
        Self(watch::Sender::new(false))
    }
}

impl Drain {
    /// It is from now on.
    pub fn begin(&self) {
        self.0.send_replace(true);
    }

    /// Whether it is.
    pub fn has_begun(&self) -> bool {
        *self.0.borrow()
    }

    /// Ends when it is, or is gone.
    pub(crate) fn begun(&self) -> impl Future<Output = ()> + Send + 'static {
        let mut watched = self.0.subscribe();
        async move {
            let _ = watched.wait_for(|has_begun| *has_begun).await;
        }
    }
}

/// A number for each listener.
#[derive(Debug, Default)]
pub struct ByListener {
    /// Redis clients.
    pub resp: AtomicU64,
    /// HTTP clients.
    pub http: AtomicU64,
    /// Envoy.
    pub grpc: AtomicU64,
    /// The operator.
    pub admin: AtomicU64,
}

/// A request that waits, until it is dropped.
#[derive(Debug)]
pub(crate) struct Waiting<'a>(&'a AtomicUsize);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// As many wait as may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("too many requests wait for their answers: ask again later")]
pub(crate) struct Busy;

impl Server {
    /// A server with this configuration, which came from `file` if it can be read again.
    #[expect(
        clippy::needless_pass_by_value,
        reason = "what was restored is of no use to anybody else"
    )]
    pub fn new(
        config: Config,
        file: Option<PathBuf>,
        clock: ServerClock,
        restored: Snapshot,
    ) -> Arc<Self> {
        let engine = Engine::new(&config, clock, &restored);
        Self::over(engine, config, file)
    }

    /// The same with limits in Redis, which others share. What it does in the background, it does in the runtime
    /// that this is called in.
    pub fn shared(
        config: Config,
        file: Option<PathBuf>,
        clock: ServerClock,
        redis: RedisStore,
    ) -> Arc<Self> {
        let engine = Engine::shared(&config, clock, redis);
        Self::over(engine, config, file)
    }

    fn over(engine: Engine, config: Config, file: Option<PathBuf>) -> Arc<Self> {
        let waiting_max = config.server.caps.waiting_max;
        Arc::new(Self {
            engine,
            config: ArcSwap::from_pointee(config),
            file,
            reloading: Mutex::default(),
            token_changes: AtomicU64::new(0),
            status: Status::default(),
            parts: Semaphore::new(PARTS_BYTES_MAX),
            waiting_max: AtomicUsize::new(waiting_max),
        })
    }

    /// The configuration in force.
    pub fn config(&self) -> Arc<Config> {
        self.config.load_full()
    }

    /// The file that it came from.
    pub fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// Reads the configuration again and puts its limits in place, and of `[server]` what can be. A bad file changes
    /// nothing. Tells which keys of `[server]` are not as they were and need a restart; they are logged, too.
    pub fn reload(&self) -> Result<Vec<&'static str>, ConfigErrors> {
        let Some(file) = &self.file else { return Ok(Vec::new()) };
        let _alone = self.alone();
        let read = crate::config::load(file).and_then(|config| self.refuse_open(file, config));
        match read.and_then(|config| self.refuse_moved(file, config)) {
            Ok(config) => {
                let needs_restart = self.put_in_place(config);
                self.status.reloads.fetch_add(1, Ordering::Relaxed);
                self.status.is_config_stale.store(false, Ordering::Relaxed);
                Ok(needs_restart)
            }
            Err(errors) => {
                self.status.failed_reloads.fetch_add(1, Ordering::Relaxed);
                self.status.is_config_stale.store(true, Ordering::Relaxed);
                Err(errors)
            }
        }
    }

    fn alone(&self) -> MutexGuard<'_, ()> {
        self.reloading.lock().expect("nobody panics while reloading")
    }

    /// Where others can come in, they must go on needing a token, or a certificate as at the start: a line that was left
    /// out opens no door.
    fn refuse_open(&self, file: &Path, new: Config) -> Result<Config, ConfigErrors> {
        let old = self.config();
        let is_open = |place: Option<SocketAddr>| place.is_some_and(|at| !at.ip().is_loopback());
        let places = [old.server.resp, old.server.http, old.server.grpc];
        let is_opened = new.server.tokens.is_empty()
            && !old.server.needs_certificate()
            && places.into_iter().any(is_open);
        let is_admin_opened = new.server.admin_token.is_none()
            && !old.server.admin_needs_certificate()
            && is_open(old.server.admin);
        if old.server.is_insecure || !(is_opened || is_admin_opened) {
            return Ok(new);
        }
        let missing = if is_opened { "tokens" } else { "admin_token" };
        let message = format!(
            "there is no `{missing}` in [server.auth] any more, and others than loopback can come in: \
             leave it, or start again with --insecure"
        );
        Err(ConfigErrors::whole(file, message))
    }

    /// What is counted in one store is not in another: that takes a restart.
    fn refuse_moved(&self, file: &Path, new: Config) -> Result<Config, ConfigErrors> {
        if self.config().store == new.store {
            return Ok(new);
        }
        let message = "[store] is not as it was at the start, and changes only by a restart: leave it, or start again";
        Err(ConfigErrors::whole(file, message.to_owned()))
    }

    fn put_in_place(&self, mut new: Config) -> Vec<&'static str> {
        let old = self.config();
        let command_line = old.command_line.clone();
        command_line.apply(&mut new.server);
        let needs_restart = new.server.needs_restart(&old.server);
        if !needs_restart.is_empty() {
            let keys = needs_restart.join(", ");
            tracing::warn!("in [server], {keys} changed and will hold from the next start on");
        }
        let server = new.server.in_place_of(&old.server);
        let has_other_tokens = server.tokens != old.server.tokens;
        self.waiting_max.store(server.caps.waiting_max, Ordering::Relaxed);
        self.engine.reload(&new.limits);
        self.engine.publish_soon();
        self.config.store(Arc::new(Config { server, command_line, ..new }));
        if has_other_tokens {
            self.token_changes.fetch_add(1, Ordering::Release);
        }
        needs_restart
    }

    /// How often tokens have changed. Who is let in for longer than a request asks before it is let in, and then whether
    /// [they have changed](Self::have_tokens_changed).
    pub(crate) fn token_changes(&self) -> u64 {
        self.token_changes.load(Ordering::Acquire)
    }

    /// Whether tokens have changed since they had as often as `seen` says, which is told anew.
    #[inline]
    pub(crate) fn have_tokens_changed(&self, seen: &mut u64) -> bool {
        if self.token_changes.load(Ordering::Relaxed) == *seen {
            return false;
        }
        // Once more, and what was in place before it went up is seen.
        *seen = self.token_changes();
        true
    }

    /// Room for so many bytes of a message, until it has come whole. None if others have taken it all: a peer with
    /// many streams must not fill the memory with what it never finishes.
    pub(crate) fn room_for(&self, bytes: usize) -> Option<SemaphorePermit<'_>> {
        self.parts.try_acquire_many(u32::try_from(bytes).ok()?).ok()
    }

    /// Taken before a question is asked whose answer may have to be waited for. Who is one too many is refused here,
    /// before it is charged, so that all others are answered in time. What is decided in memory and at once is not
    /// counted: to refuse it would take as long as to decide it.
    pub(crate) fn wait(&self, wire: Wire) -> Result<Waiting<'_>, Busy> {
        let status = &self.status;
        let before = status.waiting.fetch_add(1, Ordering::Relaxed);
        let waiting = Waiting(&status.waiting);
        if before < self.waiting_max.load(Ordering::Relaxed) {
            return Ok(waiting);
        }
        status.refused.of(wire).fetch_add(1, Ordering::Relaxed);
        Err(Busy)
    }

    /// How long a request may take to arrive.
    pub(crate) fn request_patience(&self) -> Duration {
        self.config.load().server.caps.request
    }

    /// Whether whoever offers this may ask: always, if nobody needs a token.
    pub fn admits(&self, offered: Option<&[u8]>) -> bool {
        let config = self.config.load();
        let tokens = &config.server.tokens;
        // All of them are compared, whatever the first says.
        let is_known = offered.is_some_and(|offered| {
            tokens.iter().fold(false, |known, token| known | token.is(offered))
        });
        tokens.is_empty() || is_known
    }
}

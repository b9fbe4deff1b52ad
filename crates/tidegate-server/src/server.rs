//! What all listeners share: the engine, what was configured, and how the server is.

use crate::clock::ServerClock;
use crate::config::{Config, ConfigErrors, ServerConfig};
use crate::engine::Engine;
use arc_swap::ArcSwap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tidegate::Snapshot;
use tidegate_redis::RedisStore;
use tokio::sync::{Semaphore, SemaphorePermit};

/// A server, whatever it listens to.
#[derive(Debug)]
pub struct Server {
    /// What decides.
    pub engine: Engine,
    config: ArcSwap<Config>,
    file: Option<PathBuf>,
    /// Held while the file is read and put in place: who reads later has the last word.
    reloading: Mutex<()>,
    /// How it is.
    pub status: Status,
    /// Bytes that may be kept of messages that have not come whole, on all connections together.
    parts: Semaphore,
}

/// Eight of the longest messages, or tens of thousands of ordinary ones.
const PARTS_BYTES_MAX: usize = 32 << 20;

/// What operators want to know besides the limits.
#[derive(Debug, Default)]
pub struct Status {
    /// Whether it is on its way out.
    pub is_draining: AtomicBool,
    /// Connections, by listener.
    pub connections: ByListener,
    /// Connections that were turned away, by listener.
    pub rejected: ByListener,
    /// Wrong tokens that were offered, by listener.
    pub wrong_tokens: ByListener,
    /// Reloads that worked, and those that did not.
    pub reloads: AtomicU64,
    /// See [`reloads`](Self::reloads).
    pub failed_reloads: AtomicU64,
    /// Whether the last reload did not work: then the configuration before it is still in force.
    pub is_config_stale: AtomicBool,
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
        Arc::new(Self {
            engine,
            config: ArcSwap::from_pointee(config),
            file,
            reloading: Mutex::default(),
            status: Status::default(),
            parts: Semaphore::new(PARTS_BYTES_MAX),
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

    /// Reads the configuration again and puts its limits in place. A bad file changes nothing. Listeners
    /// and what else `[server]` says stay as they were at the start, but for tokens.
    pub fn reload(&self) -> Result<(), ConfigErrors> {
        let Some(file) = &self.file else { return Ok(()) };
        let _alone = self.alone();
        let read = crate::config::load(file).and_then(|config| self.refuse_open(file, config));
        match read.and_then(|config| self.refuse_moved(file, config)) {
            Ok(config) => {
                self.put_in_place(config);
                self.status.reloads.fetch_add(1, Ordering::Relaxed);
                self.status.is_config_stale.store(false, Ordering::Relaxed);
                Ok(())
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

    /// Where others can come in, they must go on needing a token: a line that was left out opens no door.
    fn refuse_open(&self, file: &Path, new: Config) -> Result<Config, ConfigErrors> {
        let old = self.config();
        let is_open = |place: Option<SocketAddr>| place.is_some_and(|at| !at.ip().is_loopback());
        let places = [old.server.resp, old.server.http, old.server.grpc];
        let is_opened = new.server.tokens.is_empty() && places.into_iter().any(is_open);
        let is_admin_opened = new.server.admin_token.is_none() && is_open(old.server.admin);
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

    fn put_in_place(&self, new: Config) {
        let old = self.config();
        let (tokens, admin_token) = (new.server.tokens, new.server.admin_token);
        let server = ServerConfig { tokens, admin_token, ..old.server.clone() };
        self.engine.reload(&new.limits);
        self.engine.publish_soon();
        self.config.store(Arc::new(Config { server, store: new.store, limits: new.limits }));
    }

    /// Room for so many bytes of a message, until it has come whole. None if others have taken it all: a peer with
    /// many streams must not fill the memory with what it never finishes.
    pub(crate) fn room_for(&self, bytes: usize) -> Option<SemaphorePermit<'_>> {
        self.parts.try_acquire_many(u32::try_from(bytes).ok()?).ok()
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

//! What all listeners share: the engine, the configuration, access control, and capacity that clients share.

pub mod status;

pub use status::{ByListener, Drain, Status};
pub use tidegate_config::Protocol as Wire;

use crate::clock::ServerClock;
use crate::config::{self, Config, ConfigErrors};
use crate::engine::Engine;
use crate::sync::lock;
use arc_swap::ArcSwap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tidegate::Clock;
use tidegate::snapshot::Snapshot;
use tidegate::store::{ClientId, Shares};
use tidegate_redis::RedisStore;
use tokio::sync::{Semaphore, SemaphorePermit};

/// A server, without its listeners.
#[derive(Debug)]
pub struct Server {
    /// Decides requests.
    pub engine: Engine,
    config: ArcSwap<Config>,
    file: Option<PathBuf>,
    /// Held while the configuration is read and replaced, so that the last reload wins.
    reload_lock: Mutex<()>,
    /// Incremented after other tokens came into force.
    token_changes: AtomicU64,
    /// Facts about the server, for metrics.
    pub status: Status,
    /// Bytes for messages that have not arrived completely, on all connections together.
    partial_messages: Semaphore,
    /// Bytes for commands that `MULTI` has queued, on all connections together.
    pub(crate) queues: Shares,
    /// Requests that may wait for a store, or until they are admitted.
    waiting: Shares,
    /// The number of connections that there are file descriptors for.
    connections_ceiling: AtomicUsize,
}

/// Eight messages of the maximum length, or tens of thousands of ordinary ones.
const PARTIAL_MESSAGE_BYTES_MAX: usize = 32 << 20;

/// Dozens of transactions of the maximum length, or hundreds of thousands of ordinary ones.
pub(crate) const QUEUES_BYTES_MAX: usize = 32 << 20;

/// The maximum number of settings that one log line names.
const NAMED_SETTINGS_MAX: usize = 20;

/// A request that may wait, until this is dropped.
#[derive(Debug)]
pub(crate) struct Waiting<'a> {
    server: &'a Server,
    client: ClientId,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.server.waiting.give_back(self.client);
        self.server.status.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The maximum number of requests waits, in all or of one client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("too many requests wait for their answers: ask again later")]
pub(crate) struct Busy;

impl Server {
    /// Creates a server with limits in memory. `file` is the configuration's file, if it can be read again.
    #[expect(clippy::needless_pass_by_value, reason = "no caller needs the snapshot afterwards")]
    pub fn new(
        config: Config,
        file: Option<PathBuf>,
        clock: ServerClock,
        restored: Snapshot,
    ) -> Arc<Self> {
        let engine = Engine::new(&config, clock, &restored);
        Self::over(engine, config, file)
    }

    /// Creates a server with limits in Redis. Its background work runs in the runtime that this is called in.
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
            reload_lock: Mutex::default(),
            token_changes: AtomicU64::new(0),
            status: Status::default(),
            partial_messages: Semaphore::new(PARTIAL_MESSAGE_BYTES_MAX),
            queues: Shares::new(QUEUES_BYTES_MAX),
            waiting: Shares::new(waiting_max),
            connections_ceiling: AtomicUsize::new(usize::MAX),
        })
    }

    /// Returns the configuration in force.
    pub fn config(&self) -> Arc<Config> {
        self.config.load_full()
    }

    /// Returns the configuration's file.
    pub fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// Reads the configuration again, and puts its limits and all settings of `[server]` in force that do not need a restart.
    /// Returns the changed settings that need a restart; they are logged, too.
    ///
    /// # Errors
    /// If a server would not start with the configuration; it changes nothing then.
    pub fn reload(&self) -> Result<Vec<String>, ConfigErrors> {
        let Some(file) = &self.file else { return Ok(Vec::new()) };
        let _reload = lock(&self.reload_lock);
        let read = config::for_reload(file, &self.config().command_line);
        let read = read.and_then(|config| self.config().check_reload(config, file));
        let reloaded = read.map(|config| self.replace_config(config));
        let status = &self.status;
        let counter = if reloaded.is_ok() { &status.reloads } else { &status.failed_reloads };
        counter.fetch_add(1, Ordering::Relaxed);
        status.is_config_stale.store(reloaded.is_err(), Ordering::Relaxed);
        reloaded
    }

    fn replace_config(&self, new: Config) -> Vec<String> {
        let old = self.config();
        let needs_restart = new.needs_restart(&old);
        log_needed_restart(&needs_restart);
        config::log_warnings(&new, self.engine.clock().calendar_now());
        let new = new.in_place_of(&old);
        let has_other_tokens = new.server.tokens != old.server.tokens;
        self.waiting.set_max(new.server.caps.waiting_max);
        self.engine.accept_ad_hoc_rules(new.server.has_ad_hoc_rules);
        self.engine.reload(&new.limits);
        self.engine.publish_soon();
        self.config.store(Arc::new(new));
        if has_other_tokens {
            self.token_changes.fetch_add(1, Ordering::Release);
        }
        needs_restart
    }

    /// Returns the generation of the tokens. A connection that is authenticated for longer than one request reads it first, and
    /// then asks before each request whether [the tokens changed](Self::have_tokens_changed).
    pub(crate) fn token_changes(&self) -> u64 {
        self.token_changes.load(Ordering::Acquire)
    }

    /// Returns whether the tokens changed since generation `seen`, and updates `seen`.
    #[inline]
    pub(crate) fn have_tokens_changed(&self, seen: &mut u64) -> bool {
        if self.token_changes.load(Ordering::Relaxed) == *seen {
            return false;
        }
        // Loaded again with `Acquire`, so that the caller sees the tokens of this generation.
        *seen = self.token_changes();
        true
    }

    /// Reserves memory for a message until it has arrived completely; `None` if other messages have it all. This bounds what
    /// clients can make the server buffer with messages that they never finish.
    pub(crate) fn reserve_partial_message(&self, bytes: usize) -> Option<SemaphorePermit<'_>> {
        self.partial_messages.try_acquire_many(u32::try_from(bytes).ok()?).ok()
    }

    /// Counts a request that may have to wait for its answer, before it is charged. Decisions in memory are not counted: refusing
    /// one would take as long as deciding it.
    ///
    /// # Errors
    /// If the maximum number of requests waits already, so that the others are answered in time.
    pub(crate) fn wait(&self, wire: Wire, client: ClientId) -> Result<Waiting<'_>, Busy> {
        let before = self.status.waiting.fetch_add(1, Ordering::Relaxed);
        if before < self.waiting.max() && self.waiting.take(client) {
            return Ok(Waiting { server: self, client });
        }
        self.status.waiting.fetch_sub(1, Ordering::Relaxed);
        self.status.refused.of(wire).fetch_add(1, Ordering::Relaxed);
        Err(Busy)
    }

    /// Sets the number of connections that there are file descriptors for, which bounds the configured maximum.
    pub fn set_connections_ceiling(&self, ceiling: usize) {
        self.connections_ceiling.store(ceiling, Ordering::Relaxed);
    }

    /// Returns the maximum number of connections of all listeners except the admin listener.
    pub(crate) fn connections_max(&self) -> usize {
        let configured = self.config.load().server.caps.connections_max;
        configured.min(self.connections_ceiling.load(Ordering::Relaxed))
    }

    /// Returns the maximum number of connections of one address: of unauthenticated ones, or of all where no authentication is
    /// needed.
    pub(crate) fn connections_per_address(&self) -> usize {
        let configured = self.config.load().server.caps.connections_per_address;
        configured.unwrap_or_else(|| {
            let must_authenticate = self.must_authenticate(Wire::Resp);
            if must_authenticate { (self.connections_max() / 4).max(1) } else { usize::MAX }
        })
    }

    /// Returns whether clients of this listener have to show a token or a certificate.
    pub(crate) fn must_authenticate(&self, wire: Wire) -> bool {
        let config = &self.config.load().server;
        match wire {
            Wire::Admin => config.admin_token.is_some() || config.admin_needs_certificate(),
            _ => !config.tokens.is_empty() || config.needs_certificate(),
        }
    }

    /// Returns whether clients of this listener that have shown a certificate need no token.
    pub(crate) fn is_certificate_enough(&self, wire: Wire) -> bool {
        let config = &self.config.load().server;
        match wire {
            Wire::Admin => config.admin_token.is_none() && config.admin_needs_certificate(),
            _ => config.tokens.is_empty() && config.needs_certificate(),
        }
    }

    /// Returns the id of a client with this address, which was [admitted](Self::admits) with this token.
    pub fn peer(&self, address: IpAddr, token: Option<&[u8]>) -> ClientId {
        // Where no token is needed, a client could make up one for each request.
        let token = token.filter(|_| !self.config.load().server.tokens.is_empty());
        self.engine.peer(address, token)
    }

    /// Returns the maximum time in which a request has to arrive.
    pub(crate) fn request_patience(&self) -> Duration {
        self.config.load().server.caps.request
    }

    /// Returns whether a client with this token may send requests: always, if no token is needed.
    pub fn admits(&self, token: Option<&[u8]>) -> bool {
        let config = self.config.load();
        let tokens = &config.server.tokens;
        // Every token is compared, so that the time does not show which one matched.
        let is_valid = token
            .is_some_and(|token| tokens.iter().fold(false, |valid, known| valid | known.is(token)));
        tokens.is_empty() || is_valid
    }
}

fn log_needed_restart(settings: &[String]) {
    if settings.is_empty() {
        return;
    }
    let named = settings[..settings.len().min(NAMED_SETTINGS_MAX)].join(", ");
    let more = match settings.len().saturating_sub(NAMED_SETTINGS_MAX) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    tracing::warn!("{named}{more} changed, and will be in force from the next start");
}

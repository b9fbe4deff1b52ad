//! What all listeners share: the engine, what was configured, and how the server is.

pub mod status;

pub use tidegate_config::Protocol as Wire;

use crate::clock::ServerClock;
use crate::config::{self, Config, ConfigErrors};
use crate::engine::Engine;
use arc_swap::ArcSwap;
use status::{LogDrops, SnapshotStatus};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Duration;
use tidegate::Clock;
use tidegate::snapshot::Snapshot;
use tidegate::store::{ClientId, Shares};
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
    /// Bytes of commands that may be queued by `MULTI`, on all connections together.
    pub(crate) queues: Shares,
    /// Who waits for a store or for its turn.
    waiting: Shares,
    /// So many connections there are descriptors for.
    connections_ceiling: AtomicUsize,
}

/// Eight of the longest messages, or tens of thousands of ordinary ones.
const PARTS_BYTES_MAX: usize = 32 << 20;

/// Dozens of the longest transactions, or hundreds of thousands of ordinary ones.
pub(crate) const QUEUES_BYTES_MAX: usize = 32 << 20;

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

impl ByListener {
    /// Returns the number of one listener.
    pub(crate) fn of(&self, wire: Wire) -> &AtomicU64 {
        match wire {
            Wire::Resp => &self.resp,
            Wire::Http => &self.http,
            Wire::Grpc => &self.grpc,
            Wire::Admin => &self.admin,
        }
    }

    /// Returns the sum over all listeners.
    pub fn sum(&self) -> u64 {
        let all = [&self.resp, &self.http, &self.grpc, &self.admin];
        all.map(|number| number.load(Ordering::Relaxed)).iter().sum()
    }
}

/// A request that waits, until it is dropped.
#[derive(Debug)]
pub(crate) struct Waiting<'a> {
    server: &'a Server,
    peer: ClientId,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.server.waiting.give_back(self.peer);
        self.server.status.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

/// As many wait as may, or as many of one peer.
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
            queues: Shares::new(QUEUES_BYTES_MAX),
            waiting: Shares::new(waiting_max),
            connections_ceiling: AtomicUsize::new(usize::MAX),
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

    /// Reads the configuration again and puts its limits in place, and of `[server]` what can be. A configuration that a
    /// start would refuse changes nothing. Returns which settings have changed and need a restart; they are logged, too.
    pub fn reload(&self) -> Result<Vec<String>, ConfigErrors> {
        let Some(file) = &self.file else { return Ok(Vec::new()) };
        let _alone = self.alone();
        let read = config::for_reload(file, &self.config().command_line);
        match read.and_then(|config| self.config().check_reload(config, file)) {
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

    fn put_in_place(&self, new: Config) -> Vec<String> {
        let old = self.config();
        let needs_restart = new.needs_restart(&old);
        tell_restart(&needs_restart);
        config::log_warnings(&new, self.engine.clock().calendar_now());
        let new = new.in_place_of(&old);
        let has_other_tokens = new.server.tokens != old.server.tokens;
        self.waiting.set_max(new.server.caps.waiting_max);
        self.engine.take_ad_hoc_rules(new.server.has_ad_hoc_rules);
        self.engine.reload(&new.limits);
        self.engine.publish_soon();
        self.config.store(Arc::new(new));
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
    pub(crate) fn wait(&self, wire: Wire, peer: ClientId) -> Result<Waiting<'_>, Busy> {
        let before = self.status.waiting.fetch_add(1, Ordering::Relaxed);
        if before < self.waiting.max() && self.waiting.take(peer) {
            return Ok(Waiting { server: self, peer });
        }
        self.status.waiting.fetch_sub(1, Ordering::Relaxed);
        self.status.refused.of(wire).fetch_add(1, Ordering::Relaxed);
        Err(Busy)
    }

    /// There are descriptors for so many connections, whatever is configured.
    pub fn set_connections_ceiling(&self, ceiling: usize) {
        self.connections_ceiling.store(ceiling, Ordering::Relaxed);
    }

    /// So many connections there may be, of all listeners but the operator's.
    pub(crate) fn connections_max(&self) -> usize {
        let configured = self.config.load().server.caps.connections_max;
        configured.min(self.connections_ceiling.load(Ordering::Relaxed))
    }

    /// So many of them may one address have: of those who have not shown who they are, or of all where nobody has to.
    pub(crate) fn connections_per_address(&self) -> usize {
        let configured = self.config.load().server.caps.connections_per_address;
        let must_show = self.must_authenticate(Wire::Resp);
        configured.unwrap_or(if must_show {
            (self.connections_max() / 4).max(1)
        } else {
            usize::MAX
        })
    }

    /// Whether a peer of this wire has to show a token or a certificate.
    pub(crate) fn must_authenticate(&self, wire: Wire) -> bool {
        let config = &self.config.load().server;
        match wire {
            Wire::Admin => config.admin_token.is_some() || config.admin_needs_certificate(),
            _ => !config.tokens.is_empty() || config.needs_certificate(),
        }
    }

    /// Whether a peer of this wire that has shown a certificate need not show a token.
    pub(crate) fn is_certificate_enough(&self, wire: Wire) -> bool {
        let config = &self.config.load().server;
        match wire {
            Wire::Admin => config.admin_token.is_none() && config.admin_needs_certificate(),
            _ => config.tokens.is_empty() && config.needs_certificate(),
        }
    }

    /// The id of a peer that comes from this address and was [admitted](Self::admits) by this token.
    pub fn peer(&self, address: IpAddr, token: Option<&[u8]>) -> ClientId {
        // Where nobody needs one, anybody can make up one for each request.
        let token = token.filter(|_| !self.config.load().server.tokens.is_empty());
        self.engine.peer(address, token)
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

/// So many settings are named in one line of the log.
const NAMED_MAX: usize = 20;

fn tell_restart(settings: &[String]) {
    if settings.is_empty() {
        return;
    }
    let named = settings[..settings.len().min(NAMED_MAX)].join(", ");
    let more = match settings.len().saturating_sub(NAMED_MAX) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    tracing::warn!("{named}{more} changed, and will be in force from the next start");
}

//! A server on loopback, with a clock that is set for every request.
//!
//! Always   Sockets, listeners and workers are those of the daemon. Only the clock is replaced.
//! Always   It has ended before the next one starts, so that no state is left from one scenario to the next.

use super::Refusal;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tidegate::ManualClock;
use tidegate::snapshot::Snapshot;
use tidegate_redis::{RedisStore, Settings};
use tidegate_server::clock::ServerClock;
use tidegate_server::config::{Config, LimitConfig};
use tidegate_server::net::{self, Addresses, Running};
use tidegate_server::server::Server;
use tidegate_testbed::{PATIENCE, RedisServer};
use tokio::runtime::Runtime;

/// A running server.
pub(super) struct Served {
    /// `None` once it has ended.
    running: Option<Running>,
}

/// A Redis server as the store of the limits, and the runtime of its connections.
pub(super) struct Store {
    redis: RedisServer,
    runtime: Runtime,
}

/// How often to check that the server has noticed the end of the last connection, before the drain checks it, which
/// takes longer.
const CHECKS_MAX: usize = 1_000;

impl Served {
    /// Starts a server with its limits in memory, or in an empty store.
    pub(super) fn start(
        limits: Vec<LimitConfig>,
        clock: &ManualClock,
        store: Option<&Store>,
    ) -> Result<Self, Refusal> {
        let mut config = Config { limits, ..Config::default() };
        let free = Some(SocketAddr::from(([127, 0, 0, 1], 0)));
        let server = &mut config.server;
        (server.resp, server.http, server.grpc, server.admin) = (free, free, free, None);
        server.drain = PATIENCE;
        let server = match store {
            None => {
                let clock = ServerClock::Manual(clock.clone());
                Server::new(config, None, clock, Snapshot::default())
            }
            Some(store) => store.server(config, clock)?,
        };
        let running = net::start(server).map_err(|error| Refusal::Failed(error.to_string()))?;
        Ok(Self { running: Some(running) })
    }

    /// Returns its addresses.
    pub(super) fn addresses(&self) -> Addresses {
        self.running().addresses
    }

    /// Changes the rules, as a reload of the configuration does.
    pub(super) fn reload(
        &self,
        limits: &[LimitConfig],
        store: Option<&Store>,
    ) -> Result<(), Refusal> {
        let server = &self.running().server;
        server.engine.reload(limits);
        store.map_or(Ok(()), |store| store.runtime.block_on(publish(server)))
    }

    fn running(&self) -> &Running {
        self.running.as_ref().expect("it listens until it is dropped")
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let Some(running) = self.running.take() else { return };
        for _ in 0..CHECKS_MAX {
            if running.server.status.connections.sum() == 0 {
                break;
            }
            std::thread::yield_now();
        }
        let stopped = running.stop();
        // During a panic, a second failure would hide the first.
        assert!(stopped.is_ok() || std::thread::panicking(), "{stopped:?}");
    }
}

impl Store {
    /// Starts a Redis server.
    ///
    /// # Panics
    ///
    /// If Redis is not installed.
    pub(super) fn start() -> Self {
        // A multi-threaded runtime, because the server's workers wait for it while no thread here drives it.
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let runtime = builder.worker_threads(1).enable_all().build();
        Self { redis: RedisServer::start(), runtime: runtime.expect("there is a runtime") }
    }

    fn server(&self, config: Config, clock: &ManualClock) -> Result<Arc<Server>, Refusal> {
        self.redis.command(&["FLUSHALL"]);
        let address = self.redis.url().parse().expect("a server has an address");
        // A long deadline: on a busy machine, the fallback must not decide a test.
        let settings = Settings::default().deadline(Duration::from_secs(10));
        self.runtime.block_on(async {
            let store = RedisStore::connect_with_clock(&address, settings, clock.clone()).await;
            for limit in &config.limits {
                let kept = store.limiter(&limit.name, limit.rule.clone());
                kept.map_err(|_| Refusal::Unsupported(super::MORE_THAN_DOUBLES_COUNT))?;
            }
            let server = Server::shared(config, None, ServerClock::Manual(clock.clone()), store);
            publish(&server).await?;
            Ok(server)
        })
    }
}

/// Waits until other servers with the same store know the rules.
async fn publish(server: &Server) -> Result<(), Refusal> {
    let published = server.engine.publish().await;
    published.map_err(|error| Refusal::Failed(error.to_string()))
}

//! A server on loopback, with a clock that is set for every question: what the wires of a scenario are asked over.
//!
//! Always   Sockets, listeners and workers are the daemon's own. Only the clock is ours.
//! Always   Gone before the next one comes: of one scenario nothing is left in another.

use super::Refusal;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tidegate::{ManualClock, Snapshot};
use tidegate_redis::{RedisStore, Settings};
use tidegate_server::clock::ServerClock;
use tidegate_server::config::{Config, LimitConfig};
use tidegate_server::net::{self, Addresses, Running};
use tidegate_server::server::Server;
use tidegate_testbed::{PATIENCE, RedisServer};
use tokio::runtime::Runtime;

/// A server that listens.
pub(super) struct Served {
    /// Taken out when it is ended.
    running: Option<Running>,
}

/// A Redis server for limits to be in, and the thread on which it is spoken to.
pub(super) struct Store {
    redis: RedisServer,
    runtime: Runtime,
}

/// So often is looked whether the last peer was seen to leave, before the drain looks itself, which takes longer.
const LOOKS_MAX: usize = 1_000;

impl Served {
    /// With its limits in memory, or in a store that has forgotten everything.
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

    /// Where it is to be found.
    pub(super) fn addresses(&self) -> Addresses {
        self.running().addresses
    }

    /// Puts other rules in place, as a reload of the configuration does.
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
        for _ in 0..LOOKS_MAX {
            if running.server.status.connections.sum() == 0 {
                break;
            }
            std::thread::yield_now();
        }
        let stopped = running.stop();
        // Who panics already has more to say than this.
        assert!(stopped.is_ok() || std::thread::panicking(), "{stopped:?}");
    }
}

impl Store {
    /// A Redis server of its own.
    ///
    /// # Panics
    ///
    /// If there is no Redis to start.
    pub(super) fn start() -> Self {
        // A thread that goes on by itself: the server's workers wait for it, and nobody drives it meanwhile.
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let runtime = builder.worker_threads(1).enable_all().build();
        Self { redis: RedisServer::start(), runtime: runtime.expect("there is a runtime") }
    }

    fn server(&self, config: Config, clock: &ManualClock) -> Result<Arc<Server>, Refusal> {
        self.redis.command(&["FLUSHALL"]);
        let address = self.redis.url().parse().expect("a server has an address");
        // The machine may be busy, and a test is not to be decided without Redis.
        let settings = Settings::default().deadline(Duration::from_secs(10));
        self.runtime.block_on(async {
            let store = RedisStore::connect_with_clock(&address, settings, clock.clone()).await;
            for limit in &config.limits {
                let kept = store.limiter(&limit.name, limit.rule.clone());
                kept.map_err(|_| Refusal::CannotSay(super::MORE_THAN_DOUBLES_COUNT))?;
            }
            let server = Server::shared(config, None, ServerClock::Manual(clock.clone()), store);
            publish(&server).await?;
            Ok(server)
        })
    }
}

/// Others who share the limits have heard of their rules.
async fn publish(server: &Server) -> Result<(), Refusal> {
    let published = server.engine.publish().await;
    published.map_err(|error| Refusal::Failed(error.to_string()))
}

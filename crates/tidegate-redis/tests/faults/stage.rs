//! A server, a proxy that injects faults, and stores that connect through it.

use std::time::Duration;
use tidegate::store::IdempotencyKey;
use tidegate_redis::{OnError, RedisLimiter, RedisStore, Settings};
use tidegate_testbed::{Fault, FaultProxy, RedisServer};
use tokio::time::{Instant, sleep};

/// The timeout of everything that must happen.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(20);
/// The deadline of limiters that must not time out on a busy machine.
pub(crate) const PATIENT: Duration = Duration::from_secs(5);

/// Returns the id of an idempotent request.
pub(crate) fn id(text: &str) -> IdempotencyKey<'_> {
    IdempotencyKey::new(text).expect("it is short")
}

/// A server behind a proxy that injects faults.
pub(crate) struct Stage {
    pub(crate) server: RedisServer,
    pub(crate) proxy: FaultProxy,
}

/// How a server fails.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Outage {
    /// Connections are refused.
    Refused,
    /// Connections are accepted, and nothing is answered.
    Silent,
    /// The server is killed, so connections are reset.
    Killed,
}

impl Outage {
    pub(crate) const ALL: [Self; 3] = [Self::Refused, Self::Silent, Self::Killed];
}

impl Stage {
    pub(crate) fn new() -> Self {
        let server = RedisServer::start();
        let proxy = FaultProxy::to(server.address());
        Self { server, proxy }
    }

    /// Returns a store that connects through the proxy.
    pub(crate) async fn store(&self) -> RedisStore {
        self.store_with(Settings::default()).await
    }

    pub(crate) async fn store_with(&self, settings: Settings) -> RedisStore {
        store_at(&self.proxy.url(), settings).await
    }

    /// Returns the same limit with a direct connection: what Redis has really counted.
    pub(crate) async fn witness(&self, name: &str, rule: &str) -> RedisLimiter {
        witness_at(&self.server.url(), name, rule).await
    }

    pub(crate) fn begin(&self, outage: Outage) {
        match outage {
            Outage::Refused => self.proxy.set(Fault::Refuse),
            Outage::Silent => self.proxy.set(Fault::BlackHole),
            Outage::Killed => self.server.kill(),
        }
    }

    pub(crate) fn end(&self, outage: Outage) {
        match outage {
            Outage::Refused | Outage::Silent => self.proxy.set(Fault::Pass),
            Outage::Killed => self.server.restart(),
        }
    }
}

pub(crate) async fn store_at(address: &str, settings: Settings) -> RedisStore {
    let address = address.parse().unwrap_or_else(|error| panic!("{error}"));
    RedisStore::connect_with(&address, settings).await
}

/// Returns a limiter with a direct connection and a long deadline.
pub(crate) async fn witness_at(address: &str, name: &str, rule: &str) -> RedisLimiter {
    limiter(&store_at(address, Settings::default().deadline(PATIENT)).await, name, rule)
}

pub(crate) fn limiter(store: &RedisStore, name: &str, rule: &str) -> RedisLimiter {
    limiter_with(store, name, rule, OnError::default())
}

pub(crate) fn limiter_with(
    store: &RedisStore,
    name: &str,
    rule: &str,
    on_error: OnError,
) -> RedisLimiter {
    let rule = rule.parse().unwrap_or_else(|error| panic!("{error}"));
    store.builder(name, rule).on_error(on_error).build().expect("Redis can keep it")
}

/// Publishes the rule, however busy the machine is.
pub(crate) async fn ready(limiter: &RedisLimiter) {
    becomes("the rule is known", TIMEOUT, async || limiter.ready().await.is_ok()).await;
}

/// Waits until the condition holds.
pub(crate) async fn becomes(what: &str, within: Duration, mut holds: impl AsyncFnMut() -> bool) {
    let ends = Instant::now() + within;
    while !holds().await {
        assert!(Instant::now() < ends, "not within {within:?}: {what}");
        sleep(Duration::from_millis(10)).await;
    }
}

pub(crate) fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

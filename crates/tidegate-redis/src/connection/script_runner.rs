//! Runs scripts: what every limit of one store shares.

use super::{Address, Call, Deadline, RedisClock, RedisStoreError, Servers, Settings};
use crate::script::Script;
use redis::Value;
use std::sync::Arc;
use std::time::Duration;
use tidegate::ManualClock;
use tokio::runtime::Handle;

/// How long opening a store waits for a server that is not up yet.
const OPEN_WAIT_MAX: Duration = Duration::from_secs(1);

/// The servers of one store, how to talk to them, and the runtime on which background work runs.
#[derive(Debug)]
pub(crate) struct ScriptRunner {
    pub(crate) servers: Servers,
    pub(crate) settings: Settings,
    pub(crate) clock: RedisClock,
    /// The runtime on which the store was opened.
    pub(crate) runtime: Handle,
}

impl ScriptRunner {
    /// Opens the connections. With a clock, scripts use its time instead of Redis's.
    pub(crate) async fn open(
        address: &Address,
        settings: Settings,
        clock: Option<ManualClock>,
    ) -> Arc<Self> {
        let servers = Servers::open(address, &settings, OPEN_WAIT_MAX).await;
        let clock = clock.map_or_else(RedisClock::default, RedisClock::injected);
        Arc::new(Self { servers, settings, clock, runtime: Handle::current() })
    }

    /// Runs a script. Its third argument is the time, in tests.
    pub(crate) async fn run(
        &self,
        script: &'static Script,
        keys: Vec<Vec<u8>>,
        mut args: Vec<Vec<u8>>,
        deadline: impl Into<Deadline>,
    ) -> Result<Value, RedisStoreError> {
        // While Redis is down this returns without waiting, and a caller in a loop would starve the task that reconnects.
        tokio::task::coop::consume_budget().await;
        let time = self.clock.injected_time();
        if time.is_some() || args.len() > 2 {
            let rest = args.split_off(args.len().min(2));
            args.resize(2, Vec::new());
            args.push(time.unwrap_or_default());
            args.extend(rest);
        }
        self.servers.call(&Call { script, keys, args, deadline: deadline.into() }).await
    }

    /// Returns the error for a reply that no script of this crate gives.
    pub(crate) fn malformed(&self, what: String) -> RedisStoreError {
        RedisStoreError::Malformed { address: self.address(), what }
    }

    /// Returns the address of the first primary.
    pub(crate) fn address(&self) -> String {
        self.servers.nodes().first().map(|node| node.address()).unwrap_or_default()
    }
}

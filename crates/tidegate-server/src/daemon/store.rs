//! The thread that runs the connections to Redis, which outlives every worker.

use crate::clock::ServerClock;
use crate::config::{Config, store_client};
use crate::server::Server;
use crate::store::{ExaminationSchedule, RedisBackend};
use anyhow::Context;
use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tidegate_redis::RedisStore;
use tokio::runtime::Runtime;

const HEALTH_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Creates a server with limits in Redis, and the runtime of its connections. While Redis does not answer, the server starts all
/// the same, and the limits' `on_error` decides.
pub(super) fn serve(
    config: Config,
    file: Option<PathBuf>,
    clock: ServerClock,
) -> anyhow::Result<(Arc<Server>, Runtime)> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let builder = builder.worker_threads(1).thread_name("store").enable_all();
    let runtime = builder.build().context("the store's thread cannot start")?;
    let store = config.store.clone().context("there is no store")?;
    let (address, settings) = store_client(&store);
    let server = runtime.block_on(async {
        let redis = RedisStore::connect_with(&address, settings).await;
        let (ups, all) = (redis.health().iter().filter(|it| it.is_up).count(), redis.health());
        match all.iter().find(|server| !server.is_up) {
            None if ups > 0 => tracing::info!("limits are shared through {address}"),
            down => {
                let why = down.map_or("no server is known there", |server| &server.why_down);
                tracing::warn!("the store {address} does not answer: {why}");
            }
        }
        let server = Server::shared(config, file, clock, redis);
        if server.engine.publish().await.is_err() {
            server.engine.publish_soon();
        }
        server
    });
    runtime.spawn(check_health(Arc::downgrade(&server)));
    runtime.spawn(examine_store(Arc::downgrade(&server)));
    Ok((server, runtime))
}

/// Checks the health of Redis until the server is dropped. The check logs what changed.
async fn check_health(watched: Weak<Server>) {
    while let Some(server) = watched.upgrade() {
        let _ = server.engine.store().shared().map(RedisBackend::health);
        drop(server);
        tokio::time::sleep(HEALTH_CHECK_INTERVAL).await;
    }
}

/// Examines Redis until the server is dropped: when Redis first answers, when it comes back, and at intervals. The findings are
/// logged, and shown by `/readyz?verbose`.
// Not in `check_health`, which must not wait for a slow server.
pub async fn examine_store(watched: Weak<Server>) {
    let mut schedule = ExaminationSchedule::default();
    while let Some(server) = watched.upgrade() {
        if let Some(store) = server.engine.store().shared()
            && schedule.is_due(&store.health())
        {
            store.examine().await;
        }
        drop(server);
        tokio::time::sleep(HEALTH_CHECK_INTERVAL).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_testbed::RedisServer;

    // T34
    #[test]
    fn a_server_that_starts_examines_its_store() {
        let redis = RedisServer::builder().option("maxmemory-policy", "allkeys-lru").start();
        let text = format!("[store]\nurl = \"{}\"\n", redis.url());
        let config = crate::config::read(&text, "t.toml").unwrap();
        let (server, runtime) = serve(config, None, ServerClock::system()).unwrap();
        let store = server.engine.store().shared().expect("it is Redis");
        let found = async {
            while store.findings().is_empty() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        let in_time = async { tokio::time::timeout(Duration::from_secs(20), found).await };
        runtime.block_on(in_time).expect("the store is examined within 20 s");
        let found = store.findings();
        assert!(found.len() == 1 && found[0].text.contains("allkeys-lru"), "{found:?}");
    }
}

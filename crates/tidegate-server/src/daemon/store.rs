//! The store that the configuration names, and a thread for its connections: they outlive every worker.

use crate::clock::ServerClock;
use crate::config::{Config, store_client};
use crate::server::Server;
use crate::store::Examination;
use anyhow::Context;
use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tidegate_redis::RedisStore;
use tokio::runtime::Runtime;

/// Between two looks at how the store is.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// A server whose limits are in a store, and what the store's connections live in. A store that is not there
/// keeps nobody from starting: its limits' policies answer until it is.
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
                let why = down.map_or("nobody is known there", |server| &server.why_down);
                tracing::warn!("the store {address} does not answer: {why}");
            }
        }
        let server = Server::shared(config, file, clock, redis);
        if server.engine.publish().await.is_err() {
            server.engine.publish_soon();
        }
        server
    });
    runtime.spawn(look(Arc::downgrade(&server)));
    runtime.spawn(examine_store(Arc::downgrade(&server)));
    Ok((server, runtime))
}

/// Looks how the store is as long as there is somebody who cares: what has changed is logged.
async fn look(watched: Weak<Server>) {
    while let Some(server) = watched.upgrade() {
        let _ = server.engine.store().health();
        drop(server);
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Examines the store once it is there, when it has come back, and now and then, as long as there is somebody who cares:
/// what is found is logged, and told by `/readyz?verbose`.
// Beside `look`, which must not wait for a server that is slow to say how it is.
pub async fn examine_store(watched: Weak<Server>) {
    let mut examination = Examination::default();
    while let Some(server) = watched.upgrade() {
        let store = server.engine.store();
        if examination.is_due(&store.health().unwrap_or_default()) {
            store.examine().await;
        }
        drop(server);
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_testbed::RedisServer;

    #[test]
    fn t34_a_server_that_starts_examines_its_store() {
        let redis = RedisServer::builder().option("maxmemory-policy", "allkeys-lru").start();
        let text = format!("[store]\nurl = \"{}\"\n", redis.url());
        let config = crate::config::read(&text, "t.toml").unwrap();
        let (server, runtime) = serve(config, None, ServerClock::system()).unwrap();
        let found = async {
            while server.engine.store().findings().is_empty() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        let in_time = async { tokio::time::timeout(Duration::from_secs(20), found).await };
        runtime.block_on(in_time).expect("it is never examined");
        let found = server.engine.store().findings();
        assert!(found.len() == 1 && found[0].text.contains("allkeys-lru"), "{found:?}");
    }
}

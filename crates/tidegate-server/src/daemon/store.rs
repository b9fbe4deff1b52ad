//! The store that the configuration names, and a thread for its connections: they outlive every worker.

use crate::clock::ServerClock;
use crate::config::Config;
use crate::server::Server;
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
) -> anyhow::Result<(Arc<Server>, Runtime)> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let builder = builder.worker_threads(1).thread_name("store").enable_all();
    let runtime = builder.build().context("the store's thread cannot start")?;
    let store = config.store.clone().context("there is no store")?;
    let server = runtime.block_on(async {
        let redis = RedisStore::connect_with(&store.url, store.settings()).await;
        let (ups, all) = (redis.health().iter().filter(|it| it.is_up).count(), redis.health());
        match all.iter().find(|server| !server.is_up) {
            None if ups > 0 => tracing::info!("limits are shared through {}", store.url),
            down => {
                let why = down.map_or("nobody is known there", |server| &server.why_down);
                tracing::warn!("the store {} does not answer: {why}", store.url);
            }
        }
        let server = Server::shared(config, file, ServerClock::system(), redis);
        if server.engine.publish().await.is_err() {
            server.engine.publish_soon();
        }
        server
    });
    runtime.spawn(look(Arc::downgrade(&server)));
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

//! Publishes the configured rules to the servers that share limits through Redis.
//!
//! Always   A rule that could not be published is tried again until Redis has it. Failures are logged once.

use super::Limits;
use crate::store::{RedisCounters, StoreError};
use futures_util::future::join_all;
use std::sync::Arc;
use std::time::Duration;

/// The maximum number of rules that are published at the same time.
const CONCURRENT_MAX: usize = 64;
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// Publishes the rules that Redis does not have.
pub(super) async fn publish(limits: &Limits) -> Result<(), StoreError> {
    let shared = limits.named().iter().filter_map(|limit| limit.counters().shared());
    let unpublished: Vec<&RedisCounters> = shared.filter(|limit| !limit.is_published()).collect();
    for some in unpublished.chunks(CONCURRENT_MAX) {
        // All of them are tried, also after one has failed.
        let published = join_all(some.iter().map(|limit| limit.publish())).await;
        published.into_iter().collect::<Result<(), StoreError>>()?;
    }
    Ok(())
}

/// Publishes the rules that Redis does not have, and repeats that until it succeeds.
pub(super) async fn publish_with_retries(limits: Arc<Limits>) {
    let mut has_failed = false;
    while let Err(error) = publish(&limits).await {
        if !has_failed {
            tracing::warn!("some rules are not published to other servers yet: {error}");
        }
        has_failed = true;
        tokio::time::sleep(RETRY_INTERVAL).await;
    }
    if has_failed {
        tracing::info!("all rules are published to other servers");
    }
}

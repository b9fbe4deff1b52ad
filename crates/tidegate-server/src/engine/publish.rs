//! Rules that others have to hear of: those who share the limits go by what was published last.
//!
//! Always   A rule that could not be published is tried again until the store has heard of it, and said once.

use super::Limits;
use crate::store::{RedisCounters, StoreError};
use futures_util::future::join_all;
use std::sync::Arc;
use std::time::Duration;

/// So many are told at once.
const TOGETHER_MAX: usize = 64;
/// Between two attempts.
const AGAIN: Duration = Duration::from_secs(1);

/// Publishes what the store has not heard of.
pub(super) async fn publish(limits: &Limits) -> Result<(), StoreError> {
    let shared = limits.named().iter().filter_map(|limit| limit.counters().shared());
    let unheard: Vec<&RedisCounters> = shared.filter(|counters| !counters.is_published()).collect();
    for some in unheard.chunks(TOGETHER_MAX) {
        let told = join_all(some.iter().map(|counters| counters.publish())).await;
        told.into_iter().collect::<Result<(), StoreError>>()?;
    }
    Ok(())
}

/// The same, as often as it takes.
pub(super) async fn publish_in_the_end(limits: Arc<Limits>) {
    let mut has_failed = false;
    while let Err(error) = publish(&limits).await {
        if !has_failed {
            tracing::warn!("others have not heard of all rules yet: {error}");
        }
        has_failed = true;
        tokio::time::sleep(AGAIN).await;
    }
    if has_failed {
        tracing::info!("others have heard of all rules");
    }
}

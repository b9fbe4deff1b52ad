//! The latencies of Redis in metrics.

use crate::stage::{Stage, limiter_with, ready};
use tidegate_redis::{OnError, Settings};
use tidegate_testbed::Fault;

/// Returns how many round trips took at least this long, in seconds.
fn as_long_as(store: &tidegate_redis::RedisStore, seconds: f64) -> u64 {
    store.round_trips().buckets().filter(|(end, _)| *end > seconds).map(|(_, count)| count).sum()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_script_that_is_sent_is_timed_even_without_an_answer() {
    let stage = Stage::new();
    let deadline = std::time::Duration::from_millis(1_500);
    let store = stage.store_with(Settings::default().deadline(deadline)).await;
    let limiter = limiter_with(&store, "timed", "1000/s", OnError::Deny);
    ready(&limiter).await;
    let before = store.round_trips().count();
    for _ in 0..10 {
        let _ = limiter.check("key").await;
    }
    assert_eq!(store.round_trips().count() - before, 10);
    let before = as_long_as(&store, 1.0);
    stage.proxy.set(Fault::BlackHole);
    let _ = limiter.check("key").await;
    assert_eq!(as_long_as(&store, 1.0) - before, 1, "it was waited for until the deadline");
}

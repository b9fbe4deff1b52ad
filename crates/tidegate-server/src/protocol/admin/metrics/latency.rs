//! Durations of decisions and of round trips to Redis.

use crate::server::Server;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use std::fmt::Error;
use tidegate_redis::Latencies;

pub(super) fn encode(server: &Server, encoder: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
    let help = "Seconds from a request to its decision; each request of a batch counts with the duration of the batch";
    histogram(encoder, "decision_duration_seconds", help, server.engine.decision_times())?;
    let Some(store) = server.engine.store().shared() else { return Ok(()) };
    let help = "Seconds from sending a script to Redis to its answer or timeout";
    histogram(encoder, "store_round_trip_duration_seconds", help, store.round_trips())
}

fn histogram(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    latencies: &Latencies,
) -> Result<(), Error> {
    let buckets: Vec<(f64, u64)> = latencies.buckets().collect();
    // From the same reading as the buckets, so that they add up.
    let count = buckets.iter().map(|(_, count)| count).sum();
    encoder
        .encode_descriptor(name, help, None, MetricType::Histogram)?
        .encode_histogram::<NoLabelSet>(latencies.sum_seconds(), count, &buckets, None)
}

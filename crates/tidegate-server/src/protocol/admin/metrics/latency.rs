//! How long decisions take, and how long Redis does.

use crate::server::Server;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use std::fmt::Error;
use tidegate_redis::Latencies;

pub(super) fn encode(server: &Server, encoder: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
    let help = "Seconds from a question to its decision; each request of a batch takes as long as the batch";
    histogram(encoder, "decision_duration_seconds", help, server.engine.decision_times())?;
    let Some(store) = server.engine.store().shared() else { return Ok(()) };
    let help = "Seconds from a script sent to Redis to its answer, or until that was not waited for any more";
    histogram(encoder, "store_round_trip_duration_seconds", help, store.round_trips())
}

fn histogram(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    latencies: &Latencies,
) -> Result<(), Error> {
    let buckets: Vec<(f64, u64)> = latencies.buckets().collect();
    // Of the same moment as the buckets, or they would not add up.
    let count = buckets.iter().map(|(_, count)| count).sum();
    encoder
        .encode_descriptor(name, help, None, MetricType::Histogram)?
        .encode_histogram::<NoLabelSet>(latencies.sum_seconds(), count, &buckets, None)
}

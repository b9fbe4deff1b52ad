//! The log and the snapshots.

use super::counter;
use crate::server::Server;
use crate::server::status::{RestoreResult, SnapshotStatus};
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::MetricType;
use std::fmt::Error;
use tidegate::{Clock as _, Span};

pub(super) fn encode(server: &Server, encoder: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
    if let Some(drops) = server.status.log.get() {
        let help = "Lines of the log that were not written: the buffer was full, standard error could not be \
                    written, or a summary stands for them";
        let mut dropped =
            encoder.encode_descriptor("log_lines_dropped", help, None, MetricType::Counter)?;
        for (reason, count) in drops.by_reason() {
            counter(&mut dropped.encode_family(&[("reason", reason)])?, count)?;
        }
    }
    let status = &server.status.snapshot;
    match (status.restore(), status.age(server.engine.clock().now())) {
        (Some(restore), Some(age)) => snapshots(server, encoder, status, (restore, age)),
        _ => Ok(()),
    }
}

fn snapshots(
    server: &Server,
    encoder: &mut DescriptorEncoder<'_>,
    status: &SnapshotStatus,
    (restore, age): (RestoreResult, Span),
) -> Result<(), Error> {
    let help = "Attempts to write a snapshot, by how they ended";
    let mut attempts = encoder.encode_descriptor("snapshots", help, None, MetricType::Counter)?;
    let (written, failed) = status.counts();
    for (result, count) in [("ok", written), ("error", failed)] {
        counter(&mut attempts.encode_family(&[("result", result)])?, count)?;
    }
    let help = "Seconds since the last snapshot that was written, or since the start";
    encoder
        .encode_descriptor("snapshot_age_seconds", help, None, MetricType::Gauge)?
        .encode_gauge(&seconds(age))?;
    let help =
        "Seconds between two snapshots, as configured; 0 where one is written at the end only";
    let every = server.config().server.snapshot.as_ref().map(|snapshot| snapshot.every);
    encoder
        .encode_descriptor("snapshot_interval_seconds", help, None, MetricType::Gauge)?
        .encode_gauge(&every.unwrap_or_default().as_secs_f64())?;
    let help =
        "1 for what the start found: the snapshot, none, only the one before it, or nothing usable";
    let mut found = encoder.encode_descriptor("snapshot_restore", help, None, MetricType::Gauge)?;
    for (result, label) in RestoreResult::ALL {
        let is_it = u64::from(result == restore);
        found.encode_family(&[("result", label)])?.encode_gauge(&is_it)?;
    }
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "exact for 285 years")]
fn seconds(span: Span) -> f64 {
    span.as_micros() as f64 / 1e6
}

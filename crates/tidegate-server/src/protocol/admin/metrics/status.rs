//! Metrics of the log and of snapshots.

use super::{counters, gauge, gauges};
use crate::server::Server;
use crate::server::status::{RestoreResult, SnapshotStatus};
use prometheus_client::encoding::DescriptorEncoder;
use std::fmt::Error;
use tidegate::{Clock as _, Span};

pub(super) fn encode(server: &Server, encoder: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
    if let Some(drops) = server.status.log.get() {
        let help = "Log lines that were not written: the buffer was full, standard error failed, or a summary \
                    replaced them";
        counters(encoder, "log_lines_dropped", help, "reason", drops.by_reason())?;
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
    let (written, failed) = status.counts();
    let help = "Attempts to write a snapshot, by result";
    counters(encoder, "snapshots", help, "result", [("ok", written), ("error", failed)])?;
    let help = "Seconds since the last snapshot, or since the start";
    gauge(encoder, "snapshot_age_seconds", help, &seconds(age))?;
    let every = server.config().server.snapshot.as_ref().map(|snapshot| snapshot.every);
    let every = every.unwrap_or_default().as_secs_f64();
    let help = "Configured seconds between snapshots; 0 if only shutdown writes one";
    gauge(encoder, "snapshot_interval_seconds", help, &every)?;
    let help = "1 for the result of restoring at the start: the snapshot, none, the one before it, or none usable";
    let results = RestoreResult::ALL.map(|(result, label)| (label, u64::from(result == restore)));
    gauges(encoder, "snapshot_restore", help, "result", results)
}

#[expect(clippy::cast_precision_loss, reason = "exact for 285 years")]
fn seconds(span: Span) -> f64 {
    span.as_micros() as f64 / 1e6
}

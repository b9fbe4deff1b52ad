//! Gradient2: the limit shrinks by as much as latency exceeds one and a half baselines, and grows by a
//! queue of its root.
//!
//! Rounding Down.
//! Spec     `spec/adaptive/gradient2.md`.

use super::baseline::Latency;

/// The queue that is always allowed, however small the limit.
const QUEUE_MIN: u64 = 4;

/// The limit after a full round: half the way to where the gradient points.
pub(super) fn next(limit: u64, latency: Latency) -> u64 {
    let queue = limit.isqrt().max(QUEUE_MIN);
    (limit + scaled(limit, latency) + queue) / 2
}

/// The limit times 1.5 · baseline / latency, which is at least a half and at most one.
fn scaled(limit: u64, latency: Latency) -> u64 {
    let (rtt, baseline) = (u128::from(latency.rtt.as_micros()), latency.baseline.as_micros());
    let scaled = u128::from(limit) * u128::from(baseline) * 3 / (rtt * 2).max(1);
    u64::try_from(scaled).unwrap_or(limit).clamp(limit / 2, limit)
}

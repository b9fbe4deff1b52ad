//! Gradient2: the limit shrinks in proportion to the latency beyond one and a half baselines, and grows by a queue of its
//! square root.
//!
//! Rounding Down.
//! Spec     `spec/adaptive/gradient2.md`.

use super::baseline::Latency;

/// The queue that is allowed for the smallest limits.
const QUEUE_MIN: u64 = 4;

/// Returns the limit after a full round: half the way to where the gradient points.
pub(super) fn next(limit: u64, latency: Latency) -> u64 {
    let queue = limit.isqrt().max(QUEUE_MIN);
    (limit + scaled(limit, latency) + queue) / 2
}

/// Returns the limit times 1.5 · baseline / latency, a factor of at least a half and at most one.
fn scaled(limit: u64, latency: Latency) -> u64 {
    let (rtt, baseline) = (u128::from(latency.rtt.as_micros()), latency.baseline.as_micros());
    let scaled = u128::from(limit) * u128::from(baseline) * 3 / (rtt * 2).max(1);
    u64::try_from(scaled).unwrap_or(limit).clamp(limit / 2, limit)
}

//! Vegas: keeps between 3 L and 6 L requests in the queue before the service, where L is the logarithm
//! of the limit.
//!
//! Of `limit` requests in flight, the share by which the latency exceeds the baseline is in the queue. A short queue is
//! intended: without one, it is unknown whether the service could handle more.
//!
//! Rounding The queue is rounded up.
//! Spec     `spec/adaptive/vegas.md`.

use super::baseline::Latency;

/// Returns the limit after a full round.
pub(super) fn next(limit: u64, latency: Latency) -> u64 {
    let step = u64::from(limit.ilog10()).max(1);
    let (few, many) = (3 * step, 6 * step);
    match queue(limit, latency) {
        queue if queue <= step => limit + many,
        queue if queue < few => limit + step,
        queue if queue <= many => limit,
        // Netflix lowers the limit by one step. Half of the excess is faster for limits in the hundreds.
        queue => limit.saturating_sub(((queue - many) / 2).max(step)),
    }
}

/// Returns how many of the requests in flight are in the queue.
fn queue(limit: u64, latency: Latency) -> u64 {
    let (rtt, baseline) = (latency.rtt.as_micros(), latency.baseline.as_micros());
    let waiting = u128::from(limit) * u128::from(rtt.saturating_sub(baseline));
    u64::try_from(waiting.div_ceil(u128::from(rtt.max(1)))).unwrap_or(limit)
}

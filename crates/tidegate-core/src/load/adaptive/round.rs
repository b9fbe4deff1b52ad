//! A round: as many samples as may be in flight at once, evaluated together.
//!
//! A single latency says little, and the effect of a changed limit shows only in requests that began after the change. If
//! the limit is used, a round is one round trip, however long that takes, so no clock is needed.
//!
//! Always   The latency of an overload is not counted, because a rejection is quick.

use super::Sample;
use crate::time::Span;

/// The smallest number of samples in a round.
const SAMPLES_MIN: u64 = 10;

/// Returns the number of samples in a round under this limit.
pub(super) fn size(limit: u64) -> u64 {
    limit.max(SAMPLES_MIN)
}

#[derive(Clone, Debug, Default)]
pub(super) struct Round {
    served: u64,
    overloads: u64,
    /// The sum of the latencies of the served requests, in microseconds.
    rtt_sum: u128,
    in_flight_max: u64,
}

impl Round {
    /// Adds a sample. A request that took longer than `timeout` is an overload.
    pub(super) fn add(&mut self, sample: Sample, timeout: Span) {
        self.in_flight_max = self.in_flight_max.max(sample.in_flight);
        if sample.is_overload || sample.rtt > timeout {
            self.overloads += 1;
        } else {
            self.served += 1;
            self.rtt_sum += u128::from(sample.rtt.as_micros());
        }
    }

    pub(super) fn count(&self) -> u64 {
        self.served + self.overloads
    }

    pub(super) fn is_overload(&self) -> bool {
        self.overloads > 0
    }

    /// Returns whether at least half of the limit was used: an unused limit needs no change.
    pub(super) fn uses_half_of(&self, limit: u64) -> bool {
        self.in_flight_max.saturating_mul(2) >= limit
    }

    /// Returns the mean latency of the served requests, rounded up, and at least a microsecond.
    pub(super) fn rtt(&self) -> Option<Span> {
        let served = u128::from(self.served);
        (served > 0).then(|| Span::from_wide(self.rtt_sum.div_ceil(served)).at_least_1us())
    }
}

//! A round: as many samples as may have been in flight at once, taken as one.
//!
//! A single latency says little; and what a change of the limit has done shows only in requests that
//! began after it. When the limit is used, a round is one round trip, whatever the time that takes: so
//! no clock is needed.
//!
//! Always   Sums saturate. The latency of an overload is not counted: a refusal is quick.

use super::Sample;
use crate::time::Span;

/// Fewer samples than this say nothing.
const SAMPLES_MIN: u64 = 10;

/// How many samples a round takes under this limit.
pub(super) fn size(limit: u64) -> u64 {
    limit.max(SAMPLES_MIN)
}

#[derive(Clone, Debug, Default)]
pub(super) struct Round {
    served: u64,
    overloads: u64,
    /// Of those that were served, in microseconds.
    rtt_sum: u128,
    in_flight_max: u64,
}

impl Round {
    /// Takes note of a request. What took longer than `timeout` is an overload.
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

    /// Whether the limit was used: one that is not needs no change.
    pub(super) fn uses_half_of(&self, limit: u64) -> bool {
        self.in_flight_max.saturating_mul(2) >= limit
    }

    /// The mean time of those that were served, rounded up, and at least a microsecond.
    pub(super) fn rtt(&self) -> Option<Span> {
        let served = u128::from(self.served);
        (served > 0).then(|| Span::from_wide(self.rtt_sum.div_ceil(served)).at_least_1us())
    }
}

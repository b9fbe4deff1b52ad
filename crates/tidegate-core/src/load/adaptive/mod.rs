//! Adaptive concurrency: a limit on requests in flight, derived from how long they take (A14).
//!
//! State    The limit, and a round of samples that is not full yet.
//! Always   The limit is within its bounds, and so never 0. It changes at the end of a round, by the samples of the whole
//!          round, and only if at least half of the limit was used.
//! Rounding Down: a limit is never rounded up beyond what the samples support.
//! Spec     `spec/adaptive/` has a page for each law of change, and this folder a file.

mod aimd;
mod baseline;
mod gradient2;
mod round;
mod vegas;

use crate::time::Span;
use baseline::Baseline;
use core::ops::RangeInclusive;
use round::Round;

/// The largest limit.
const LIMIT_MAX: u64 = 1_000_000;
/// The first limit, as in Netflix's limiters.
const INITIAL: u64 = 20;
const MAX: u64 = 1_000;

/// A limit on requests in flight that follows the capacity of a service.
///
/// [`observe`](Self::observe) takes a sample of each finished request and returns how many requests may be in flight from
/// then on. This type reads no clock and counts no requests; `AdaptiveGate` in the crate `tidegate` does.
///
/// ```
/// use tidegate_core::{Adaptive, Sample, Span};
///
/// let mut adaptive = Adaptive::vegas();
/// let fast = Sample::success(Span::from_millis(10), adaptive.limit());
/// for _ in 0..20 {
///     adaptive.observe(fast);
/// }
/// assert!(adaptive.limit() > 20, "there is no queue, so the limit rises");
/// ```
#[derive(Clone, Debug)]
pub struct Adaptive {
    min: u64,
    max: u64,
    limit: u64,
    round: Round,
    /// The number of samples in a full round.
    size: u64,
    law: Law,
}

/// The law by which the limit changes.
#[derive(Clone, Debug)]
enum Law {
    Aimd { timeout: Span },
    Vegas(Baseline),
    Gradient2(Baseline),
}

impl Law {
    /// Returns how many rounds are evaluated as one.
    fn rounds_at_once(&self) -> u64 {
        match self {
            // The first requests to finish after the limit was lowered are the short ones.
            Self::Vegas(baseline) | Self::Gradient2(baseline) if baseline.is_measuring() => 2,
            _ => 1,
        }
    }
}

/// A finished request, as a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    pub(crate) rtt: Span,
    pub(crate) in_flight: u64,
    pub(crate) is_overload: bool,
}

impl Sample {
    /// Creates the sample of a request that was served in `rtt`. `in_flight` counts the requests when it began, itself included.
    pub const fn success(rtt: Span, in_flight: u64) -> Self {
        Self { rtt, in_flight, is_overload: false }
    }

    /// Creates the sample of a request that the service rejected, or that timed out: the service is overloaded. Its `rtt` says
    /// nothing about how long serving takes.
    pub const fn overload(rtt: Span, in_flight: u64) -> Self {
        Self { rtt, in_flight, is_overload: true }
    }
}

impl Adaptive {
    /// Raises the limit by its square root after a round of successes, and lowers it by a tenth after a round with an
    /// overload or with a request that took longer than `timeout`.
    ///
    /// `timeout` should be somewhat longer than the slowest regular request.
    pub fn aimd(timeout: Span) -> Self {
        Self::new(Law::Aimd { timeout })
    }

    /// Keeps a queue of a few requests in front of the service, estimated from how much longer requests take than without a
    /// queue. It has no parameter, and is the one to start with.
    pub fn vegas() -> Self {
        Self::new(Law::Vegas(Baseline::default()))
    }

    /// Lets requests take half as long again as without a queue, and adds the square root of the limit. It handles varying
    /// latencies better than [`vegas`](Self::vegas), and queues more.
    pub fn gradient2() -> Self {
        Self::new(Law::Gradient2(Baseline::default()))
    }

    fn new(law: Law) -> Self {
        let round = Round::default();
        Self { min: 1, max: MAX, limit: INITIAL, round, size: round::size(INITIAL), law }
    }

    /// Sets the bounds of the limit. Default: 1 to 1000. The lower bound is at least 1, and the upper at most a million and at
    /// least the lower. A limit outside the bounds is moved inside.
    #[must_use]
    pub fn between(mut self, bounds: RangeInclusive<u64>) -> Self {
        self.min = (*bounds.start()).clamp(1, LIMIT_MAX);
        self.max = (*bounds.end()).clamp(self.min, LIMIT_MAX);
        let limit = self.limit;
        self.starting_at(limit)
    }

    /// Sets the first limit, within the bounds. Default: 20.
    #[must_use]
    pub fn starting_at(mut self, limit: u64) -> Self {
        self.limit = limit.clamp(self.min, self.max);
        self.size = round::size(self.limit);
        self
    }

    /// Returns how many requests may be in flight.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Returns how long a request takes without a queue, if it has been measured: [`vegas`](Self::vegas) and
    /// [`gradient2`](Self::gradient2) compare latencies with it.
    pub fn baseline(&self) -> Option<Span> {
        match &self.law {
            Law::Aimd { .. } => None,
            Law::Vegas(baseline) | Law::Gradient2(baseline) => baseline.rtt(),
        }
    }

    /// Takes the sample of a finished request, and returns how many requests may be in flight now.
    pub fn observe(&mut self, sample: Sample) -> u64 {
        let timeout = match self.law {
            Law::Aimd { timeout } => timeout,
            Law::Vegas(_) | Law::Gradient2(_) => Span::MAX,
        };
        self.round.add(sample, timeout);
        if self.round.count() >= self.size {
            let round = core::mem::take(&mut self.round);
            let next = self.next(&round);
            // The requests that were in flight under the old limit have to finish first: only later ones show the
            // effect of the new limit.
            self.size = round::size(self.limit) * self.law.rounds_at_once();
            self.limit = next.clamp(self.min, self.max);
        }
        debug_assert!(self.limit >= self.min && self.limit <= self.max && self.min > 0);
        self.limit
    }

    fn next(&mut self, round: &Round) -> u64 {
        let (limit, min) = (self.limit, self.min);
        match &mut self.law {
            Law::Aimd { .. } => {
                if round.is_overload() {
                    return back_off(limit);
                }
                if round.uses_half_of(limit) { aimd::next(limit) } else { limit }
            }
            Law::Vegas(baseline) => baseline.next(limit, min, round, vegas::next),
            Law::Gradient2(baseline) => baseline.next(limit, min, round, gradient2::next),
        }
    }
}

/// Lowers a limit by a tenth, and at least by one, as every law does after an overload.
fn back_off(limit: u64) -> u64 {
    limit.saturating_sub((limit / 10).max(1))
}

#[cfg(test)]
mod tests;

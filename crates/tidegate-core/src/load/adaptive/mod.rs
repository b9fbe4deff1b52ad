//! Adaptive concurrency: how many may be in flight, learnt from how long they take (A14).
//!
//! State    The limit, and a round of samples that is not full yet.
//! Always   The limit is within its bounds, and so never 0. It changes at the end of a round, by what
//!          the whole round has shown, and only if at least half of it was used.
//! Rounding Down: what is not sure to be borne is not admitted.
//! Spec     `spec/adaptive/`, a page for each way of changing the limit; the code of each is a file here.

mod aimd;
mod baseline;
mod gradient2;
mod round;
mod vegas;

use crate::time::Span;
use baseline::Baseline;
use core::ops::RangeInclusive;
use round::Round;

/// The largest limit. More than a million in flight is no limit.
const LIMIT_MAX: u64 = 1_000_000;
/// Where to begin when nothing is known: as Netflix's limiters do.
const INITIAL: u64 = 20;
const MAX: u64 = 1_000;

/// A limit on what is in flight that follows what the service can bear.
///
/// It is told of each request that has finished ([`observe`](Self::observe)) and says how many may be
/// in flight from then on. It knows no clock and counts nothing itself; `AdaptiveGate` of the `tidegate`
/// crate does that.
///
/// ```
/// use tidegate_core::{Adaptive, Sample, Span};
///
/// let mut adaptive = Adaptive::vegas();
/// let fast = Sample::success(Span::from_millis(10), adaptive.limit());
/// for _ in 0..20 {
///     adaptive.observe(fast);
/// }
/// assert!(adaptive.limit() > 20, "there is no queue: it tries more");
/// ```
#[derive(Clone, Debug)]
pub struct Adaptive {
    min: u64,
    max: u64,
    limit: u64,
    round: Round,
    /// How many samples make the round full.
    size: u64,
    law: Law,
}

/// How the limit changes.
#[derive(Clone, Debug)]
enum Law {
    Aimd { timeout: Span },
    Vegas(Baseline),
    Gradient2(Baseline),
}

impl Law {
    /// How many rounds are taken as one.
    fn rounds_at_once(&self) -> u64 {
        match self {
            // The first to finish after room was made are those with little work.
            Self::Vegas(baseline) | Self::Gradient2(baseline) if baseline.is_measuring() => 2,
            _ => 1,
        }
    }
}

/// What is known of a request that has finished.
///
/// ```
/// use tidegate_core::{Sample, Span};
///
/// let served = Sample::success(Span::from_millis(12), 7);
/// let refused = Sample::overload(Span::from_millis(1), 8);
/// assert_ne!(served, refused);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    pub(crate) rtt: Span,
    pub(crate) in_flight: u64,
    pub(crate) is_overload: bool,
}

impl Sample {
    /// It was served in this time; so many were in flight when it began, itself included.
    ///
    /// ```
    /// # use tidegate_core::{Sample, Span};
    /// let sample = Sample::success(Span::from_millis(12), 7);
    /// ```
    pub const fn success(rtt: Span, in_flight: u64) -> Self {
        Self { rtt, in_flight, is_overload: false }
    }

    /// It was refused by the service or timed out: the service has too much to do. How long that took
    /// says nothing about how long it takes to serve.
    ///
    /// ```
    /// # use tidegate_core::{Adaptive, Sample, Span};
    /// let mut adaptive = Adaptive::gradient2();
    /// for _ in 0..20 {
    ///     adaptive.observe(Sample::overload(Span::from_millis(1), 20));
    /// }
    /// assert_eq!(adaptive.limit(), 18);
    /// ```
    pub const fn overload(rtt: Span, in_flight: u64) -> Self {
        Self { rtt, in_flight, is_overload: true }
    }
}

impl Adaptive {
    /// Up by a root of the limit after a round in which everything went well, down by a tenth after one
    /// with an overload or with a request that took longer than `timeout`.
    ///
    /// It must be told what is too long: somewhat more than the slowest honest request.
    ///
    /// ```
    /// use tidegate_core::{Adaptive, Sample, Span};
    ///
    /// let mut adaptive = Adaptive::aimd(Span::from_millis(100)).starting_at(10);
    /// for _ in 0..10 {
    ///     adaptive.observe(Sample::success(Span::from_millis(99), 10));
    /// }
    /// assert_eq!(adaptive.limit(), 13);
    /// for _ in 0..10 {
    ///     adaptive.observe(Sample::success(Span::from_millis(101), 13));
    /// }
    /// assert_eq!(adaptive.limit(), 12);
    /// ```
    pub fn aimd(timeout: Span) -> Self {
        Self::new(Law::Aimd { timeout })
    }

    /// Keeps a queue of a few requests before the service, estimated from how much longer they take
    /// than without one. The default to choose: it needs to be told nothing.
    ///
    /// ```
    /// let adaptive = tidegate_core::Adaptive::vegas();
    /// assert_eq!(adaptive.limit(), 20);
    /// ```
    pub fn vegas() -> Self {
        Self::new(Law::Vegas(Baseline::default()))
    }

    /// Lets requests take half as long again as without a queue, and a root of the limit more. It
    /// bears latencies that vary better than [`vegas`](Self::vegas) does, and queues more.
    ///
    /// ```
    /// let adaptive = tidegate_core::Adaptive::gradient2();
    /// assert_eq!(adaptive.limit(), 20);
    /// ```
    pub fn gradient2() -> Self {
        Self::new(Law::Gradient2(Baseline::default()))
    }

    fn new(law: Law) -> Self {
        let round = Round::default();
        Self { min: 1, max: MAX, limit: INITIAL, round, size: round::size(INITIAL), law }
    }

    /// Bounds of the limit; 1 to 1000 unless told. The smallest is at least 1, the largest at most a
    /// million and not below the smallest. A limit that is outside is moved inside.
    ///
    /// ```
    /// # use tidegate_core::Adaptive;
    /// assert_eq!(Adaptive::vegas().between(30..=200).limit(), 30);
    /// assert_eq!(Adaptive::vegas().between(0..=0).limit(), 1, "never 0");
    /// ```
    #[must_use]
    pub fn between(mut self, bounds: RangeInclusive<u64>) -> Self {
        self.min = (*bounds.start()).clamp(1, LIMIT_MAX);
        self.max = (*bounds.end()).clamp(self.min, LIMIT_MAX);
        let limit = self.limit;
        self.starting_at(limit)
    }

    /// The limit to begin with, within the bounds; 20 unless told.
    ///
    /// ```
    /// # use tidegate_core::Adaptive;
    /// assert_eq!(Adaptive::vegas().starting_at(50).limit(), 50);
    /// ```
    #[must_use]
    pub fn starting_at(mut self, limit: u64) -> Self {
        self.limit = limit.clamp(self.min, self.max);
        self.size = round::size(self.limit);
        self
    }

    /// How many may be in flight.
    ///
    /// ```
    /// assert_eq!(tidegate_core::Adaptive::vegas().limit(), 20);
    /// ```
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// How long a request takes without a queue, as far as that is known: what [`vegas`](Self::vegas)
    /// and [`gradient2`](Self::gradient2) compare with.
    ///
    /// ```
    /// # use tidegate_core::{Adaptive, Sample, Span};
    /// let mut adaptive = Adaptive::vegas();
    /// assert_eq!(adaptive.baseline(), None);
    /// for _ in 0..20 {
    ///     adaptive.observe(Sample::success(Span::from_millis(10), 20));
    /// }
    /// assert_eq!(adaptive.baseline(), Some(Span::from_millis(10)));
    /// ```
    pub fn baseline(&self) -> Option<Span> {
        match &self.law {
            Law::Aimd { .. } => None,
            Law::Vegas(baseline) | Law::Gradient2(baseline) => baseline.rtt(),
        }
    }

    /// Takes note of a request that has finished, and says how many may be in flight now.
    ///
    /// ```
    /// # use tidegate_core::{Adaptive, Sample, Span};
    /// let mut adaptive = Adaptive::vegas();
    /// assert_eq!(adaptive.observe(Sample::success(Span::from_millis(10), 1)), 20);
    /// ```
    pub fn observe(&mut self, sample: Sample) -> u64 {
        let timeout = match self.law {
            Law::Aimd { timeout } => timeout,
            Law::Vegas(_) | Law::Gradient2(_) => Span::MAX,
        };
        self.round.add(sample, timeout);
        if self.round.count() >= self.size {
            let round = core::mem::take(&mut self.round);
            let next = self.next(&round);
            // As many as may have been in flight under the limit that was: only what comes after them
            // can show what the new one does.
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

/// Down by a tenth, and at least by one: what every law does after an overload.
fn back_off(limit: u64) -> u64 {
    limit.saturating_sub((limit / 10).max(1))
}

#[cfg(test)]
mod tests;

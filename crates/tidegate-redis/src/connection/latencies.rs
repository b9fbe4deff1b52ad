//! Latency histogram with fixed buckets: recording takes two atomic additions, no lock and no allocation.

use std::sync::atomic::{AtomicU64, Ordering};
use tidegate::Span;

/// The upper bound of each bucket, in microseconds: decisions in memory fall into the first ones, in Redis into the middle.
const BOUNDS_US: [u64; 16] = [
    1, 5, 25, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000,
    1_000_000, 5_000_000,
];

/// A histogram of durations, from one microsecond to five seconds.
///
/// ```
/// use tidegate::Span;
/// use tidegate_redis::Latencies;
///
/// let latencies = Latencies::default();
/// latencies.record(Span::from_micros(300), 2);
/// latencies.record(Span::from_secs(60), 1);
/// assert_eq!(latencies.count(), 3);
/// assert_eq!(latencies.sum_seconds(), 60.0006);
/// let buckets: Vec<_> = latencies.buckets().filter(|(_, count)| *count > 0).collect();
/// assert_eq!(buckets, [(0.0005, 2), (f64::INFINITY, 1)], "upper bounds in seconds");
/// ```
#[derive(Debug, Default)]
pub struct Latencies {
    /// The last bucket counts durations above every bound.
    buckets: [AtomicU64; BOUNDS_US.len() + 1],
    sum_us: AtomicU64,
}

impl Latencies {
    /// Records `times` operations that took this long each.
    #[inline]
    pub fn record(&self, took: Span, times: u64) {
        let took_us = took.as_micros();
        let bucket =
            BOUNDS_US.iter().position(|bound| took_us <= *bound).unwrap_or(BOUNDS_US.len());
        self.buckets[bucket].fetch_add(times, Ordering::Relaxed);
        // Adding zero would still contend with other threads.
        if took_us > 0 {
            self.sum_us.fetch_add(took_us.saturating_mul(times), Ordering::Relaxed);
        }
    }

    /// Returns how many durations were recorded.
    pub fn count(&self) -> u64 {
        self.buckets().map(|(_, count)| count).sum()
    }

    /// Returns the sum of all durations, in seconds.
    #[expect(clippy::cast_precision_loss, reason = "exact for 285 years of waiting")]
    pub fn sum_seconds(&self) -> f64 {
        self.sum_us.load(Ordering::Relaxed) as f64 / 1e6
    }

    /// Returns the upper bound of each bucket in seconds (`f64::INFINITY` for the last one), and how many durations are in
    /// this bucket and in no earlier one.
    #[expect(clippy::cast_precision_loss, reason = "the bounds are small")]
    pub fn buckets(&self) -> impl Iterator<Item = (f64, u64)> {
        let ends = BOUNDS_US.iter().map(|bound| *bound as f64 / 1e6).chain([f64::INFINITY]);
        ends.zip(self.buckets.iter().map(|count| count.load(Ordering::Relaxed)))
    }
}

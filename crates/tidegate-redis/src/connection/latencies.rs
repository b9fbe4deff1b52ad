//! How long something took, as a histogram.
//!
//! Always   Recording is three additions to counters: no lock, no memory. Buckets are fixed, so a histogram has one size.

use std::sync::atomic::{AtomicU64, Ordering};
use tidegate::Span;

/// The upper end of each bucket, in microseconds: a decision in memory is in the first ones, one in Redis in the middle.
const BOUNDS_US: [u64; 16] = [
    1, 5, 25, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000,
    1_000_000, 5_000_000,
];

/// How long something took, as counts in fixed buckets from a microsecond to five seconds.
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
/// assert_eq!(buckets, [(0.0005, 2), (f64::INFINITY, 1)], "each by its upper end, in seconds");
/// ```
#[derive(Debug, Default)]
pub struct Latencies {
    /// One more than there are bounds: the last is for what took longer.
    buckets: [AtomicU64; BOUNDS_US.len() + 1],
    sum_us: AtomicU64,
}

impl Latencies {
    /// Records that something took this long, so many times.
    ///
    /// ```
    /// # use tidegate::Span;
    /// # use tidegate_redis::Latencies;
    /// let latencies = Latencies::default();
    /// latencies.record(Span::from_micros(40), 128);
    /// assert_eq!(latencies.count(), 128, "a batch took 40 µs, and so did each request in it");
    /// ```
    #[inline]
    pub fn record(&self, took: Span, times: u64) {
        let took_us = took.as_micros();
        let bucket =
            BOUNDS_US.iter().position(|bound| took_us <= *bound).unwrap_or(BOUNDS_US.len());
        self.buckets[bucket].fetch_add(times, Ordering::Relaxed);
        // What took less than a microsecond is often zero: a write that changes nothing would still be shared.
        if took_us > 0 {
            self.sum_us.fetch_add(took_us.saturating_mul(times), Ordering::Relaxed);
        }
    }

    /// Returns how many were recorded.
    ///
    /// ```
    /// assert_eq!(tidegate_redis::Latencies::default().count(), 0);
    /// ```
    pub fn count(&self) -> u64 {
        self.buckets().map(|(_, count)| count).sum()
    }

    /// Returns how long all of them took together, in seconds.
    ///
    /// ```
    /// assert_eq!(tidegate_redis::Latencies::default().sum_seconds(), 0.0);
    /// ```
    #[expect(clippy::cast_precision_loss, reason = "exact for 285 years of waiting")]
    pub fn sum_seconds(&self) -> f64 {
        self.sum_us.load(Ordering::Relaxed) as f64 / 1e6
    }

    /// Returns each bucket: its upper end in seconds (`f64::INFINITY` for the last one), and how many are in it and in no
    /// bucket before it.
    ///
    /// ```
    /// let latencies = tidegate_redis::Latencies::default();
    /// assert_eq!(latencies.buckets().map(|(end, _)| end).take(2).collect::<Vec<_>>(), [1e-6, 5e-6]);
    /// ```
    #[expect(clippy::cast_precision_loss, reason = "the bounds are small")]
    pub fn buckets(&self) -> impl Iterator<Item = (f64, u64)> {
        let ends = BOUNDS_US.iter().map(|bound| *bound as f64 / 1e6).chain([f64::INFINITY]);
        ends.zip(self.buckets.iter().map(|count| count.load(Ordering::Relaxed)))
    }
}

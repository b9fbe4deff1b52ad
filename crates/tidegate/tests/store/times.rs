//! How long decisions took.

use tidegate::Span;

/// The number of decisions for each duration in microseconds.
pub(crate) struct Times {
    counts: Vec<u64>,
}

impl Times {
    const MOST_US: usize = 100_000;

    pub(crate) fn new() -> Self {
        Self { counts: vec![0; Self::MOST_US + 1] }
    }

    pub(crate) fn add(&mut self, took: Span) {
        let us = usize::try_from(took.as_micros()).unwrap().min(Self::MOST_US);
        self.counts[us] += 1;
    }

    /// Returns the duration that this many in a thousand do not exceed.
    pub(crate) fn quantile(&self, per_mille: u64) -> usize {
        let wanted = self.counts.iter().sum::<u64>() * per_mille / 1_000;
        let mut seen = 0;
        let reaches = |count: &u64| {
            seen += count;
            seen >= wanted
        };
        self.counts.iter().position(reaches).unwrap()
    }
}

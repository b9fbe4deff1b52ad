//! Compares two lists of times that were measured in the same rounds.

use std::fmt;

/// The ratio of our time to theirs within each round: median and extremes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ratio {
    /// The result.
    pub median: f64,
    /// The best round.
    pub low: f64,
    /// The worst round.
    pub high: f64,
}

impl Ratio {
    /// Compares two lists of the same length, with at least one round.
    pub fn of(ours: &[f64], theirs: &[f64]) -> Self {
        let ratios: Vec<f64> = ours.iter().zip(theirs).map(|(a, b)| a / b).collect();
        Self::spread(&ratios)
    }

    /// Returns the median and the extremes of one list.
    pub fn spread(values: &[f64]) -> Self {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        Self { median: sorted[sorted.len() / 2], low: sorted[0], high: sorted[sorted.len() - 1] }
    }

    /// Returns whether the median meets a target, as text.
    pub fn verdict(&self, most: f64) -> String {
        let verdict = if self.median <= most { "yes" } else { "NO" };
        format!("<= {most}: {verdict}")
    }
}

impl fmt::Display for Ratio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{:.2} ({:.2}-{:.2})", self.median, self.low, self.high))
    }
}

/// Returns the median.
pub fn median(values: &[f64]) -> f64 {
    Ratio::spread(values).median
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_is_taken_within_a_round() {
        // The machine ran at half speed in the second round, which does not change the ratio.
        let ratio = Ratio::of(&[1.0, 2.0, 1.5], &[2.0, 4.0, 1.5]);
        assert_eq!(ratio, Ratio { median: 0.5, low: 0.5, high: 1.0 });
        assert_eq!(ratio.to_string(), "0.50 (0.50-1.00)");
        assert_eq!(ratio.verdict(0.5), "<= 0.5: yes");
        assert_eq!(ratio.verdict(0.4), "<= 0.4: NO");
    }
}

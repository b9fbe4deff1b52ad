//! How one list of times compares with another, taken in the same rounds.

use std::fmt;

/// Ours over theirs within each round: the middle one and the extremes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ratio {
    /// What counts.
    pub median: f64,
    /// The best round.
    pub low: f64,
    /// The worst round.
    pub high: f64,
}

impl Ratio {
    /// Two lists of the same length, at least one round long.
    pub fn of(ours: &[f64], theirs: &[f64]) -> Self {
        let ratios: Vec<f64> = ours.iter().zip(theirs).map(|(a, b)| a / b).collect();
        Self::spread(&ratios)
    }

    /// The middle and the extremes of one list.
    pub fn spread(values: &[f64]) -> Self {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        Self { median: sorted[sorted.len() / 2], low: sorted[0], high: sorted[sorted.len() - 1] }
    }

    /// What is to be said about a target.
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

/// The one in the middle.
pub fn median(values: &[f64]) -> f64 {
    Ratio::spread(values).median
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_is_taken_within_a_round() {
        // The machine halved its speed in the second round: the ratio does not care.
        let ratio = Ratio::of(&[1.0, 2.0, 1.5], &[2.0, 4.0, 1.5]);
        assert_eq!(ratio, Ratio { median: 0.5, low: 0.5, high: 1.0 });
        assert_eq!(ratio.to_string(), "0.50 (0.50-1.00)");
        assert_eq!(ratio.verdict(0.5), "<= 0.5: yes");
        assert_eq!(ratio.verdict(0.4), "<= 0.4: NO");
    }
}

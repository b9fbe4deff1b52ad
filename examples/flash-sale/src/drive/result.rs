//! The result of a sale.

use hdrhistogram::Histogram;
use tidegate::Span;

use crate::database::Tally;
use crate::reply::SaleReply;

/// Maximum latency that is recorded.
const LATENCY_MAX_US: u64 = 600_000_000;

/// The result of a sale.
pub struct SaleResult {
    /// The replies.
    pub answers: ReplyStats,
    /// The number of attempts that reached the database.
    pub visits: u64,
    /// The database after the sale.
    pub tally: Tally,
}

/// Counts and latencies of the replies.
pub struct ReplyStats {
    /// The number of replies of each kind.
    pub counts: Counts,
    /// The time until the last reply.
    pub took: Span,
    served_us: Histogram<u64>,
    refused_us: Histogram<u64>,
}

/// The number of replies of each kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// `Sold`.
    pub sold: u64,
    /// `SoldOut`.
    pub sold_out: u64,
    /// `Conflict`.
    pub conflict: u64,
    /// `TooMany`.
    pub too_many: u64,
    /// `Busy`.
    pub busy: u64,
}

impl ReplyStats {
    pub(super) fn new() -> anyhow::Result<Self> {
        Ok(Self {
            counts: Counts::default(),
            took: Span::ZERO,
            served_us: Histogram::new_with_max(LATENCY_MAX_US, 3)?,
            refused_us: Histogram::new_with_max(LATENCY_MAX_US, 3)?,
        })
    }

    pub(super) fn add(&mut self, answer: SaleReply, took: Span) {
        let (count, histogram) = match answer {
            SaleReply::Sold { .. } => (&mut self.counts.sold, &mut self.served_us),
            SaleReply::SoldOut => (&mut self.counts.sold_out, &mut self.served_us),
            SaleReply::Conflict => (&mut self.counts.conflict, &mut self.served_us),
            SaleReply::TooMany { .. } => (&mut self.counts.too_many, &mut self.refused_us),
            SaleReply::Busy { .. } => (&mut self.counts.busy, &mut self.refused_us),
        };
        *count += 1;
        histogram.saturating_record(took.as_micros());
    }

    /// Returns this percentile of the latencies of attempts that the database answered.
    pub fn served_us(&self, percentile: f64) -> Option<u64> {
        at(&self.served_us, percentile)
    }

    /// Returns this percentile of the latencies of attempts that the limits denied.
    pub fn refused_us(&self, percentile: f64) -> Option<u64> {
        at(&self.refused_us, percentile)
    }
}

fn at(histogram: &Histogram<u64>, percentile: f64) -> Option<u64> {
    (!histogram.is_empty()).then(|| histogram.value_at_percentile(percentile))
}

impl Counts {
    /// Returns the percentage of sales among the attempts that found one left; `None` if there was no such attempt.
    #[expect(clippy::cast_precision_loss, reason = "for people to read")]
    pub fn success_percent(self) -> Option<f64> {
        let tried = self.sold + self.conflict;
        (tried > 0).then(|| 100.0 * self.sold as f64 / tried as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn success_does_not_count_attempts_that_came_too_late() {
        let counts = Counts { sold: 1, conflict: 3, sold_out: 96, ..Counts::default() };
        assert_eq!(counts.success_percent(), Some(25.0));
        assert_eq!(Counts { sold_out: 5, ..Counts::default() }.success_percent(), None);
    }

    #[test]
    fn denied_attempts_do_not_lower_the_latency_of_served_ones() {
        let mut answers = ReplyStats::new().unwrap();
        answers.add(SaleReply::SoldOut, Span::from_millis(900));
        for _ in 0..99 {
            answers.add(SaleReply::Busy { retry_after_ms: 1 }, Span::from_micros(50));
        }
        assert!(answers.served_us(50.0).unwrap() >= 900_000);
        assert_eq!(answers.refused_us(99.0), Some(50));
        assert_eq!(ReplyStats::new().unwrap().served_us(50.0), None);
    }
}

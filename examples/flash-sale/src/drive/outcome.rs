//! What became of a crowd.

use hdrhistogram::Histogram;
use tidegate::Span;

use crate::answer::Answer;
use crate::database::Tally;

/// Longer latencies count as this.
const LATENCY_MAX_US: u64 = 600_000_000;

/// All of it.
pub struct Outcome {
    /// What the buyers were told.
    pub answers: Answers,
    /// How many attempts got to the database.
    pub visits: u64,
    /// What is in the database afterwards.
    pub tally: Tally,
}

/// What the buyers were told, and how long that took.
pub struct Answers {
    /// How many were told what.
    pub counts: Counts,
    /// Until everybody was answered.
    pub took: Span,
    served_us: Histogram<u64>,
    refused_us: Histogram<u64>,
}

/// How many were told what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// That they have one.
    pub sold: u64,
    /// That there are none left.
    pub sold_out: u64,
    /// That somebody else was faster.
    pub conflict: u64,
    /// That they ask too often.
    pub too_many: u64,
    /// That too many ask.
    pub busy: u64,
}

impl Answers {
    pub(super) fn new() -> anyhow::Result<Self> {
        Ok(Self {
            counts: Counts::default(),
            took: Span::ZERO,
            served_us: Histogram::new_with_max(LATENCY_MAX_US, 3)?,
            refused_us: Histogram::new_with_max(LATENCY_MAX_US, 3)?,
        })
    }

    pub(super) fn add(&mut self, answer: Answer, took: Span) {
        let (count, histogram) = match answer {
            Answer::Sold { .. } => (&mut self.counts.sold, &mut self.served_us),
            Answer::SoldOut => (&mut self.counts.sold_out, &mut self.served_us),
            Answer::Conflict => (&mut self.counts.conflict, &mut self.served_us),
            Answer::TooMany { .. } => (&mut self.counts.too_many, &mut self.refused_us),
            Answer::Busy { .. } => (&mut self.counts.busy, &mut self.refused_us),
        };
        *count += 1;
        histogram.saturating_record(took.as_micros());
    }

    /// Of those whom the database answered: so many of a hundred waited no longer than this.
    pub fn served_us(&self, percentile: f64) -> Option<u64> {
        at(&self.served_us, percentile)
    }

    /// The same of those who were refused.
    pub fn refused_us(&self, percentile: f64) -> Option<u64> {
        at(&self.refused_us, percentile)
    }
}

fn at(histogram: &Histogram<u64>, percentile: f64) -> Option<u64> {
    (!histogram.is_empty()).then(|| histogram.value_at_percentile(percentile))
}

impl Counts {
    /// Of a hundred who found something left and tried to take it, how many got it; nobody tried: nothing to say.
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
    fn success_is_among_those_who_tried_and_not_among_those_who_came_too_late() {
        let counts = Counts { sold: 1, conflict: 3, sold_out: 96, ..Counts::default() };
        assert_eq!(counts.success_percent(), Some(25.0));
        assert_eq!(Counts { sold_out: 5, ..Counts::default() }.success_percent(), None);
    }

    #[test]
    fn the_refused_do_not_make_the_served_look_fast() {
        let mut answers = Answers::new().unwrap();
        answers.add(Answer::SoldOut, Span::from_millis(900));
        for _ in 0..99 {
            answers.add(Answer::Busy { retry_after_ms: 1 }, Span::from_micros(50));
        }
        assert!(answers.served_us(50.0).unwrap() >= 900_000);
        assert_eq!(answers.refused_us(99.0), Some(50));
        assert_eq!(Answers::new().unwrap().served_us(50.0), None);
    }
}

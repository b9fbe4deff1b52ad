//! Small backward steps of the clock, which are absorbed instead of repaired.
//!
//! The counters of two processor cores can differ by microseconds, so a thread that moves between them sees time
//! go back a little. Treating each such step as a clock change would open windows twice and forget debts
//! (`docs/decisions/0010-short-steps-back-are-ridden-out.md`).

use super::{Span, Timestamp};

/// The longest backward step that is absorbed.
const SKEW_MAX: Span = Span::from_millis(1);

impl Span {
    /// Returns the longest backward step of the clock to absorb under a rule with this period: a millisecond, or
    /// the period if that is shorter.
    pub(crate) fn skew_tolerance(self) -> Self {
        self.min(SKEW_MAX)
    }

    /// Returns the time to use for a state last used at `latest`: `latest` while the clock is behind it by no
    /// more than the [tolerance](Self::skew_tolerance), else `now`.
    pub(crate) fn absorb_skew(self, latest: Timestamp, now: Timestamp) -> Timestamp {
        if latest.since(now) <= self.skew_tolerance() { now.max(latest) } else { now }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_back_of_up_to_a_millisecond_are_absorbed() {
        let at = Timestamp::from_micros;
        let absorbed = |now| Span::from_secs(1).absorb_skew(at(5_000), at(now));
        assert_eq!(absorbed(6_000), at(6_000));
        assert_eq!(absorbed(4_999), at(5_000));
        assert_eq!(absorbed(4_000), at(5_000));
        assert_eq!(absorbed(3_999), at(3_999));
        let shorter = Span::from_micros(10);
        assert_eq!(shorter.absorb_skew(at(5_000), at(4_990)), at(5_000), "at most the period");
        assert_eq!(shorter.absorb_skew(at(5_000), at(4_989)), at(4_989));
    }
}

//! When nothing is lent: leases that nobody knows of may still be about.
//!
//! Always   From when a change of primaries is heard of, for as long as a lease lasts and an eighth: clocks do not run
//!          equally fast. A primary is met before anything is sent to it, so whatever was lent by the one before had
//!          begun by then. Who has just come has heard of a change.

use super::LASTS;
use super::balance::Micros;
use tidegate_core::Span;

/// Since which change of primaries, and from when on, leases are taken.
#[derive(Debug, Default)]
pub(super) struct Quiet {
    changes: Option<u64>,
    until: Micros,
}

impl Quiet {
    /// Whether it is on, where primaries have changed so often by now.
    pub(super) fn is_on(&mut self, changes: u64, now: Micros) -> bool {
        if self.changes != Some(changes) {
            let lasts = Span::from(LASTS).as_micros();
            *self = Self { changes: Some(changes), until: now + lasts + lasts / 8 };
        }
        now < self.until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Micros = 5_000_000;
    const LONG: Micros = 1_125_000;

    #[test]
    fn who_has_just_come_waits_for_as_long_as_a_lease_lasts_and_an_eighth() {
        let mut quiet = Quiet::default();
        assert!(quiet.is_on(0, START));
        assert!(quiet.is_on(0, START + LONG - 1));
        assert!(!quiet.is_on(0, START + LONG));
    }

    #[test]
    fn every_change_of_primaries_is_waited_out_from_when_it_is_heard_of() {
        let mut quiet = Quiet::default();
        quiet.is_on(1, START);
        let first = START + LONG;
        assert!(!quiet.is_on(1, first));
        assert!(quiet.is_on(2, first), "at once");
        let second = first + LONG / 2;
        assert!(quiet.is_on(4, second), "and anew while it is on");
        assert!(quiet.is_on(4, first + LONG), "the second is not over with the first");
        assert!(quiet.is_on(4, second + LONG - 1));
        assert!(!quiet.is_on(4, second + LONG));
    }

    #[test]
    fn to_look_does_not_make_it_longer() {
        let mut quiet = Quiet::default();
        let looks = (0..LONG).step_by(1_000).filter(|step| quiet.is_on(7, START + step));
        assert_eq!(looks.count() as u64, LONG / 1_000);
        assert!(!quiet.is_on(7, START + LONG));
    }
}

//! The time in which no lease is used, because leases may be in use of which Redis does not know.
//!
//! Invariant  It begins when a node starts, and when it notices that a primary was replaced or restarted. A primary is
//!            identified before it is sent anything, so every lease of its predecessor has begun by then.
//! Invariant  It lasts an eighth longer than a lease, since clocks do not run equally fast.

use super::LEASE_TIME;
use super::balance::Micros;
use tidegate_core::Span;

#[derive(Debug, Default)]
pub(super) struct Cooldown {
    /// How many changes of primaries it covers.
    changes: Option<u64>,
    until: Micros,
}

impl Cooldown {
    /// Returns whether it is on, after this many changes of primaries.
    pub(super) fn is_on(&mut self, changes: u64, now: Micros) -> bool {
        if self.changes != Some(changes) {
            let lasts = Span::from(LEASE_TIME).as_micros();
            *self = Self { changes: Some(changes), until: now + lasts + lasts / 8 };
        }
        now < self.until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Micros = 5_000_000;
    const LENGTH: Micros = 1_125_000;

    #[test]
    fn a_new_node_waits_for_as_long_as_a_lease_lasts_and_an_eighth() {
        let mut cooldown = Cooldown::default();
        assert!(cooldown.is_on(0, START));
        assert!(cooldown.is_on(0, START + LENGTH - 1));
        assert!(!cooldown.is_on(0, START + LENGTH));
    }

    #[test]
    fn every_change_of_primaries_starts_the_cooldown_again() {
        let mut cooldown = Cooldown::default();
        cooldown.is_on(1, START);
        let first = START + LENGTH;
        assert!(!cooldown.is_on(1, first));
        assert!(cooldown.is_on(2, first), "at once");
        let second = first + LENGTH / 2;
        assert!(cooldown.is_on(4, second), "and again while it is on");
        assert!(cooldown.is_on(4, first + LENGTH), "the second does not end with the first");
        assert!(cooldown.is_on(4, second + LENGTH - 1));
        assert!(!cooldown.is_on(4, second + LENGTH));
    }

    #[test]
    fn asking_does_not_prolong_the_cooldown() {
        let mut cooldown = Cooldown::default();
        let asked = (0..LENGTH).step_by(1_000).filter(|step| cooldown.is_on(7, START + step));
        assert_eq!(asked.count() as u64, LENGTH / 1_000);
        assert!(!cooldown.is_on(7, START + LENGTH));
    }
}

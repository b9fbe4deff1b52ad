//! What an operator should know about the store's servers before it hurts: that one throws keys away, for example.
//!
//! Always   Never asked for on the way of a request. What is found is logged when it is new, and kept for who looks.
//!          Who cannot be asked is told by its health and not here; what was known of it stays known.

use super::ServerHealth;
use std::collections::BTreeSet;
use std::sync::Mutex;
use tidegate_redis::{Concern, Finding};

/// Looks between two examinations, if nothing happens: every ten minutes, for who looks every second.
const LOOKS_MAX: u32 = 600;
/// The same, however often a server comes and goes.
const LOOKS_MIN: u32 = 5;

/// What was found last.
#[derive(Debug, Default)]
pub(super) struct Findings(Mutex<Vec<Finding>>);

impl Findings {
    pub(super) fn all(&self) -> Vec<Finding> {
        self.0.lock().expect("nobody panics with it").clone()
    }

    /// Takes the place of what was found before, and says what is new.
    pub(super) fn learn(&self, found: Vec<Finding>) {
        let mut known = self.0.lock().expect("nobody panics with it");
        let before = std::mem::take(&mut *known);
        let (unasked, mut now): (Vec<_>, Vec<_>) =
            found.into_iter().partition(|finding| finding.kind == Concern::Unreachable);
        for finding in now.iter().filter(|finding| !before.contains(finding)) {
            tracing::warn!("the store at {finding}");
        }
        let is_unasked = |it: &Finding| unasked.iter().any(|other| other.address == it.address);
        let stay = before.into_iter().filter(|it| is_unasked(it) && !now.contains(it));
        let stay: Vec<Finding> = stay.collect();
        now.extend(stay);
        *known = now;
    }
}

/// When servers are to be examined: once they are there, when one has come back, and now and then.
#[derive(Debug, Default)]
pub(crate) struct Examination {
    /// Who answered at the last look.
    answered: BTreeSet<String>,
    /// Whether somebody has come who was not there when they were examined.
    is_wanted: bool,
    /// Looks since they were; none, if they never were.
    looks: Option<u32>,
}

impl Examination {
    /// Whether it is time, now that the servers are like this. Asked at every look.
    pub(crate) fn is_due(&mut self, health: &[ServerHealth]) -> bool {
        let answers = health.iter().filter(|server| server.why_down.is_none());
        let answer: BTreeSet<String> = answers.map(|server| server.address.clone()).collect();
        self.is_wanted |= !answer.is_subset(&self.answered);
        self.answered = answer;
        self.looks = self.looks.map(|looks| looks.saturating_add(1));
        let least = if self.is_wanted { LOOKS_MIN } else { LOOKS_MAX };
        let is_due = !self.answered.is_empty() && self.looks.is_none_or(|looks| looks >= least);
        if is_due {
            (self.is_wanted, self.looks) = (false, Some(0));
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate::Span;

    fn server(address: &str, is_up: bool) -> ServerHealth {
        let why_down = (!is_up).then(|| "it is away".to_owned());
        ServerHealth { address: address.to_owned(), why_down, since: Span::ZERO }
    }

    #[test]
    fn t34_servers_are_examined_once_they_are_there_and_then_rarely() {
        let mut examination = Examination::default();
        for _ in 0..1_000 {
            assert!(!examination.is_due(&[server("a", false)]), "there is nobody to ask");
        }
        assert!(examination.is_due(&[server("a", true)]));
        let times = (0..6_000).filter(|_| examination.is_due(&[server("a", true)])).count();
        assert_eq!(times, 10);
    }

    #[test]
    fn t34_who_comes_back_or_is_new_is_examined_soon() {
        let mut examination = Examination::default();
        assert!(examination.is_due(&[server("a", true)]));
        assert!(!examination.is_due(&[server("a", false)]));
        let back = (1..LOOKS_MAX).find(|_| examination.is_due(&[server("a", true)]));
        assert_eq!(back, Some(LOOKS_MIN - 1), "a look has gone by already");
        let both = [server("a", true), server("b", true)];
        let new = (1..LOOKS_MAX).find(|_| examination.is_due(&both));
        assert_eq!(new, Some(LOOKS_MIN));
    }

    #[test]
    fn t34_a_server_that_comes_and_goes_is_not_examined_every_time() {
        let mut examination = Examination::default();
        let flaps = |look: u32| [server("a", look.is_multiple_of(2))];
        let times = (0..1_000).filter(|look| examination.is_due(&flaps(*look))).count();
        assert!(times <= 1_000 / LOOKS_MIN as usize, "{times} of 1000");
    }
}

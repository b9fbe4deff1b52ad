//! Settings of the store's servers that an operator should change, for example an eviction policy that loses keys.
//!
//! Always   No request waits for an examination. A new finding is logged once; the last findings can be read at any time.
//!          A server that does not answer is reported by its health; its last findings stay.

use super::ServerHealth;
use crate::sync::lock;
use std::collections::BTreeSet;
use std::sync::Mutex;
use tidegate_redis::{ProblemKind, ServerProblem};

/// Health checks between two examinations while nothing changes: ten minutes, at one health check a second.
const CHECKS_MAX: u32 = 600;
/// The minimum between two examinations, however often a server goes down and comes back.
const CHECKS_MIN: u32 = 5;

/// The findings of the last examination.
#[derive(Debug, Default)]
pub(super) struct Findings(Mutex<Vec<ServerProblem>>);

impl Findings {
    pub(super) fn all(&self) -> Vec<ServerProblem> {
        lock(&self.0).clone()
    }

    /// Replaces the findings, and logs the new ones.
    pub(super) fn replace(&self, found: Vec<ServerProblem>) {
        let mut last = lock(&self.0);
        let before = std::mem::take(&mut *last);
        let (unreachable, mut now): (Vec<_>, Vec<_>) =
            found.into_iter().partition(|finding| finding.kind == ProblemKind::Unreachable);
        for finding in now.iter().filter(|finding| !before.contains(finding)) {
            tracing::warn!("the store at {finding}");
        }
        let is_unreachable =
            |finding: &ServerProblem| unreachable.iter().any(|it| it.address == finding.address);
        let stay: Vec<ServerProblem> =
            before.into_iter().filter(|it| is_unreachable(it) && !now.contains(it)).collect();
        now.extend(stay);
        *last = now;
    }
}

/// Decides when the servers are examined: when the first one answers, soon after one came back, and at intervals.
#[derive(Debug, Default)]
pub(crate) struct ExaminationSchedule {
    /// The servers that answered the last health check.
    answering: BTreeSet<String>,
    /// Whether a server answers that did not at the last examination.
    has_new_server: bool,
    /// Health checks since the last examination, if there was one.
    checks: Option<u32>,
}

impl ExaminationSchedule {
    /// Returns whether an examination is due, given the result of this health check.
    pub(crate) fn is_due(&mut self, health: &[ServerHealth]) -> bool {
        let answering = health.iter().filter(|server| server.why_down.is_none());
        let answering: BTreeSet<String> = answering.map(|server| server.address.clone()).collect();
        self.has_new_server |= !answering.is_subset(&self.answering);
        self.answering = answering;
        self.checks = self.checks.map(|checks| checks.saturating_add(1));
        let interval = if self.has_new_server { CHECKS_MIN } else { CHECKS_MAX };
        let is_due =
            !self.answering.is_empty() && self.checks.is_none_or(|checks| checks >= interval);
        if is_due {
            (self.has_new_server, self.checks) = (false, Some(0));
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate::Span;

    fn server(address: &str, is_up: bool) -> ServerHealth {
        let why_down = (!is_up).then(|| "connection refused".to_owned());
        ServerHealth { address: address.to_owned(), why_down, since: Span::ZERO }
    }

    // T34
    #[test]
    fn servers_are_examined_when_they_first_answer_and_then_rarely() {
        let mut schedule = ExaminationSchedule::default();
        for _ in 0..1_000 {
            assert!(!schedule.is_due(&[server("a", false)]), "no server answers");
        }
        assert!(schedule.is_due(&[server("a", true)]));
        let times = (0..6_000).filter(|_| schedule.is_due(&[server("a", true)])).count();
        assert_eq!(times, 10);
    }

    // T34
    #[test]
    fn a_server_that_comes_back_or_is_new_is_examined_soon() {
        let mut schedule = ExaminationSchedule::default();
        assert!(schedule.is_due(&[server("a", true)]));
        assert!(!schedule.is_due(&[server("a", false)]));
        let back = (1..CHECKS_MAX).find(|_| schedule.is_due(&[server("a", true)]));
        assert_eq!(back, Some(CHECKS_MIN - 1), "one check has passed already");
        let both = [server("a", true), server("b", true)];
        let new = (1..CHECKS_MAX).find(|_| schedule.is_due(&both));
        assert_eq!(new, Some(CHECKS_MIN));
    }

    // T34
    #[test]
    fn a_server_that_flaps_is_not_examined_every_time() {
        let mut schedule = ExaminationSchedule::default();
        let flaps = |check: u32| [server("a", check.is_multiple_of(2))];
        let times = (0..1_000).filter(|check| schedule.is_due(&flaps(*check))).count();
        assert!(times <= 1_000 / CHECKS_MIN as usize, "{times} of 1000");
    }
}

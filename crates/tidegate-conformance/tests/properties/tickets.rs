//! Concurrency with tickets: a release affects only its own request, also with leases and after changes.

use crate::check::check;
use crate::generate::{Action, Case, concurrency, span, steady};
use crate::track::{Track, ensure};
use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;
use tidegate_conformance::oracle::concurrency::Concurrency;
use tidegate_conformance::oracle::{ExpectedDecision, Rule};
use tidegate_core::{Span, Ticket};

/// `tidegate-core` and the oracle side by side, and the tickets of the requests in flight.
struct Both {
    track: Track,
    oracle: Concurrency,
    tickets: Vec<(usize, Ticket)>,
    names: usize,
}

impl Both {
    fn new(case: &Case) -> Self {
        let (max, lease) = numbers(&case.rule);
        let (track, oracle) = (Track::new(case), Concurrency::new(max, lease));
        Self { track, oracle, tickets: Vec::new(), names: 0 }
    }

    /// Admits a request, or in place of a refund releases one, which the cost of the refund chooses.
    fn act(&mut self, action: Action) -> TestCaseResult {
        match action {
            Action::Take(cost) => self.enter(self.track.cost(cost)),
            Action::Refund(cost) if !self.tickets.is_empty() => {
                let count = u64::try_from(self.tickets.len()).expect("there are few");
                let index = usize::try_from(self.track.cost(cost) % count).expect("there are few");
                let (name, ticket) = self.tickets.swap_remove(index);
                self.oracle.release(name);
                self.track.release(ticket);
                self.enter(0)
            }
            Action::Refund(_) => Ok(()),
        }
    }

    fn enter(&mut self, cost: u64) -> TestCaseResult {
        self.names += 1;
        let (decision, ticket) = self.track.enter(cost);
        self.tickets.extend(ticket.map(|ticket| (self.names, ticket)));
        let expected = self.oracle.enter(self.track.now, cost, self.names);
        let same = ExpectedDecision::from(decision) == expected;
        ensure!(same, self.track, "expected {expected:?}, got {decision:?}");
        Ok(())
    }

    fn change(&mut self, rule: &Rule) {
        let (max, lease) = numbers(rule);
        self.track.change(rule);
        self.oracle.change(self.track.now, max, lease);
    }
}

fn numbers(rule: &Rule) -> (u64, Option<Span>) {
    match rule {
        Rule::Concurrency { max, lease } => (*max, *lease),
        _ => panic!("{rule} has no tickets"),
    }
}

#[test]
fn tickets_are_released_as_the_oracle_does() {
    check(&steady(concurrency()), |case| {
        let mut both = Both::new(&case);
        case.steps.iter().try_for_each(|step| {
            both.track.pass(step.delta);
            both.act(step.action)
        })
    });
}

#[test]
fn a_released_ticket_restores_every_later_decision() {
    check(&steady(concurrency()), |case| {
        let mut track = Track::new(&case);
        for step in case.steps {
            track.pass(step.delta);
            let Action::Take(cost) = step.action else { continue };
            let cost = track.cost(cost);
            let mut released = track.clone();
            if let (_, Some(ticket)) = released.enter(cost) {
                released.release(ticket);
            }
            for wait in [Span::ZERO, Span::from_micros(1), track.last.reset_after] {
                for cost in [0, 1, track.last.limit] {
                    let before = track.peek_after(wait, cost);
                    let after = released.peek_after(wait, cost);
                    ensure!(before == after, released, "after {wait} take {cost}: {before:?}");
                }
            }
            let _ = track.take(cost);
        }
        Ok(())
    });
}

/// Admits and releases requests, changes the rule, and admits and releases more.
fn survives_a_change(from_lease: bool, to_lease: bool) {
    let rules = |is_leased: bool| {
        let rule = (concurrency(), span()).prop_map(move |(rule, length)| {
            let (max, _) = numbers(&rule);
            Rule::Concurrency { max, lease: is_leased.then_some(length) }
        });
        rule.boxed()
    };
    check(&(steady(rules(from_lease)), steady(rules(to_lease))), |(before, after)| {
        let mut both = Both::new(&before);
        for step in &before.steps {
            both.track.pass(step.delta);
            both.act(step.action)?;
        }
        both.change(&after.rule);
        both.enter(0)?;
        for step in &after.steps {
            both.track.pass(step.delta);
            both.act(step.action)?;
        }
        Ok(())
    });
}

#[test]
fn a_change_of_the_maximum_keeps_all_requests_in_flight() {
    survives_a_change(false, false);
}

#[test]
fn a_change_of_the_lease_keeps_all_requests_in_flight() {
    survives_a_change(true, true);
}

#[test]
fn a_new_lease_keeps_all_requests_in_flight() {
    survives_a_change(false, true);
}

#[test]
fn a_change_to_no_lease_keeps_all_requests_in_flight() {
    survives_a_change(true, false);
}

//! Refunds (T11): never more than was charged, and an immediate refund leaves the state as if the request had not been.

use crate::check::check_each;
use crate::generate::{Action, steady, unsteady};
use crate::track::{Track, ensure};
use tidegate_conformance::oracle::Rule;
use tidegate_core::Span;

#[test]
fn nothing_is_refunded_above_the_limit() {
    check_each(unsteady, |case| {
        let mut track = Track::new(&case);
        for step in case.steps {
            track.pass(step.delta);
            track.act(step.action);
            track.refund(track.last.limit);
            let refunded = track.peek(0);
            let limit = refunded.limit;
            ensure!(refunded.remaining <= limit, track, "{} remain", refunded.remaining);
            track.refund(u64::MAX);
            let twice = track.peek(0);
            ensure!(twice.remaining <= limit, track, "{} remain", twice.remaining);
            ensure!(twice.remaining >= refunded.remaining, track, "a refund charged something");
        }
        Ok(())
    });
}

#[test]
fn an_immediate_refund_restores_every_later_decision() {
    check_each(steady, |case| {
        // A refund does not cool a warm-up down, and permits are released by their tickets.
        if matches!(case.rule, Rule::Warmup { .. } | Rule::Concurrency { .. }) {
            return Ok(());
        }
        let mut track = Track::new(&case);
        for step in case.steps {
            track.pass(step.delta);
            if let Action::Take(cost) = step.action {
                let cost = track.cost(cost);
                let mut refunded = track.clone();
                if !refunded.take(cost).is_deny() {
                    refunded.refund(cost);
                }
                same_from_now_on(&case.rule, &track, &refunded)?;
            }
            track.act(step.action);
        }
        Ok(())
    });
}

/// Compares the decisions of both about small and large costs, now and later.
fn same_from_now_on(
    rule: &Rule,
    track: &Track,
    refunded: &Track,
) -> proptest::test_runner::TestCaseResult {
    let now = track.peek(1);
    let retry_after = now.retry_after().unwrap_or(Span::ZERO);
    let half = Span::from_micros(now.reset_after.as_micros() / 2);
    let waits = [Span::ZERO, Span::from_micros(1), retry_after, half, now.reset_after];
    for wait in waits {
        // nginx truncates the leak at every request, so only the decisions of this instant are restored.
        if matches!(rule, Rule::Nginx { .. }) && wait > Span::ZERO {
            break;
        }
        for cost in [0, 1, now.limit / 2, now.limit] {
            let (Some(expected), Some(got)) =
                (track.peek_after(wait, cost), refunded.peek_after(wait, cost))
            else {
                continue;
            };
            let same = match rule {
                Rule::Nginx { .. } => expected.remaining == got.remaining,
                _ => expected == got,
            };
            ensure!(same, refunded, "after {wait} take {cost}: {got:?}, but before {expected:?}");
        }
    }
    Ok(())
}

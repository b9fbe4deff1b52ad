//! Rules that change while they are in use (T12), from every algorithm to every other.

use crate::bounds::excess;
use crate::check::check_each;
use crate::generate::{Action, Case, any_rule, steady, steady_without_refunds};
use crate::track::{Track, ensure};
use proptest::test_runner::TestCaseResult;
use tidegate_conformance::oracle::Rule;

/// Returns the key under its old rule after all steps of the case, and the same key under a new rule.
fn changed(case: &Case, rule: &Rule) -> (Track, Track) {
    let mut old = Track::new(case);
    for step in &case.steps {
        old.pass(step.delta);
        old.act(step.action);
    }
    let new = old.taken_over_by(rule);
    (old, new)
}

#[test]
fn after_any_change_no_more_than_the_new_limit_remains() {
    check_each(
        |rules| (steady(rules), any_rule()),
        |(case, rule)| {
            let (old, new) = changed(&case, &rule);
            let fits = new.last.remaining <= new.last.limit;
            ensure!(fits, old, "under {rule}: {:?}", new.last);
            Ok(())
        },
    );
}

#[test]
fn after_any_change_requests_are_denied_no_longer_than_before() {
    check_each(
        |rules| (steady(rules), any_rule()),
        |(case, rule)| {
            let (old, new) = changed(&case, &rule);
            if old.limit.is_concurrency() && new.limit.is_concurrency() {
                // Requests in flight stay in flight, for an unknown time.
                return Ok(());
            }
            let drain = old.peek(0).reset_after;
            let now = new.peek(1);
            let waits = now.retry_after().is_none_or(|wait| wait <= drain);
            ensure!(waits, old, "drained after {drain}, but then under {rule}: {now:?}");
            if let Some(then) = new.peek_after(drain, 1) {
                ensure!(!then.is_deny(), old, "after {drain} under {rule}: {then:?}");
            }
            Ok(())
        },
    );
}

#[test]
fn after_any_change_a_retry_is_admitted_and_the_bounds_hold() {
    check_each(
        |rules| (steady(rules), steady_without_refunds(any_rule())),
        |(case, later)| {
            let (old, mut new) = changed(&case, &later.rule);
            for step in later.steps {
                new.pass(step.delta);
                let Action::Take(cost) = step.action else { continue };
                let cost = new.cost(cost);
                let decision = new.take(cost);
                ensure!(decision.remaining <= decision.limit, new, "changed from\n{old}");
                let Some(wait) = decision.retry_after() else { continue };
                if let Some(then) = new.peek_after(wait, cost) {
                    ensure!(!then.is_deny(), new, "after {wait}: {then:?}; changed from\n{old}");
                }
            }
            // jiff supports a shorter time than the other rules.
            let is_calendar = matches!(later.rule, Rule::Calendar { .. });
            let excess = if is_calendar { None } else { excess(&later.rule, &new.admitted()) };
            ensure!(excess.is_none(), new, "{excess:?}; changed from\n{old}");
            Ok(())
        },
    );
}

#[test]
fn a_raised_limit_admits_at_once() {
    check_each(
        |rules| (steady(rules.clone()), rules),
        |(case, rule)| {
            let (old, new) = changed(&case, &rule);
            // Rules that delay requests keep the debt, as Guava does.
            let waits =
                matches!(rule, Rule::Smooth { .. } | Rule::Warmup { .. } | Rule::Queue { .. });
            if waits || new.last.limit <= old.last.limit {
                return Ok(());
            }
            let decision = new.peek(1);
            ensure!(!decision.is_deny(), old, "under {rule}: {decision:?}");
            Ok(())
        },
    );
}

#[test]
fn a_rule_that_takes_over_from_itself_refunds_nothing() {
    check_each(steady, |case| {
        let rule = case.rule.clone();
        let (old, new) = changed(&case, &rule);
        nothing_is_refunded(&old, &new)
    });
}

fn nothing_is_refunded(old: &Track, new: &Track) -> TestCaseResult {
    let (before, after) = (old.peek(0), new.peek(0));
    let kept = after.remaining <= before.remaining;
    ensure!(kept, old, "{} remained, now {after:?}", before.remaining);
    Ok(())
}

//! Rules that change while they are in use (T12), from every algorithm to every other.

use crate::bounds::excess;
use crate::check::check_each;
use crate::generate::{Action, Case, any_rule, steady, steady_without_refunds};
use crate::track::{Track, ensure};
use proptest::test_runner::TestCaseResult;
use tidegate_conformance::oracle::Rule;

/// The key under its old rule after all that happened, and the same key under a new rule.
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
fn after_any_change_nobody_is_locked_out_for_longer_than_before() {
    check_each(
        |rules| (steady(rules), any_rule()),
        |(case, rule)| {
            let (old, new) = changed(&case, &rule);
            if old.limit.is_concurrency() && new.limit.is_concurrency() {
                // Who is in flight stays in flight, and nobody knows for how long.
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
fn after_any_change_the_answers_keep_their_promises_and_the_bounds_hold() {
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
            // jiff's time ends before that of the other rules.
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
            // Those who make everybody wait keep what is owed, as Guava does.
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
fn a_rule_that_takes_over_from_itself_gives_nothing_back() {
    check_each(steady, |case| {
        let rule = case.rule.clone();
        let (old, new) = changed(&case, &rule);
        nothing_is_given_back(&old, &new)
    });
}

fn nothing_is_given_back(old: &Track, new: &Track) -> TestCaseResult {
    let (before, after) = (old.peek(0), new.peek(0));
    let kept = after.remaining <= before.remaining;
    ensure!(kept, old, "{} remained, now {after:?}", before.remaining);
    Ok(())
}

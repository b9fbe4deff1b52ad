//! The promises of every decision, whatever the algorithm (T06, T09).

use crate::check::check_each;
use crate::generate::{Action, Case, steady, unsteady};
use crate::track::{Track, ensure, limit};
use proptest::test_runner::TestCaseResult;
use tidegate_conformance::oracle::{ExpectedDecision, Rule};
use tidegate_core::{Decision, Limit, Retry, Span, Verdict};

const US: Span = Span::from_micros(1);

#[test]
fn waiting_exactly_retry_after_is_admitted_and_one_microsecond_less_is_not() {
    check_each(steady, retry_after_is_exact);
}

#[test]
fn retry_after_is_exact_also_after_the_clock_was_set_back() {
    check_each(unsteady, retry_after_is_exact);
}

fn retry_after_is_exact(case: Case) -> TestCaseResult {
    let mut track = Track::new(&case);
    for step in case.steps {
        track.pass(step.delta);
        let Action::Take(cost) = step.action else {
            track.act(step.action);
            continue;
        };
        let cost = track.cost(cost);
        let Some(wait) = track.take(cost).retry_after() else { continue };
        ensure!(wait > Span::ZERO, track, "denied with a retry after 0");
        if let Some(then) = track.peek_after(wait, cost) {
            ensure!(!then.is_deny(), track, "after {wait} still denied: {:?}", then.verdict);
            let earlier = track.peek_after(wait.saturating_sub(US), cost);
            let is_denied = earlier.is_some_and(|decision| decision.is_deny());
            ensure!(is_denied, track, "retry after {wait}, but less is enough");
        }
    }
    Ok(())
}

#[test]
fn retry_after_is_exact_for_a_request_with_a_longest_wait() {
    let cases = |rules| (steady(rules), 0_u64..1_500);
    check_each(cases, |(case, thousandths)| retry_within_is_exact(case, thousandths));
}

/// As above, for requests that accept only a part of the wait.
fn retry_within_is_exact(case: Case, thousandths: u64) -> TestCaseResult {
    let mut track = Track::new(&case);
    for step in case.steps {
        track.pass(step.delta);
        let Action::Take(cost) = step.action else { continue };
        let cost = track.cost(cost);
        let wait_max = track.part_of_reset(thousandths);
        let decide_after = |wait: Span| {
            let (mut state, now) = (track.state.clone(), track.now + wait);
            track.limit.decide_within(&mut state, now, cost, wait_max)
        };
        // A wait that saturates does not get shorter.
        let is_endless = track.peek(cost).into_result() == Ok(Span::MAX);
        if let Some(wait) = decide_after(Span::ZERO).retry_after()
            && track.peek_after(wait, cost).is_some()
            && !is_endless
        {
            let then = decide_after(wait);
            ensure!(
                !then.is_deny(),
                track,
                "take {cost} within {wait_max}: after {wait} still denied: {:?}",
                then.verdict
            );
            ensure!(
                decide_after(wait.saturating_sub(US)).is_deny(),
                track,
                "take {cost} within {wait_max}: retry after {wait}, but less is enough"
            );
        }
        let _ = track.take(cost);
    }
    Ok(())
}

#[test]
fn peek_returns_what_decide_returns_and_changes_nothing() {
    check_each(unsteady, |case| {
        let mut track = Track::new(&case);
        for step in case.steps {
            track.pass(step.delta);
            if let Action::Take(cost) = step.action {
                let cost = track.cost(cost);
                let peeked = track.peek(cost);
                ensure!(track.peek(cost) == peeked, track, "peek changed peek({cost})");
                let decided = track.take(cost);
                ensure!(peeked == decided, track, "peek returned {peeked:?}");
            } else {
                track.act(step.action);
            }
        }
        Ok(())
    });
}

#[test]
fn a_cost_of_zero_is_never_denied_and_changes_no_later_decision() {
    check_each(steady, |case| {
        let mut asked = Track::new(&case);
        let mut alone = asked.clone();
        for step in case.steps {
            alone.pass(step.delta);
            asked.now = alone.now;
            let nothing = asked.take(0);
            ensure!(nothing.is_allow(), asked, "a cost of zero is not simply allowed");
            match step.action {
                Action::Take(cost) => {
                    let cost = alone.cost(cost);
                    let (expected, got) = (alone.take(cost), asked.take(cost));
                    let same = are_same(&case.rule, expected, got);
                    ensure!(same, asked, "without the zeros it is {expected:?}");
                }
                Action::Refund(cost) => {
                    let cost = alone.cost(cost);
                    alone.refund(cost);
                    asked.refund(cost);
                }
            }
        }
        Ok(())
    });
}

/// Compares two decisions. A warm-up counts in floating point: two updates may differ from one in the last bit, and so by a
/// microsecond.
fn are_same(rule: &Rule, left: Decision, right: Decision) -> bool {
    if !matches!(rule, Rule::Warmup { .. }) {
        return left == right;
    }
    let wait = |decision: Decision| decision.into_result().unwrap_or(Span::MAX);
    is_about(wait(left), wait(right)) && is_about(left.reset_after, right.reset_after)
}

pub(crate) fn is_about(left: Span, right: Span) -> bool {
    let (left, right) = (left.as_micros(), right.as_micros());
    left.abs_diff(right) <= 2 + left / (1 << 40)
}

#[test]
fn a_denied_request_changes_no_later_decision() {
    check_each(steady, |case| {
        let mut asked = Track::new(&case);
        let mut spared = asked.clone();
        for step in case.steps {
            asked.pass(step.delta);
            spared.now = asked.now;
            match step.action {
                Action::Take(cost) => {
                    let cost = asked.cost(cost);
                    let expected = spared.peek(cost);
                    if !expected.is_deny() {
                        let _ = spared.take(cost);
                    }
                    let got = asked.take(cost);
                    let same = ExpectedDecision::from(got) == ExpectedDecision::from(expected);
                    ensure!(same, asked, "without the denied requests it is {expected:?}");
                }
                Action::Refund(cost) => {
                    let cost = asked.cost(cost);
                    asked.refund(cost);
                    spared.refund(cost);
                }
            }
        }
        Ok(())
    });
}

#[test]
fn exactly_the_remaining_cost_is_admitted_at_once() {
    check_each(steady, |case| {
        let mut track = Track::new(&case);
        for step in case.steps {
            track.pass(step.delta);
            track.act(step.action);
            remaining_is_exact(&case.rule, &track)?;
        }
        Ok(())
    });
}

fn remaining_is_exact(rule: &Rule, track: &Track) -> TestCaseResult {
    let mut track = track.clone();
    let remaining = track.take(0).remaining;
    // Two permits within a microsecond cannot be distinguished.
    if matches!(rule, Rule::Warmup { rate, .. } if rate.count > rate.period.as_micros()) {
        return Ok(());
    }
    // A few requests one by one, or all but the last unit at once; then one unit too many.
    let mut left = remaining;
    while left > 0 {
        let cost = if left > 8 { left - 1 } else { 1 };
        let decision = track.take(cost);
        ensure!(is_admitted(rule, decision), track, "{remaining} should remain");
        left -= cost;
    }
    let decision = track.take(1);
    ensure!(!is_admitted(rule, decision), track, "only {remaining} should remain");
    Ok(())
}

/// Returns whether a request passes or, under rules that never deny, passes at once.
fn is_admitted(rule: &Rule, decision: Decision) -> bool {
    if rule.is_paid_by_the_next() { decision.is_allow() } else { !decision.is_deny() }
}

/// Guava's rules, under which the next request waits for the cost of this one. They never deny.
trait PaidByTheNext {
    fn is_paid_by_the_next(&self) -> bool;
}

impl PaidByTheNext for Rule {
    fn is_paid_by_the_next(&self) -> bool {
        matches!(self, Self::Smooth { .. } | Self::Warmup { .. })
    }
}

#[test]
fn a_cost_above_the_limit_is_denied_without_a_retry() {
    check_each(unsteady, |case| {
        let mut track = Track::new(&case);
        for step in case.steps {
            track.pass(step.delta);
            track.act(step.action);
            if case.rule.is_paid_by_the_next() {
                ensure!(!track.last.is_deny(), track, "this rule never denies");
                continue;
            }
            // A queue with a short wait admits fewer requests of cost 1 than its capacity.
            let most = match case.rule {
                Rule::Queue { capacity, .. } => capacity + 1,
                _ => track.last.limit,
            };
            for cost in [most.saturating_add(1), u64::MAX] {
                let never = Verdict::Deny(Retry::Never);
                ensure!(
                    track.peek(cost).verdict == never,
                    track,
                    "{cost} is not denied without a retry"
                );
            }
            let possible = track.peek(most).verdict != Verdict::Deny(Retry::Never);
            ensure!(possible, track, "{most} should be possible");
        }
        Ok(())
    });
}

#[test]
fn the_key_has_recovered_after_reset_after_and_not_earlier() {
    check_each(steady, |case| {
        // Guava's rules start with no saved permits, so a recovered key differs from a new one.
        if case.rule.is_paid_by_the_next() {
            return Ok(());
        }
        let new = recovered(&case.rule);
        let mut track = Track::new(&case);
        for step in case.steps {
            track.pass(step.delta);
            track.act(step.action);
            let reset_after = track.peek(0).reset_after;
            for cost in [0, 1, track.last.limit] {
                let Some(then) = track.peek_after(reset_after, cost) else { continue };
                let as_new = new.peek(&new.fresh(track.now), track.now, cost);
                let same = then.remaining == as_new.remaining && then.verdict == as_new.verdict;
                ensure!(same, track, "after {reset_after} {then:?}, but a new one {as_new:?}");
            }
            let earlier = track.peek_after(reset_after.saturating_sub(US), 0);
            let is_early = earlier.is_none_or(|then| then.reset_after == reset_after.min(US));
            ensure!(is_early, track, "reset after {reset_after}, but just before {earlier:?}");
        }
        Ok(())
    });
}

/// Returns the limit whose new keys equal recovered keys of this rule.
fn recovered(rule: &Rule) -> Limit {
    match *rule {
        // A bucket may start empty, and recovers to a full one.
        Rule::TokenBucket { rate, burst, .. } => {
            limit(&Rule::TokenBucket { rate, burst, starts_empty: false }.to_string())
        }
        _ => limit(&rule.to_string()),
    }
}

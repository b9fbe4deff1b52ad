//! Clocks that step (T22): after a step back, requests are denied no longer than the rule itself could deny them. A step forward
//! admits at most one burst.

use crate::check::check_each;
use crate::generate::{Case, unsteady};
use crate::track::{Track, ensure};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;
use tidegate_conformance::oracle::{Rate, Rule};
use tidegate_core::{Decision, Retry, Span, Timestamp, Verdict};

#[test]
fn after_a_step_back_requests_wait_no_longer_than_the_rule_could_make_them() {
    check_each(unsteady, |case| each_step_back(case, lock_out_is_bounded));
}

#[test]
fn a_step_back_frees_nothing() {
    check_each(unsteady, |case| {
        // The weight of two counters depends on the time in the window, which a step back may increase.
        if matches!(case.rule, Rule::Sliding { .. }) {
            return Ok(());
        }
        each_step_back(case, |_, before, track| {
            let (before, after) = (before.peek(0).remaining, track.peek(0).remaining);
            ensure!(after <= before, track, "{before} remained before the step, now {after} do");
            Ok(())
        })
    });
}

/// Calls `claim` with the key as it was and as it is, after every step back.
fn each_step_back(
    case: Case,
    claim: impl Fn(&Rule, &Track, &Track) -> TestCaseResult,
) -> TestCaseResult {
    let mut track = Track::new(&case);
    for step in case.steps {
        let then = track.now;
        track.pass(step.delta);
        if track.now < then {
            let mut before = track.clone();
            before.now = then;
            claim(&case.rule, &before, &track)?;
        }
        track.act(step.action);
    }
    Ok(())
}

fn lock_out_is_bounded(rule: &Rule, before: &Track, track: &Track) -> TestCaseResult {
    let Some(drain) = lock_out_max(rule, before, track) else { return Ok(()) };
    let cost_max = match rule {
        Rule::Queue { capacity, .. } => capacity + 1,
        Rule::Smooth { .. } | Rule::Warmup { .. } => 1,
        _ => track.last.limit,
    };
    for cost in [1, cost_max] {
        let mut asked = track.clone();
        let wait = wait_of(asked.take(cost));
        let most = if tolerates_skew(rule) { drain + clock_skew(drain) } else { drain };
        ensure!(wait <= most, asked, "waits {wait}, more than {most}");
    }
    Ok(())
}

fn wait_of(decision: Decision) -> Span {
    match decision.verdict {
        Verdict::Allow | Verdict::Deny(Retry::Never | Retry::OnRelease) => Span::ZERO,
        Verdict::Wait(wait) | Verdict::Deny(Retry::After(wait)) => wait,
    }
}

/// Additional wait because of a tolerated step of the clock: at most a millisecond.
fn clock_skew(drain: Span) -> Span {
    drain.min(Span::from_millis(1))
}

/// Returns whether a short step back does not change the state, so that a denial lasts longer by that step.
fn tolerates_skew(rule: &Rule) -> bool {
    match rule {
        Rule::TokenBucket { .. }
        | Rule::Leaky { .. }
        | Rule::Queue { .. }
        | Rule::SlidingLog { .. }
        | Rule::Concurrency { .. }
        | Rule::Fixed { .. }
        | Rule::Calendar { .. }
        | Rule::Sliding { .. }
        | Rule::Nginx { .. } => true,
        Rule::Smooth { .. } | Rule::Warmup { .. } => false,
    }
}

/// Returns the longest wait under this rule without steps of the clock.
fn lock_out_max(rule: &Rule, before: &Track, track: &Track) -> Option<Span> {
    Some(match *rule {
        Rule::TokenBucket { rate, burst, .. } => time_for(rate, burst),
        Rule::Leaky { rate, capacity } => time_for(rate, capacity),
        Rule::Queue { rate, capacity, .. } => time_for(rate, capacity + 1),
        Rule::Fixed { rate, .. } | Rule::SlidingLog { rate } => rate.period,
        Rule::Sliding { rate } => rate.period + rate.period,
        Rule::Calendar { .. } => {
            let window = track.limit.window(&track.state, track.now)?;
            window.end.since(window.start)
        }
        // Their states contain the time of the latest decision, so the debt of that time is kept.
        Rule::Smooth { .. } | Rule::Warmup { .. } => wait_of(before.peek(1)),
        Rule::Concurrency { lease, .. } => lease?,
        Rule::Nginx { count, per_second, burst, .. } => {
            let rate = u128::from(count) * 1_000 / if per_second { 1 } else { 60 };
            let ms = ((u128::from(burst) + 1) * 1_000_000).div_ceil(rate);
            Span::from_millis(u64::try_from(ms).unwrap_or(u64::MAX))
        }
    })
}

fn time_for(rate: Rate, units: u64) -> Span {
    let us = u128::from(units) * u128::from(rate.period.as_micros());
    let us = us.div_ceil(u128::from(rate.count));
    Span::from_micros(u64::try_from(us).unwrap_or(u64::MAX))
}

const STEPS_S: [i64; 6] = [-31_536_000, -3_600, -1, 1, 3_600, 315_360_000];

#[test]
fn a_step_forward_admits_at_most_one_burst() {
    let steps_ms = || {
        let ms = prop::sample::select(STEPS_S.to_vec()).prop_map(|s| s * 1_000);
        vec(prop_oneof![6 => ms, 1 => Just(-1)], 1..20)
    };
    check_each(
        |rules| (rules, steps_ms()),
        |(rule, steps_ms)| each_step_gives_a_burst(rule, &steps_ms),
    );
}

fn each_step_gives_a_burst(rule: Rule, steps_ms: &[i64]) -> TestCaseResult {
    // Two permits within a microsecond cannot be distinguished.
    if matches!(rule, Rule::Warmup { rate, .. } if rate.count > rate.period.as_micros()) {
        return Ok(());
    }
    let case = Case { rule, birth: Timestamp::EPOCH, steps: Vec::new() };
    let mut track = Track::new(&case);
    // Long after the epoch, so that the clock can step back.
    track.now = track.now + Span::from_secs(315_360_000);
    let mut bursts: u128 = 1;
    let mut taken = take_all(&case.rule, &mut track)?;
    for ms in steps_ms {
        let step = Span::from_millis(ms.unsigned_abs());
        track.now = if *ms < 0 { track.now - step } else { track.now + step };
        // Two counters may admit more after a step back, too; see above.
        bursts += u128::from(*ms > 0 || matches!(case.rule, Rule::Sliding { .. }));
        taken += take_all(&case.rule, &mut track)?;
        let most = bursts * burst(&case.rule, &track);
        ensure!(taken <= most, track, "{taken} taken, at most {most} should be");
    }
    Ok(())
}

fn burst(rule: &Rule, track: &Track) -> u128 {
    let on_credit = matches!(rule, Rule::Smooth { .. });
    u128::from(track.last.limit) + u128::from(on_credit)
}

/// Charges as much as is admitted at this instant.
fn take_all(rule: &Rule, track: &mut Track) -> Result<u128, TestCaseError> {
    let remaining = track.take(0).remaining;
    let mut taken = u128::from(remaining);
    if remaining > 0 {
        ensure!(!track.take(remaining).is_deny(), track, "{remaining} should remain");
    }
    let credit = track.take(1);
    if matches!(rule, Rule::Smooth { .. }) && credit.is_allow() {
        taken += 1;
        ensure!(!track.peek(1).is_allow(), track, "one request passes on credit");
    } else if !matches!(rule, Rule::Warmup { .. }) {
        ensure!(!credit.is_allow(), track, "only {remaining} should remain");
    }
    Ok(taken)
}

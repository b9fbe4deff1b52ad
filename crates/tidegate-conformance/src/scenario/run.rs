//! Runs a scenario against an implementation, and reports the lines that fail.

use super::{Action, Expect, Scenario, Step, round};
use crate::implementation::{Implementation, PartialDecision, Refusal, TakeRequest, Target};
use std::fmt;
use tidegate_core::{Span, Timestamp, Window};

/// The result of a scenario.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScenarioResult {
    /// Every decision was as expected.
    Passed,
    /// The implementation does not support a request of the scenario.
    Skipped(&'static str),
    /// These lines failed.
    Failed(Vec<Breach>),
}

/// A line whose decision was not as expected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Breach {
    place: String,
    text: String,
    /// Which repetition it was, if there are several.
    nth: Option<usize>,
    what: String,
}

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nth = self.nth.map_or_else(String::new, |nth| format!(", number {nth}"));
        write!(f, "{}: `{}`{nth}\n    {}", self.place, self.text, self.what)
    }
}

/// Runs a scenario, and continues after a line that fails.
pub fn run(scenario: &Scenario, implementation: &mut dyn Implementation) -> ScenarioResult {
    let rules: Vec<&str> = scenario.rules.iter().map(String::as_str).collect();
    match implementation.begin(&rules, scenario.start) {
        Ok(()) => {}
        Err(Refusal::Unsupported(what)) => return ScenarioResult::Skipped(what),
        Err(Refusal::Failed(what)) => {
            let place = format!("{}:{}", scenario.page, scenario.line);
            let text = format!("limit {}", rules.join(", "));
            return ScenarioResult::Failed(vec![Breach { place, text, nth: None, what }]);
        }
    }
    let mut breaches = Vec::new();
    for step in &scenario.steps {
        let broken = match (0..step.times).find_map(|index| take_step(implementation, step, index))
        {
            None => continue,
            // Lines that failed before count, also if the rest is unsupported.
            Some(Failed { refusal: Refusal::Unsupported(what), .. }) if breaches.is_empty() => {
                return ScenarioResult::Skipped(what);
            }
            Some(Failed { refusal: Refusal::Unsupported(_), .. }) => break,
            Some(broken) => broken,
        };
        breaches.push(Breach {
            place: format!("{}:{}", scenario.page, step.line),
            text: step.text.clone(),
            nth: (step.times > 1).then_some(broken.index + 1),
            what: broken.refusal.to_string(),
        });
    }
    if breaches.is_empty() { ScenarioResult::Passed } else { ScenarioResult::Failed(breaches) }
}

struct Failed {
    index: usize,
    refusal: Refusal,
}

/// Performs one repetition of a step; returns `None` if the decision is as expected.
fn take_step(implementation: &mut dyn Implementation, step: &Step, index: usize) -> Option<Failed> {
    let nth = u64::try_from(index).unwrap_or(u64::MAX);
    let now = step.at + Span::from_micros(step.every.as_micros().saturating_mul(nth));
    let done = act(implementation, step, index, now);
    done.err().map(|refusal| Failed { index, refusal })
}

fn act(
    implementation: &mut dyn Implementation,
    step: &Step,
    index: usize,
    now: Timestamp,
) -> Result<(), Refusal> {
    let on = Target { limit: step.limit, key: &step.key };
    let is_last = index + 1 == step.times;
    let precision = implementation.precision();
    let compare =
        |expect, index, is_last, answer| compare(expect, precision, (index, is_last), answer);
    match &step.action {
        Action::Take(ask, expect) => {
            compare(expect, index, is_last, implementation.take(now, on, *ask)?)
        }
        Action::TakeAll(cost, expect) => {
            compare(expect, index, is_last, implementation.take_all(now, &step.key, *cost)?)
        }
        Action::Peek(cost, expect) => {
            compare(expect, index, is_last, implementation.peek(now, on, *cost)?)
        }
        Action::Refund(cost) => implementation.refund(now, on, *cost),
        Action::Release(cost) => implementation.release(now, on, *cost),
        Action::Reset => implementation.reset(now, on),
        Action::Change(rule) => implementation.change(now, step.limit, rule),
        Action::Window(expected) => match implementation.window(now, on) {
            Err(Refusal::Unsupported(_)) => same_end(*expected, now, implementation, on),
            window => same_window(*expected, window?),
        },
    }
}

fn compare(
    expect: &Expect,
    precision: Span,
    (index, is_last): (usize, bool),
    answer: PartialDecision,
) -> Result<(), Refusal> {
    let mut wrong = Vec::new();
    let mut differs = |what: &str, expected: String, got: String| {
        wrong.push(format!("{what}: expected {expected}, got {got}"));
    };
    let verdict = expect.verdicts.get(index).or(expect.verdicts.last());
    let verdict = verdict.map(|expected| expected.rounded(precision));
    if let Some(expected) = verdict.filter(|expected| !expected.is_met_by(answer.verdict)) {
        differs("verdict", expected.to_string(), answer.verdict.to_string());
    }
    if is_last {
        for (what, expected, got) in [
            ("limit", expect.limit, answer.limit),
            ("remaining", expect.remaining, answer.remaining),
        ] {
            if let (Some(expected), Some(got)) = (expected, got)
                && expected != got
            {
                differs(what, expected.to_string(), got.to_string());
            }
        }
        let reset_after = expect.reset_after.map(|reset| round(reset, precision));
        if let (Some(expected), Some(got)) = (reset_after, answer.reset_after)
            && expected != got
        {
            differs("reset", expected.to_string(), got.to_string());
        }
    }
    if wrong.is_empty() { Ok(()) } else { Err(Refusal::Failed(wrong.join("; "))) }
}

/// A key that no scenario uses.
const PROBE_KEY: &str = "a key to find out when the window ends";

/// Checks the end of a window for an implementation that does not report windows: a key that has used anything is in
/// its initial state at the end of the window or, where the previous window counts too (`sliding`), of the next one.
fn same_end(
    expected: Option<Window>,
    now: Timestamp,
    implementation: &mut dyn Implementation,
    on: Target<'_>,
) -> Result<(), Refusal> {
    let Some(expected) = expected else { return Ok(()) };
    let mut end = implementation.peek(now, on, 0)?.reset_after;
    if end.is_none_or(Span::is_zero) {
        let on = Target { key: PROBE_KEY, ..on };
        end = implementation.take(now, on, TakeRequest { cost: 1, wait_max: None })?.reset_after;
    }
    let next = expected.end + expected.end.since(expected.start);
    let ends = [expected.end, next].map(|at| round(at.since(now), implementation.precision()));
    if end.is_some_and(|end| ends.contains(&end)) {
        return Ok(());
    }
    Err(Refusal::Failed(format!("the window ends after {}, got {end:?}", ends[0])))
}

fn same_window(expected: Option<Window>, got: Option<Window>) -> Result<(), Refusal> {
    if expected == got {
        return Ok(());
    }
    let show = |window: Option<Window>| {
        window.map_or_else(
            || "none".to_owned(),
            |window| format!("{}..{}", utc(window.start), utc(window.end)),
        )
    };
    Err(Refusal::Failed(format!("window: expected {}, got {}", show(expected), show(got))))
}

fn utc(at: Timestamp) -> String {
    let instant = i64::try_from(at.as_micros())
        .ok()
        .and_then(|us| jiff::Timestamp::from_microsecond(us).ok());
    instant.map_or_else(|| format!("{at:?}"), |instant| instant.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::implementation::Core;
    use crate::scenario::read_page;

    fn result(body: &str) -> ScenarioResult {
        let page = format!("```scenario\n{body}\n```\n");
        run(&read_page("p.md", &page).unwrap()[0], &mut Core::default())
    }

    fn breaches(body: &str) -> Vec<String> {
        match result(body) {
            ScenarioResult::Failed(breaches) => breaches.iter().map(ToString::to_string).collect(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn numbers_that_are_not_written_are_not_checked() {
        assert_eq!(
            result("limit 1/s\nat 0s take 1 allow\nat 0s take 1 deny"),
            ScenarioResult::Passed
        );
    }

    #[test]
    fn every_number_that_is_written_is_checked() {
        let body = "limit 2/s\nat 0s take 1 allow limit 3 remaining 2 reset 1s\n\
                    at 0s take 2 deny retry 1s\nat 0s window none";
        assert_eq!(
            breaches(body),
            [
                "p.md:3: `at 0s take 1 allow limit 3 remaining 2 reset 1s`\n    limit: expected 3, \
                 got 2; remaining: expected 2, got 1; reset: expected 1s, got 500ms",
                "p.md:4: `at 0s take 2 deny retry 1s`\n    verdict: expected deny retry 1s, got \
                 deny retry 500ms",
            ]
        );
    }

    #[test]
    fn a_failure_names_the_repetition() {
        let body = "limit 2/s\nat 0s take 1 x3 allow\nat 9s every 1us take 1 +++";
        assert_eq!(
            breaches(body),
            [
                "p.md:3: `at 0s take 1 x3 allow`, number 3\n    verdict: expected allow, got deny \
                 retry 500ms",
                "p.md:4: `at 9s every 1us take 1 +++`, number 3\n    verdict: expected allow, got \
                 deny retry 499998us",
            ]
        );
    }

    #[test]
    fn a_window_is_shown_as_instants() {
        let body = "limit 1/min fixed\nat 0s window 0s..30s";
        assert_eq!(
            breaches(body),
            ["p.md:3: `at 0s window 0s..30s`\n    window: expected \
              2024-01-01T00:00:00Z..2024-01-01T00:00:30Z, got \
              2024-01-01T00:00:00Z..2024-01-01T00:01:00Z"]
        );
    }

    #[test]
    fn an_unknown_time_zone_fails_at_the_start_of_the_scenario() {
        let breaches = breaches("limit 1/day calendar in Mars/Olympus\nat 0s take 1 allow");
        assert!(breaches[0].starts_with("p.md:1: `limit 1/day calendar in Mars/Olympus`"));
    }

    #[test]
    fn a_release_without_a_held_permit_fails() {
        let body = "limit concurrency 1\nat 0s release 1";
        assert_eq!(
            breaches(body),
            ["p.md:3: `at 0s release 1`\n    no request of cost 1 is in flight"]
        );
    }
}

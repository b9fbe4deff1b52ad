//! The scenario language: what it accepts, and its errors.

use super::*;
use crate::scenario::read_page;

fn read(body: &str) -> std::result::Result<Scenario, ScenarioError> {
    let page = format!("```scenario\n{body}\n```\n");
    read_page("p.md", &page).map(|mut scenarios| scenarios.remove(0))
}

fn error(body: &str) -> String {
    read(body).unwrap_err().to_string()
}

/// Returns the error in this line, which follows a limit.
fn wrong(line: &str) -> String {
    let error = error(&format!("limit 1/s\n{line}"));
    error.strip_prefix("p.md:3: ").unwrap_or_else(|| panic!("{error}")).to_owned()
}

fn step(line: &str) -> Step {
    read(&format!("limit 1/s\n{line}")).unwrap().steps.remove(0)
}

#[test]
fn a_complete_scenario_is_parsed() {
    let body = "start 1970-01-01T00:00:01Z  # a comment\n\nlimit 2/s burst 3\n\
                at 5ms  key alice take 2 within 1s deny retry 1us remaining 4 reset 2s limit 3";
    let scenario = read(body).unwrap();
    assert_eq!(scenario.start, Timestamp::from_micros(1_000_000));
    assert_eq!(scenario.rules, ["2/s burst 3"]);
    let expect = Expect {
        verdicts: vec![Expected::Deny(Some(Retry::After(Span::from_micros(1))))],
        limit: Some(3),
        remaining: Some(4),
        reset_after: Some(Span::from_secs(2)),
    };
    let ask = TakeRequest { cost: 2, wait_max: Some(Span::from_secs(1)) };
    let step = &scenario.steps[0];
    assert_eq!(step.action, Action::Take(ask, expect));
    assert_eq!((step.line, step.key.as_str(), step.limit, step.times), (5, "alice", 0, 1));
    assert_eq!(step.at, Timestamp::from_micros(1_005_000));
}

#[test]
fn a_row_of_marks_is_a_row_of_verdicts() {
    let step = step("at 0s every 2ms take 1 +-~");
    let Action::Take(_, expect) = step.action else { panic!("{step:?}") };
    assert_eq!(expect.verdicts, [Expected::Allow, Expected::Deny(None), Expected::Wait(None)]);
    assert_eq!((step.times, step.every), (3, Span::from_millis(2)));
}

#[test]
fn a_step_names_one_of_several_limits_or_takes_all() {
    let limits = "limit second 100/s\nlimit short 2/10ms\n";
    let asked = |line: &str| read(&format!("{limits}{line}")).map(|mut s| s.steps.remove(0));
    assert_eq!(asked("at 0s limit short peek 1 allow").unwrap().limit, 1);
    assert!(matches!(asked("at 0s take all 1 allow").unwrap().action, Action::TakeAll(1, _)));
    assert_eq!(
        asked("at 0s take 1 allow").unwrap_err().to_string(),
        "p.md:4: which limit? Expected `limit` and a name, one of second, short"
    );
    assert_eq!(
        asked("at 0s limit long take 1 allow").unwrap_err().to_string(),
        "p.md:4: there is no limit `long`: expected second, short"
    );
    assert_eq!(
        asked("at 0s limit short take all 1 allow").unwrap_err().to_string(),
        "p.md:4: `take all` asks every limit, not one"
    );
}

#[test]
fn every_other_action_is_parsed() {
    assert_eq!(step("at 0s refund 2 x3").action, Action::Refund(2));
    assert_eq!(step("at 0s release 1 x3").times, 3);
    assert_eq!(step("at 0s reset").action, Action::Reset);
    assert_eq!(step("at 0s change 5/s burst 9").action, Action::Change("5/s burst 9".to_owned()));
    assert_eq!(step("at 0s window none").action, Action::Window(None));
    let Action::Window(Some(window)) = step("at 0s window 0s..1s").action else { panic!() };
    assert_eq!(window.end.since(window.start), Span::from_secs(1));
}

#[test]
fn a_verdict_is_needed() {
    assert_eq!(
        wrong("at 0s take 1"),
        "the line ends here: expected allow, wait, deny, or a row of `+`, `-` and `~`"
    );
    assert_eq!(
        wrong("at 0s peek 1 remaining 2"),
        "unknown word `remaining`: expected allow, wait, deny, or a row of `+`, `-` and `~`"
    );
}

#[test]
fn the_error_of_an_unknown_word_lists_the_known_ones() {
    assert_eq!(
        wrong("at 0s grab 1 allow"),
        "unknown word `grab`: expected take, peek, refund, release, reset, change or window"
    );
    assert_eq!(wrong("when 0s"), "unknown word `when`: expected start, limit or at");
    assert_eq!(
        wrong("at 0s take 1 allow remains 2"),
        "unknown word `remains`: expected limit, remaining, reset, or nothing"
    );
    assert_eq!(wrong("at 0s reset 2"), "unknown word `2`: expected nothing more");
    assert_eq!(
        wrong("at 0s take one allow"),
        "unknown word `one`: expected the cost as a whole number"
    );
    assert_eq!(wrong("at 0s take 1 allow remaining 1 remaining 1"), "`remaining` is written twice");
    assert_eq!(wrong("at 0s key"), "the line ends here: expected a value for `key`");
}

#[test]
fn times_must_be_times() {
    assert!(wrong("at soon take 1 allow").starts_with("`soon` is not a time"));
    assert!(wrong("at 1m take 1 allow").starts_with("unknown unit `m`"));
    assert!(wrong("at 2024-13-01T00:00:00Z take 1 allow").contains("is not an instant"));
    assert_eq!(wrong("at 0s window 1s..1s"), "`1s..1s` ends before it begins");
    assert!(wrong("at 0s window 1s").starts_with("unknown word `1s`: expected a window"));
}

#[test]
fn repetitions_are_counted_and_bounded() {
    assert_eq!(step("at 0s take 1 x100000 allow").times, TIMES_MAX);
    let expected = "`x100001` is not a number of times from x1 to x100000";
    assert_eq!(wrong("at 0s take 1 x100001 allow"), expected);
    assert!(wrong("at 0s take 1 x0 allow").starts_with("`x0` is not"));
    assert!(wrong("at 0s take 1 x2 ++").starts_with("a row already gives the number"));
    assert!(wrong("at 0s every 1s take 1 allow").starts_with("`every` needs a number of times"));
}

#[test]
fn the_error_of_an_invalid_rule_shows_the_position() {
    assert_eq!(
        error("limit 5/d\nat 0s take 1 allow"),
        "p.md:2: unknown unit `d`: did you mean `day`?\n  5/d\n    ^"
    );
    assert!(wrong("at 0s change").starts_with("a rule is needed"));
}

#[test]
fn the_parts_must_come_in_order() {
    assert!(error("at 0s take 1 allow").contains("a limit is needed first"));
    assert!(error("limit 1/s").starts_with("p.md:1: nothing happens in this scenario"));
    assert!(error("limit 1/s\nstart 2024-01-01T00:00:00Z").contains("must come first, and once"));
    assert!(error("limit 1/s\nlimit 2/s").contains("several limits need a name each"));
    assert!(error("limit a 1/s\nlimit a 2/s").contains("two limits have the same name"));
    assert!(error("limit 1/s\nat 0s reset\nlimit b 1/s").contains("before the first `at`"));
}

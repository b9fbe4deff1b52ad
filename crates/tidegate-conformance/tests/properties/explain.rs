//! The numbers in an explanation are those of the limit.

use crate::check::check;
use crate::generate::any_rule;
use crate::track::limit;
use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;
use tidegate_conformance::oracle::{From, Rule};
use tidegate_core::{Limit, Span, Timestamp, Verdict};

/// A Monday at midnight, at which every window starts, except one with an anchor.
const START: Timestamp = Timestamp::from_micros(1_704_067_200_000_000);

const EXPLAINED: [(&str, &str); 10] = [
    ("7/min", "admits 7 at once, then one every 1min/7; at most 14 in any 60s"),
    ("1/30min fixed", "admits 1 in every 30min of the clock; up to 2 around an edge"),
    (
        "1/30min fixed from first",
        "admits 1 in the 30min after a first request; never 2 in any 30min",
    ),
    ("5/s fixed from first", "admits 5 in the 1s after a first request; up to 9 around an edge"),
    (
        "1/36525day calendar",
        "`36525day` is not one unit of the calendar: min, h, day, week, month or year",
    ),
    ("1/36525day sliding-log", "admits 1 at once, and never more than 1 in any 36525day"),
    (
        "10r/s burst=20",
        "admits 1 at once, makes the next 20 wait their turn, then one every 100ms; denies the rest, as nginx does",
    ),
    ("7r/m", "admits 1 at once, then one every 8620690us; denies the rest, as nginx does"),
    ("10000000r/s", "admits 1 at once, then one every 1s/10000000; denies the rest, as nginx does"),
    (
        "9999999999r/m nodelay",
        "admits 1 at once, then one every 1000s/166666666650; denies the rest, as nginx does",
    ),
];

#[test]
fn a_rule_is_explained_in_a_sentence() {
    for (text, expected) in EXPLAINED {
        let explained = text
            .parse::<tidegate_core::ParsedRule>()
            .map_or_else(|error| error.message(), |rule| rule.explain());
        assert_eq!(explained, *expected, "{text}");
    }
}

#[test]
fn the_limit_behaves_as_its_explanation_says() {
    check(&any_rule(), |rule| {
        let limit = limit(&rule.to_string());
        let explained = limit.rule().explain();
        at_once(&rule, &limit, &explained)?;
        one_every(&rule, &limit, &explained)?;
        around_an_edge(&rule, &limit, &explained)
    });
}

/// Returns the word after `words`.
fn after<'t>(explained: &'t str, words: &str) -> Option<&'t str> {
    explained.split_once(words)?.1.split([' ', ',', ';']).next()
}

/// Checks `admits N at once` and `admits N in …`.
fn at_once(rule: &Rule, limit: &Limit, explained: &str) -> TestCaseResult {
    let Some(Ok(count)) = after(explained, "admits ").map(str::parse::<u64>) else { return Ok(()) };
    let state = limit.fresh(START);
    if matches!(rule, Rule::TokenBucket { starts_empty: true, .. }) {
        prop_assert_eq!(count, limit.peek(&state, START, 0).limit, "{}", explained);
        return Ok(());
    }
    prop_assert!(limit.peek(&state, START, count).is_allow(), "{explained}");
    // nginx truncates a wait of less than a millisecond.
    let is_cut = matches!(rule, Rule::Nginx { .. }) && limit.peek(&state, START, 0).limit > count;
    prop_assert!(is_cut || !limit.peek(&state, START, count + 1).is_allow(), "{explained}");
    Ok(())
}

/// Checks `one every T`, after the burst.
fn one_every(rule: &Rule, limit: &Limit, explained: &str) -> TestCaseResult {
    let interval =
        after(explained, "one every ").or_else(|| after(explained, "one through every "));
    let Some(interval) = interval else { return Ok(()) };
    // A warm-up is cold first, and a queue with a longest wait may deny the second request.
    if matches!(rule, Rule::Warmup { .. } | Rule::Queue { wait: Some(_), .. }) {
        return Ok(());
    }
    let (us, parts) = fraction(interval);
    prop_assert!(us > 0, "{explained}");
    let next = spacing(rule, limit);
    let exact = us.div_ceil(parts);
    // nginx's milliseconds.
    let longest = if matches!(rule, Rule::Nginx { .. }) { exact + 1_000 } else { exact };
    prop_assert!((exact..=longest).contains(&u128::from(next.as_micros())), "{next}: {explained}");
    Ok(())
}

/// Returns the time until the next admission when nothing remains.
fn spacing(rule: &Rule, limit: &Limit) -> Span {
    let mut state = limit.fresh(START);
    let all = match rule {
        Rule::Queue { .. } | Rule::Smooth { .. } => 1,
        _ => limit.peek(&state, START, 0).limit,
    };
    let _used = limit.decide(&mut state, START, all);
    let next = limit.decide(&mut state, START, 1);
    match next.verdict {
        Verdict::Wait(wait) => wait,
        _ => next.retry_after().unwrap_or(Span::ZERO),
    }
}

/// Parses `100ms` or `1min/7`: microseconds, and the number that divides them.
fn fraction(text: &str) -> (u128, u128) {
    let (span, parts) = text.split_once('/').unwrap_or((text, "1"));
    let digits = span.find(|c: char| !c.is_ascii_digit()).expect("a span has a unit");
    let unit_us = match &span[digits..] {
        "us" => 1,
        "ms" => 1_000,
        "s" => 1_000_000,
        "min" => 60_000_000,
        "h" => 3_600_000_000,
        "day" => 86_400_000_000,
        "week" => 604_800_000_000,
        other => panic!("{other} is not a unit"),
    };
    let number: u128 = span[..digits].parse().expect("a span starts with a number");
    (number * unit_us, parts.parse().expect("a fraction has whole parts"))
}

/// Checks that `up to N around an edge` is reached, and that `never 2` holds.
fn around_an_edge(rule: &Rule, limit: &Limit, explained: &str) -> TestCaseResult {
    let &Rule::Fixed { rate, from } = rule else { return Ok(()) };
    let mut state = limit.fresh(START);
    let mut take = |at: Timestamp, cost| {
        let all = limit.peek(&state, at, 0).remaining;
        let cost = all.min(cost);
        assert!(limit.decide(&mut state, at, cost).is_allow());
        cost
    };
    let opened = if from == From::FirstRequest { take(START, 1) } else { 0 };
    let edge = limit.window(&limit.fresh(START), START).expect("it has windows").end;
    let before = take(edge - Span::from_micros(1), u64::MAX);
    let around = before + take(edge, u64::MAX);
    let most = after(explained, "up to ").map_or(1, |most| most.parse().expect("a whole number"));
    // In a period of a microsecond, no second request comes before its end.
    let is_shortest = opened > 0 && rate.period == Span::from_micros(1);
    prop_assert!(is_shortest || around == most, "{around}: {explained}");
    Ok(())
}

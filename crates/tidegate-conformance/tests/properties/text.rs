//! Rule text: the printed text parses to the same rule, and any other text gives a bounded, printable error.

use crate::check::check;
use crate::generate::{any_rule, span};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;
use tidegate_core::{Limit, ParsedRule, RuleError, RuleErrorKind};

const DISPLAY_BYTES_MAX: usize = 1_024;

#[test]
fn a_printed_rule_parses_to_the_same_rule() {
    check(&any_rule(), |rule| {
        let text = rule.to_string();
        let limit: Limit = text.parse().map_err(|error| TestCaseError::fail(format!("{error}")))?;
        round_trips(limit.rule())
    });
}

// Words and spaces that the generated rules do not use.
#[test]
fn a_rule_in_another_spelling_prints_as_text_that_parses_to_the_same_rule() {
    let rate = (1_u64..100, span());
    check(&(rate, 0_usize..12, span(), 1_usize..4), |((count, period), shape, other, spaces)| {
        let shapes = [
            String::new(),
            "paced".to_owned(),
            "start empty".to_owned(),
            format!("burst {count}"),
            format!("burst {count} start empty"),
            "leaky".to_owned(),
            "queue".to_owned(),
            format!("queue wait {other}"),
            "smooth".to_owned(),
            format!("smooth burst {count}"),
            format!("warmup {other}"),
            format!("warmup {other} cold 4"),
        ];
        let text = format!("{count}/{period} {}", shapes[shape]).replace(' ', &" ".repeat(spaces));
        round_trips(&text.parse().map_err(|error| TestCaseError::fail(format!("{error}")))?)
    });
    let others = [
        "concurrency 5 wait 500ms lease 30s",
        "1/day calendar in Asia/Shanghai",
        "1/day fixed from 2024-01-01T00:00:00+08:00",
        "10/7s fixed from 2024-01-01T00:00:00-00:00",
        "10r/s",
        "10r/m delay=0 burst=0",
    ];
    for text in others {
        round_trips(&text.parse().unwrap()).unwrap();
    }
}

#[test]
fn rules_with_the_same_meaning_print_the_same_text() {
    let same = [
        ("10/s fixed from 1970-01-01T00:00:00Z", "10/s fixed"),
        ("10/s fixed from 2024-01-01T00:00:00+08:00", "10/s fixed"),
        ("1/day fixed from 2024-01-01T08:00:00+08:00", "1/day fixed"),
        ("1/day calendar in UTC", "1/day calendar"),
        ("1/day calendar in utc", "1/day calendar"),
        ("1/day calendar in Etc/UTC", "1/day calendar"),
        ("60/60s burst 60", "60/min"),
        ("10/s burst 1", "10/s paced"),
    ];
    for (text, canonical) in same {
        assert_eq!(text.parse::<ParsedRule>().unwrap(), canonical.parse().unwrap(), "{text}");
        assert_eq!(text.parse::<ParsedRule>().unwrap().to_string(), canonical);
    }
    let differ = [
        ("1/day fixed from 2024-01-01T00:00:00+08:00", "1/day fixed"),
        ("20/2s burst 5", "10/s burst 5"),
    ];
    for (one, other) in differ {
        assert_ne!(one.parse::<ParsedRule>().unwrap(), other.parse().unwrap(), "{one}");
    }
}

fn round_trips(rule: &ParsedRule) -> TestCaseResult {
    let canonical = rule.to_string();
    let again: ParsedRule =
        canonical.parse().map_err(|error| TestCaseError::fail(format!("{canonical}: {error}")))?;
    prop_assert_eq!(&again, rule, "{}", canonical);
    prop_assert_eq!(&again.to_string(), &canonical, "printing is a fixed point");
    let explained = rule.explain();
    let is_a_line = !explained.trim().is_empty() && !explained.contains(char::is_control);
    prop_assert!(is_a_line, "{canonical} explains itself as {explained:?}");
    Ok(())
}

/// Checks that the text is a rule that round-trips, or that its error is bounded and printable and points into the text.
fn is_rule_or_good_error(text: &str) -> TestCaseResult {
    let error = match text.parse::<ParsedRule>() {
        Ok(rule) => return round_trips(&rule),
        Err(error) => error,
    };
    let (span, shown) = (error.span(), error.to_string());
    prop_assert!(span.start <= span.end && span.end <= text.len(), "{span:?} of {text:?}");
    let on_edges = text.is_char_boundary(span.start) && text.is_char_boundary(span.end);
    prop_assert!(on_edges, "{span:?} cuts a character of {text:?}");
    prop_assert!(shown.len() < DISPLAY_BYTES_MAX, "{} bytes: {shown}", shown.len());
    let is_harmful = |c: char| c.is_control() && c != '\n';
    prop_assert!(!shown.contains(is_harmful), "{shown:?}");
    prop_assert!(!error.message().contains(char::is_control), "{shown:?}");
    let same = text.parse::<Limit>().is_err_and(|same| same == error);
    prop_assert!(same, "the limit has another error than the rule: {text:?}");
    match error.kind() {
        RuleErrorKind::Rewrite { write, .. } if write.contains('/') => is_a_rule(write),
        _ => Ok(()),
    }
}

/// Checks that a suggestion is a rule. It may repeat a number of the user's that is out of range.
fn is_a_rule(suggestion: &str) -> TestCaseResult {
    let is_out_of_range = |error: RuleError| {
        use RuleErrorKind::{TooFast, TooLarge, Zero};
        matches!(error.kind(), TooFast | TooLarge { .. } | Zero { .. })
    };
    let is_good = suggestion.parse::<ParsedRule>().map_or_else(is_out_of_range, |_| true);
    prop_assert!(is_good, "the suggestion {suggestion:?} is not a rule");
    Ok(())
}

#[test]
fn any_text_is_a_rule_or_an_error_that_points_into_it() {
    let text = vec(any::<char>(), 0..300).prop_map(String::from_iter);
    check(&text, |text| is_rule_or_good_error(&text));
}

const WORDS: &[&str] = &[
    "0",
    "1",
    "5",
    "100",
    "9007199254740992",
    "9007199254740993",
    "18446744073709551616",
    "-1",
    "1.5",
    "/",
    "s",
    "ms",
    "min",
    "day",
    "week",
    "month",
    "36525day",
    "36526day",
    "1/s",
    "10/2s",
    "0/s",
    "10/d",
    "10r/s",
    "1r/m",
    "burst",
    "burst=",
    "burst=5",
    "nodelay",
    "delay=2",
    "paced",
    "start",
    "empty",
    "fixed",
    "from",
    "first",
    "2024-01-01T00:00:00Z",
    "calendar",
    "in",
    "Asia/Shanghai",
    "sliding",
    "leaky",
    "capacity",
    "queue",
    "wait",
    "smooth",
    "warmup",
    "concurrency",
    "lease",
    "nginx",
    "token",
    "sliding-log",
    "log",
    "per",
    "and",
    "rps",
    "k",
    ",",
    "brst",
    "capacity=5",
];

#[test]
fn any_words_of_the_language_are_a_rule_or_an_error_that_points_into_them() {
    let word =
        (prop::sample::select(WORDS.to_vec()), prop::sample::select(vec![" ", "", "  ", "\t"]));
    let text = vec(word, 0..8).prop_map(|words| {
        words.into_iter().fold(String::new(), |text, (word, space)| text + word + space)
    });
    check(&text, |text| is_rule_or_good_error(&text));
}

#[test]
fn a_rule_with_one_typing_error_is_a_rule_or_an_error_that_points_into_it() {
    check(&(any_rule(), any::<prop::sample::Index>(), any::<char>(), 0..4), |change| {
        let (rule, position, letter, kind) = change;
        let mut letters: Vec<char> = rule.to_string().chars().collect();
        let position = position.index(letters.len());
        match kind {
            0 => drop(letters.remove(position)),
            1 => letters.insert(position, letter),
            2 => letters[position] = letter,
            _ => letters.truncate(position),
        }
        is_rule_or_good_error(&String::from_iter(letters))
    });
}

#[test]
fn a_megabyte_of_any_text_is_rejected_with_a_short_message() {
    let megabyte = 1 << 20;
    for letter in ["1", "/", " ", "a", "\u{0}", "\n", "\u{202e}", "é", "漢", "🦀"] {
        let text = letter.repeat(megabyte / letter.len());
        is_rule_or_good_error(&text).unwrap();
        assert!(text.parse::<ParsedRule>().is_err());
        is_rule_or_good_error(&format!("10/s burst {text}")).unwrap();
        is_rule_or_good_error(&format!("1/s{text}")).unwrap();
    }
}

#[test]
fn no_error_contains_a_direction_mark() {
    let directions = ('\u{202a}'..='\u{202e}').chain('\u{2066}'..='\u{2069}');
    let marks = ['\u{61c}', '\u{200e}', '\u{200f}'];
    for mark in directions.chain(marks) {
        let shown = format!("10/s{mark} burst").parse::<ParsedRule>().unwrap_err().to_string();
        assert!(!shown.contains(mark), "{mark:?} is in {shown:?}");
    }
}

//! Errors of a text that starts with neither a rate nor `concurrency`.
//!
//! Always   A suggestion with a slash is a complete and valid rule.

use super::edit_distance::nearest_word;
use super::trailing_word::SHAPES;
use super::words::Word;
use super::{RuleError, RuleErrorKind, unit_names};
use crate::rate::PER_MICROSECOND_MAX;
use crate::time::UNITS;
use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;

const SPELLING: &str = "a rate is a number, a slash and a unit, without spaces";
/// The largest count that is repeated in a suggestion: every algorithm accepts it.
const COUNT_MAX: u64 = 1_000_000;
/// The largest number of units of a period in a suggestion.
const PERIODS_MAX: u64 = 1_000;

pub(in crate::rule) fn error(first: Word<'_>) -> RuleError {
    let kind = if first.digits().text.is_empty() { word_first(first) } else { number_first(first) };
    first.error(kind)
}

/// Returns whether this count is followed by the name of the counted thing: `10req`.
pub(in crate::rule) fn is_counted(count: Word<'_>) -> bool {
    let digits = count.digits().text.len();
    digits > 0 && is_noun(&count.text[digits..])
}

fn is_noun(text: &str) -> bool {
    let nouns =
        ["req", "reqs", "request", "requests", "hits", "calls", "ops", "query", "queries", "times"];
    nouns.contains(&text)
}

/// `10`, `10 / s`, `10 per sec`, `10rps`, `10 req/s`, `5 concurrency`.
fn number_first(first: Word<'_>) -> RuleErrorKind {
    let next = first.after().next().map_or("", |word| word.text);
    if nearest_word(next, ["concurrency"]).is_some() {
        let write = format!("concurrency {}", count(first).unwrap_or(5));
        return RuleErrorKind::Rewrite { why: "the word comes first", write };
    }
    let write = rate(first).unwrap_or_else(|| "10/s".to_owned());
    RuleErrorKind::Rewrite { why: SPELLING, write }
}

/// `queue 10/s`, `token bucket 10/s`, `nginx 10r/s`, `concurrent 5`.
fn word_first(first: Word<'_>) -> RuleErrorKind {
    let is_nginx = ["nginx", "limit_req", "limit_req_zone"].contains(&first.text);
    if is_nginx || first.text.starts_with("rate=") || first.text.starts_with("zone=") {
        let write = "10r/s burst=20".to_owned();
        return RuleErrorKind::Rewrite { why: "nginx's rules start with the rate", write };
    }
    if ["none", "nothing", "deny", "block"].contains(&first.text) {
        let (why, write) = ("a rule that denies everything is a rate of 0", "0/s".to_owned());
        return RuleErrorKind::Rewrite { why, write };
    }
    if let Some(hint) = nearest_word(first.text, ["concurrency"]) {
        let expected = "a rate such as `100/s`, or `concurrency 5`".to_owned();
        return RuleErrorKind::UnknownWord { expected, hint: Some(hint) };
    }
    let known = SHAPES.into_iter().chain(["burst", "token", "token-bucket"]);
    let Some(shape) = nearest_word(first.text, known) else {
        let expected = "a rate such as `100/s`, or `concurrency 5`";
        return RuleErrorKind::Expected { expected };
    };
    let is_rate = |word: &Word<'_>| word.text.contains('/');
    let rate = first.after().find(is_rate).and_then(rate).unwrap_or_else(|| "10/s".to_owned());
    let is_log = first.after().next().is_some_and(|word| word.text == "log");
    let write = match shape {
        "calendar" => "1/day calendar".to_owned(),
        "warmup" => format!("{rate} warmup 1s"),
        "burst" | "token" | "token-bucket" => format!("{rate} burst 20"),
        "sliding" if is_log => format!("{rate} sliding-log"),
        shape => format!("{rate} {shape}"),
    };
    RuleErrorKind::Rewrite { why: "the rate comes first", write }
}

fn count(word: Word<'_>) -> Option<u64> {
    word.digits().text.parse().ok().filter(|count| (1..=COUNT_MAX).contains(count))
}

/// Returns the right spelling of the rate that starts with this word.
fn rate(word: Word<'_>) -> Option<String> {
    let count = count(word)?;
    let rest = &word.onwards()[word.digits().text.len()..];
    let pieces = rest.split(|c: char| c.is_ascii_whitespace() || c == '/');
    let filler = ["", "a", "an", "per", "each", "every", "r"];
    let mut pieces = pieces.filter(|piece| !filler.contains(piece) && !is_noun(piece));
    let period = pieces.next().unwrap_or("s");
    let digits = period.find(|c: char| !c.is_ascii_digit()).unwrap_or(period.len());
    let (number, unit) = match period.split_at(digits) {
        (number, "") => (number, pieces.next().unwrap_or("s")),
        (number, unit) => (number, unit),
    };
    let unit = match unit {
        "rps" | "qps" | "tps" => "s",
        "rpm" | "qpm" => "min",
        "rph" => "h",
        "rpd" => "day",
        unit => unit_names::meant(unit).filter(|unit| !unit.contains(' '))?,
    };
    let periods: u64 = if number.is_empty() { 1 } else { number.parse().ok()? };
    let unit_us = UNITS.iter().find(|(name, _)| *name == unit)?.1;
    // A thousand of any unit is a valid period, and a faster rate is not valid.
    let is_rate = (1..=PERIODS_MAX).contains(&periods)
        && count <= periods.saturating_mul(unit_us).saturating_mul(PER_MICROSECOND_MAX);
    is_rate.then(|| format!("{count}/{number}{unit}"))
}

//! Parses a scenario: line by line, words from left to right.
//!
//! ```text
//! line    = "start" instant | "limit" [name] rule | "at" moment what
//! what    = ["every" T] ["key" name] ["limit" name] action
//! action  = "take" ["all"] N ["within" T] ["x" N] verdict {number} | "peek" N verdict {number}
//!         | "refund" N ["x" N] | "release" N ["x" N] | "reset" | "change" rule
//!         | "window" (moment ".." moment | "none")
//! verdict = "allow" | "wait" [T] | "deny" ["retry" T | "release" | "never"] | {"+" | "-" | "~"}
//! number  = "limit" N | "remaining" N | "reset" (T | "release")
//! ```
//!
//! Always   Any text gives a scenario, or an error that says what was expected.

use super::{Action, Expect, Expected, Scenario, ScenarioError, Step, time};
use crate::implementation::TakeRequest;
use tidegate_core::{ParsedRule, Retry, Span, Timestamp, Window};

/// 2024-01-01T00:00:00Z: a Monday, the first day of a year, and the start of every common window.
const START: Timestamp = Timestamp::from_micros(1_704_067_200_000_000);
/// Maximum number of repetitions.
const TIMES_MAX: usize = 100_000;

const ACTIONS: &str = "take, peek, refund, release, reset, change or window";
const VERDICTS: &str = "allow, wait, deny, or a row of `+`, `-` and `~`";

type Result<T> = std::result::Result<T, String>;

/// Parses the lines of one block, which begins on line `first` of the page.
pub(super) fn scenario(
    page: &str,
    first: usize,
    lines: &[(usize, &str)],
) -> std::result::Result<Scenario, ScenarioError> {
    let mut reader = Reader::default();
    for (line, text) in lines {
        let text = without_comment(text);
        let read = if text.is_empty() { Ok(()) } else { reader.line(*line, text) };
        read.map_err(|message| ScenarioError::new(page, *line, message))?;
    }
    if reader.steps.is_empty() {
        let message = "nothing happens in this scenario: expected a line such as \
                       `at 0s take 1 allow`";
        return Err(ScenarioError::new(page, first, message));
    }
    Ok(Scenario {
        page: page.to_owned(),
        line: first,
        start: reader.start.unwrap_or(START),
        rules: reader.limits.into_iter().map(|limit| limit.rule).collect(),
        steps: reader.steps,
    })
}

/// Removes a comment, which begins with a `#` at the start of a word.
fn without_comment(line: &str) -> &str {
    let is_comment = |at: &usize| line[..*at].is_empty() || line[..*at].ends_with([' ', '\t']);
    let comment = line.match_indices('#').map(|(at, _)| at).find(is_comment);
    line[..comment.unwrap_or(line.len())].trim()
}

#[derive(Default)]
struct Reader {
    start: Option<Timestamp>,
    limits: Vec<NamedRule>,
    steps: Vec<Step>,
}

struct NamedRule {
    name: Option<String>,
    rule: String,
}

impl Reader {
    fn line(&mut self, line: usize, text: &str) -> Result<()> {
        let mut words = Words { rest: text };
        match words.next() {
            "start" => self.start(&mut words),
            "limit" => self.limit(&mut words),
            "at" => {
                let step = self.step(line, text, &mut words)?;
                self.steps.push(step);
                Ok(())
            }
            word => Err(unexpected(word, "start, limit or at")),
        }?;
        words.end()
    }

    fn start(&mut self, words: &mut Words<'_>) -> Result<()> {
        if self.start.is_some() || !self.limits.is_empty() {
            return Err("`start` must come first, and once".to_owned());
        }
        self.start = Some(time::instant(words.next())?);
        Ok(())
    }

    fn limit(&mut self, words: &mut Words<'_>) -> Result<()> {
        if !self.steps.is_empty() {
            return Err("a limit must come before the first `at`".to_owned());
        }
        // A rule begins with a number or the word `concurrency`; any other word is a name.
        let first = words.peek();
        let is_rule = first.starts_with(|c: char| c.is_ascii_digit()) || first == "concurrency";
        let name = if is_rule { None } else { Some(words.next().to_owned()) };
        let rule = words.rule()?;
        self.limits.push(NamedRule { name, rule });
        if self.limits.len() > 1 && self.limits.iter().any(|limit| limit.name.is_none()) {
            return Err("several limits need a name each, as in `limit second 100/s`".to_owned());
        }
        let (last, others) = self.limits.split_last().ok_or("no limit")?;
        if others.iter().any(|other| other.name == last.name) {
            return Err("two limits have the same name".to_owned());
        }
        Ok(())
    }

    fn step(&self, line: usize, text: &str, words: &mut Words<'_>) -> Result<Step> {
        if self.limits.is_empty() {
            return Err("a limit is needed first, such as `limit 2/s burst 3`".to_owned());
        }
        let start = self.start.unwrap_or(START);
        let at = time::moment(words.next(), start)?;
        let every = words.option("every")?.map(time::span).transpose()?;
        let key = words.option("key")?.unwrap_or("somebody").to_owned();
        let limit = words.option("limit")?.map(|name| self.named(name)).transpose()?;
        let is_all = words.rest.starts_with("take all ");
        let limit = match limit {
            Some(_) if is_all => return Err("`take all` asks every limit, not one".to_owned()),
            Some(limit) => limit,
            None if is_all || self.limits.len() == 1 => 0,
            None => return Err(self.which()),
        };
        let (action, times) = action(words, start)?;
        if every.is_some() && times.is_none() {
            return Err("`every` needs a number of times, as in `x5`, or a row".to_owned());
        }
        let (times, every) = (times.unwrap_or(1), every.unwrap_or(Span::ZERO));
        Ok(Step { line, text: text.to_owned(), at, times, every, key, limit, action })
    }

    fn named(&self, name: &str) -> Result<usize> {
        let found = self.limits.iter().position(|limit| limit.name.as_deref() == Some(name));
        found.ok_or_else(|| format!("there is no limit `{name}`: expected {}", self.names()))
    }

    fn which(&self) -> String {
        format!("which limit? Expected `limit` and a name, one of {}", self.names())
    }

    fn names(&self) -> String {
        let names = self.limits.iter().map(|limit| limit.name.as_deref().unwrap_or("none"));
        names.collect::<Vec<_>>().join(", ")
    }
}

/// Parses an action, and the number of repetitions if it is written.
fn action(words: &mut Words<'_>, start: Timestamp) -> Result<(Action, Option<usize>)> {
    match words.next() {
        "take" if words.take("all") => {
            let cost = words.number("the cost")?;
            let times = words.times()?;
            let (expect, times) = expect(words, times)?;
            Ok((Action::TakeAll(cost, expect), times))
        }
        "take" => {
            let cost = words.number("the cost")?;
            let wait_max = words.option("within")?.map(time::span).transpose()?;
            let times = words.times()?;
            let (expect, times) = expect(words, times)?;
            Ok((Action::Take(TakeRequest { cost, wait_max }, expect), times))
        }
        "peek" => {
            let cost = words.number("the cost")?;
            let (expect, times) = expect(words, None)?;
            Ok((Action::Peek(cost, expect), times))
        }
        "refund" => Ok((Action::Refund(words.number("the cost")?), words.times()?)),
        "release" => Ok((Action::Release(words.number("the cost")?), words.times()?)),
        "reset" => Ok((Action::Reset, None)),
        "change" => Ok((Action::Change(words.rule()?), None)),
        "window" => Ok((Action::Window(window(words.next(), start)?), None)),
        word => Err(unexpected(word, ACTIONS)),
    }
}

fn window(word: &str, start: Timestamp) -> Result<Option<Window>> {
    if word == "none" {
        return Ok(None);
    }
    let Some((from, to)) = word.split_once("..") else {
        return Err(unexpected(word, "a window such as `0s..30min`, or none"));
    };
    let (start, end) = (time::moment(from, start)?, time::moment(to, start)?);
    if start >= end {
        return Err(format!("`{word}` ends before it begins"));
    }
    Ok(Some(Window { start, end }))
}

/// Parses a verdict and the numbers that follow it. A row of verdicts also gives the number of repetitions.
fn expect(words: &mut Words<'_>, times: Option<usize>) -> Result<(Expect, Option<usize>)> {
    let first = words.next();
    let row = first.chars().map(|mark| match mark {
        '+' => Some(Expected::Allow),
        '-' => Some(Expected::Deny(None)),
        '~' => Some(Expected::Wait(None)),
        _ => None,
    });
    let (verdicts, times) = match (row.collect::<Option<Vec<_>>>(), times) {
        (Some(row), None) if !row.is_empty() => {
            let times = row.len();
            (row, Some(times))
        }
        (Some(row), Some(_)) if !row.is_empty() => {
            return Err(
                "a row already gives the number of repetitions: leave out the `x`".to_owned()
            );
        }
        (_, times) => (vec![verdict(first, words)?], times),
    };
    let (mut limit, mut remaining, mut reset_after) = (None, None, None);
    while !words.rest.is_empty() {
        let word = words.next();
        let is_repeated = match word {
            "limit" => limit.replace(words.number("the limit")?).is_some(),
            "remaining" => remaining.replace(words.number("what remains")?).is_some(),
            "reset" if words.take("release") => reset_after.replace(Span::MAX).is_some(),
            "reset" => reset_after.replace(time::span(words.next())?).is_some(),
            _ => return Err(unexpected(word, "limit, remaining, reset, or nothing")),
        };
        if is_repeated {
            return Err(format!("`{word}` is written twice"));
        }
    }
    Ok((Expect { verdicts, limit, remaining, reset_after }, times))
}

fn verdict(word: &str, words: &mut Words<'_>) -> Result<Expected> {
    match word {
        "allow" => Ok(Expected::Allow),
        "wait" => {
            let is_time = words.peek().starts_with(|c: char| c.is_ascii_digit());
            let wait = if is_time { Some(time::span(words.next())?) } else { None };
            Ok(Expected::Wait(wait))
        }
        "deny" => Ok(Expected::Deny(match words.peek() {
            "retry" => words.option("retry")?.map(time::span).transpose()?.map(Retry::After),
            "release" => words.take("release").then_some(Retry::OnRelease),
            "never" => words.take("never").then_some(Retry::Never),
            _ => None,
        })),
        word => Err(unexpected(word, VERDICTS)),
    }
}

fn unexpected(word: &str, expected: &str) -> String {
    if word.is_empty() {
        return format!("the line ends here: expected {expected}");
    }
    format!("unknown word `{word}`: expected {expected}")
}

/// The words of a line; after the last one, empty words.
struct Words<'t> {
    rest: &'t str,
}

impl<'t> Words<'t> {
    fn peek(&self) -> &'t str {
        self.rest.split_ascii_whitespace().next().unwrap_or("")
    }

    fn next(&mut self) -> &'t str {
        let word = self.peek();
        self.rest = self.rest.trim_ascii_start()[word.len()..].trim_ascii_start();
        word
    }

    /// Takes the next word if it is this one.
    fn take(&mut self, wanted: &str) -> bool {
        let found = self.peek() == wanted;
        if found {
            self.next();
        }
        found
    }

    /// Takes `name value`, if the next word is the name.
    fn option(&mut self, name: &str) -> Result<Option<&'t str>> {
        if !self.take(name) {
            return Ok(None);
        }
        match self.next() {
            "" => Err(format!("the line ends here: expected a value for `{name}`")),
            value => Ok(Some(value)),
        }
    }

    fn number(&mut self, what: &str) -> Result<u64> {
        let word = self.next();
        word.parse().map_err(|_| unexpected(word, &format!("{what} as a whole number")))
    }

    /// Takes a number of repetitions such as `x5`, if it is the next word.
    fn times(&mut self) -> Result<Option<usize>> {
        let Some(digits) = self.peek().strip_prefix('x') else { return Ok(None) };
        let times = digits.parse().ok().filter(|times| (1..=TIMES_MAX).contains(times));
        let wrong = || format!("`x{digits}` is not a number of times from x1 to x{TIMES_MAX}");
        let times = times.ok_or_else(wrong)?;
        self.next();
        Ok(Some(times))
    }

    /// Takes the rest of the line, which must be a rule.
    fn rule(&mut self) -> Result<String> {
        let rule = std::mem::take(&mut self.rest);
        let read: std::result::Result<ParsedRule, _> = rule.parse();
        read.map(|_| rule.to_owned()).map_err(|error| error.to_string())
    }

    fn end(&self) -> Result<()> {
        match self.peek() {
            "" => Ok(()),
            word => Err(unexpected(word, "nothing more")),
        }
    }
}

#[cfg(test)]
mod tests;

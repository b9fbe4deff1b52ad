//! Reads rule text: words from left to right, no backtracking, no recursion.
//!
//! ```text
//! rule    = rate [shape] | nginx | "concurrency" N ["wait" T] ["lease" T]
//! rate    = N "/" [N] unit
//! shape   = ["burst" N] ["start empty"] | "paced" | "fixed" ["from" ("first" | instant)]
//!         | "calendar" ["in" zone] | "sliding-log" | "sliding" | "leaky" ["capacity" N]
//!         | "queue" ["capacity" N] ["wait" T] | "smooth" ["burst" N] | "warmup" T ["cold" N]
//! nginx   = N "r/s" | N "r/m", then ["burst=" N] ["nodelay" | "delay=" N]
//! ```
//!
//! Always   Any text at all gets an answer: a rule or an error that points at the first thing wrong.

use super::error::{RuleError, RuleErrorKind};
use super::instant::Anchor;
use super::{Delay, From, Kind, number};
use crate::algorithm::{CalendarUnit, sliding_log};
use crate::rate::{COUNT_MAX, PER_MICROSECOND_MAX, Rate};
use crate::time::Span;
use alloc::borrow::ToOwned;
use core::ops::Range;

type Result<T> = core::result::Result<T, RuleError>;

/// No rule is longer; what is longer is not read.
pub(crate) const BYTES_MAX: usize = 256;
/// A warm-up that starts this many times slower is no longer a warm-up.
const COLD_MAX: u64 = 1_000;

pub(super) fn parse(text: &str) -> Result<Kind> {
    if text.len() > BYTES_MAX {
        return Err(RuleError::new(text, 0..0, RuleErrorKind::TooLong));
    }
    let mut words = Words { text, at: 0 };
    let Some(first) = words.next() else {
        return Err(RuleError::new(text, 0..0, RuleErrorKind::Empty));
    };
    let kind = match first.text.split_once('/') {
        Some((count, _)) if count.ends_with('r') => nginx(first, &mut words)?,
        Some((count, _)) => limited(first.split(count.len()), &mut words)?,
        None if first.text == "concurrency" => concurrency(&mut words)?,
        None => {
            let expected = "a rate such as `100/s`, or `concurrency 5`";
            return Err(first.error(RuleErrorKind::Expected { expected }));
        }
    };
    match words.next() {
        Some(word) if (Words { text: &text[..word.start], at: 0 }).has(word.text) => {
            Err(word.error(RuleErrorKind::Conflict { why: "it is said already" }))
        }
        Some(word) => Err(word.error(leftover(&kind))),
        None => Ok(kind),
    }
}

/// What might have followed, for a word that should not have.
fn leftover(kind: &Kind) -> RuleErrorKind {
    let expected = match kind {
        Kind::TokenBucket { .. } => {
            "`burst N`, `start empty`, `paced`, `fixed`, `calendar`, `sliding`, `sliding-log`, \
             `leaky`, `queue`, `smooth` or `warmup T`"
        }
        Kind::Fixed { .. } => "`from first`, `from <instant>`, or nothing",
        Kind::Calendar { .. } => "`in <time zone>`, or nothing",
        Kind::Leaky { .. } => "`capacity N`, or nothing",
        Kind::Queue { .. } => "`capacity N`, `wait T`, or nothing",
        Kind::Smooth { .. } => "`burst N`, or nothing",
        Kind::Warmup { .. } => "`cold N`, or nothing",
        Kind::Concurrency { .. } => "`wait T`, `lease T`, or nothing",
        Kind::Nginx { .. } => "`burst=N`, `nodelay`, `delay=N`, or nothing",
        Kind::Sliding { .. } | Kind::SlidingLog { .. } => "nothing",
    };
    RuleErrorKind::UnknownWord { expected }
}

/// `N/period` and the words that follow.
fn limited((count, period): (Word<'_>, Word<'_>), words: &mut Words<'_>) -> Result<Kind> {
    if count.text.contains('.') {
        let expected = "a whole number (write `3/2s` for 1.5 a second)";
        return Err(count.error(RuleErrorKind::Expected { expected }));
    }
    let count_value = number::count(count, "the count")?;
    let shape = words.peek();
    if shape.is_some_and(|word| word.text == "calendar") {
        words.next();
        return calendar(count_value, period, words);
    }
    let rate = rate(count, count_value, period)?;
    let Some(shape) = shape else { return token_bucket(rate, words) };
    if matches!(shape.text, "burst" | "start") {
        return token_bucket(rate, words);
    }
    let mut take = |kind| {
        words.next();
        Ok(kind)
    };
    match shape.text {
        "paced" => take(Kind::TokenBucket { rate, burst: 1, starts_empty: false }),
        "sliding" => take(Kind::Sliding { rate }),
        "sliding-log" if rate.count > sliding_log::COUNT_MAX => {
            let what = "the count of a log";
            Err(count.error(RuleErrorKind::TooLarge { what, max: sliding_log::COUNT_MAX }))
        }
        "sliding-log" => take(Kind::SlidingLog { rate }),
        "fixed" => fixed(rate, words),
        "leaky" => leaky(rate, words),
        "queue" => queue(rate, words),
        "smooth" => smooth(rate, words),
        "warmup" => warmup(rate, words),
        _ => token_bucket(rate, words),
    }
}

fn rate(word: Word<'_>, count: u64, period: Word<'_>) -> Result<Rate> {
    let period = number::period(period)?;
    if u128::from(count) > u128::from(period.as_micros()) * u128::from(PER_MICROSECOND_MAX) {
        return Err(word.error(RuleErrorKind::TooFast));
    }
    Ok(Rate { count, period })
}

fn token_bucket(rate: Rate, words: &mut Words<'_>) -> Result<Kind> {
    let burst = words.option("burst", "the burst", number::count)?.unwrap_or(rate.count);
    let starts_empty = words.take("start");
    if starts_empty {
        words.expect("empty", "`empty`: a bucket starts full unless it starts empty")?;
    }
    Ok(Kind::TokenBucket { rate, burst, starts_empty })
}

fn fixed(rate: Rate, words: &mut Words<'_>) -> Result<Kind> {
    words.next();
    if !words.take("from") {
        return Ok(Kind::Fixed { rate, from: From::Epoch });
    }
    let word = words.needed("`first`, or an instant such as `2024-01-01T00:00:00+08:00`,")?;
    let from = match word.text {
        "first" => From::FirstRequest,
        _ => From::Anchor(Anchor::parse(word)?),
    };
    Ok(Kind::Fixed { rate, from })
}

fn calendar(count: u64, period: Word<'_>, words: &mut Words<'_>) -> Result<Kind> {
    let unit = match period.text {
        "min" => CalendarUnit::Minute,
        "h" => CalendarUnit::Hour,
        "day" => CalendarUnit::Day,
        "week" => CalendarUnit::Week,
        "month" => CalendarUnit::Month,
        "year" => CalendarUnit::Year,
        _ => {
            let expected = "one unit of the calendar: min, h, day, week, month or year";
            return Err(period.error(RuleErrorKind::Expected { expected }));
        }
    };
    let mut zone = None;
    if words.take("in") {
        let word = words.needed("a time zone such as `Asia/Shanghai`")?;
        let is_name = |c: char| c.is_ascii_alphanumeric() || "/_+-".contains(c);
        if !word.text.chars().all(is_name) {
            let expected = "the name of a time zone, such as `Asia/Shanghai`";
            return Err(word.error(RuleErrorKind::Expected { expected }));
        }
        zone = Some(word.text).filter(|name| *name != "UTC").map(ToOwned::to_owned);
    }
    Ok(Kind::Calendar { count, unit, zone })
}

fn leaky(rate: Rate, words: &mut Words<'_>) -> Result<Kind> {
    words.next();
    let capacity = words.option("capacity", "the capacity", number::count)?;
    Ok(Kind::Leaky { rate, capacity: capacity.unwrap_or(rate.count) })
}

fn queue(rate: Rate, words: &mut Words<'_>) -> Result<Kind> {
    words.next();
    let (mut capacity, mut wait) = (None, None);
    while words.set(&mut capacity, "capacity", "the capacity", number::count)?
        || words.set(&mut wait, "wait", "the wait", number::span)?
    {}
    Ok(Kind::Queue { rate, capacity: capacity.unwrap_or(rate.count), wait })
}

fn smooth(rate: Rate, words: &mut Words<'_>) -> Result<Kind> {
    words.next();
    let burst = words.option("burst", "the burst", number::count)?;
    // One second's worth said in words is the default, and prints as such.
    let is_default = |burst: &u64| {
        u128::from(*burst) * u128::from(rate.period.as_micros())
            == u128::from(rate.count) * u128::from(Span::from_secs(1).as_micros())
    };
    Ok(Kind::Smooth { rate, burst: burst.filter(|burst| !is_default(burst)) })
}

fn warmup(rate: Rate, words: &mut Words<'_>) -> Result<Kind> {
    words.next();
    let word = words.needed("how long it takes, such as `warmup 1s`,")?;
    let warmup = number::span(word, "the warm-up")?;
    let cold =
        words.option("cold", "the cold factor", |word, what| match number::count(word, what)? {
            1 => {
                let why = "a cold factor of 1 is no warm-up; `smooth` is that rule";
                Err(word.error(RuleErrorKind::Conflict { why }))
            }
            cold if cold > COLD_MAX => {
                Err(word.error(RuleErrorKind::TooLarge { what, max: COLD_MAX }))
            }
            cold => Ok(cold),
        })?;
    Ok(Kind::Warmup { rate, warmup, cold: cold.unwrap_or(3) })
}

fn concurrency(words: &mut Words<'_>) -> Result<Kind> {
    let word = words.needed("how many may be in flight, such as `concurrency 5`,")?;
    let max = number::count(word, "the number in flight")?;
    let (mut wait, mut lease) = (None, None);
    while words.set(&mut wait, "wait", "the wait", number::span)?
        || words.set(&mut lease, "lease", "the lease", number::span)?
    {}
    Ok(Kind::Concurrency { max, wait, lease })
}

/// nginx's own spelling, of one `limit_req_zone` rate and one `limit_req`.
fn nginx(first: Word<'_>, words: &mut Words<'_>) -> Result<Kind> {
    let digits = first.digits();
    let per_second = match &first.text[digits.text.len()..] {
        "r/s" => true,
        "r/m" => false,
        _ => {
            let expected = "nginx's `r/s` or `r/m`";
            return Err(first.from(digits.text.len()).error(RuleErrorKind::Expected { expected }));
        }
    };
    let count = number::count(digits, "the rate")?;
    if count > PER_MICROSECOND_MAX * 1_000_000 {
        return Err(digits.error(RuleErrorKind::TooFast));
    }
    let (mut burst, mut delay) = (None, None);
    while let Some(word) = words.peek() {
        let is_repeated = match word.text.split_once('=') {
            Some(("burst", value)) => {
                let value = word.from(word.text.len() - value.len());
                burst.replace(nginx_count(value, "the burst")?).is_some()
            }
            Some(("delay", value)) => {
                let value = word.from(word.text.len() - value.len());
                delay.replace(Delay::After(nginx_count(value, "the delay")?)).is_some()
            }
            _ if word.text == "nodelay" => delay.replace(Delay::Never).is_some(),
            _ => break,
        };
        if is_repeated {
            let why = "it is said already (`nodelay` and `delay=` rule each other out)";
            return Err(word.error(RuleErrorKind::Conflict { why }));
        }
        words.next();
    }
    let delay = delay.unwrap_or(Delay::After(0));
    Ok(Kind::Nginx { count, per_second, burst: burst.unwrap_or(0), delay })
}

/// nginx counts in thousandths, in 64 bits.
fn nginx_count(word: Word<'_>, what: &'static str) -> Result<u64> {
    let max = COUNT_MAX / 1_000;
    match number::count_or_zero(word, what)? {
        count if count > max => Err(word.error(RuleErrorKind::TooLarge { what, max })),
        count => Ok(count),
    }
}

/// A word and where it stands.
#[derive(Clone, Copy)]
pub(super) struct Word<'t> {
    whole: &'t str,
    start: usize,
    pub(super) text: &'t str,
}

impl Word<'_> {
    pub(super) fn error(self, kind: RuleErrorKind) -> RuleError {
        RuleError::new(self.whole, self.span(), kind)
    }

    fn span(self) -> Range<usize> {
        self.start..self.start + self.text.len()
    }

    /// The digits it starts with.
    pub(super) fn digits(self) -> Self {
        let end = self.text.find(|c: char| !c.is_ascii_digit()).unwrap_or(self.text.len());
        Self { text: &self.text[..end], ..self }
    }

    /// The rest of it from this byte on.
    pub(super) fn from(self, at: usize) -> Self {
        Self { start: self.start + at, text: &self.text[at..], ..self }
    }

    /// What stands before and after the byte at `at`.
    fn split(self, at: usize) -> (Self, Self) {
        (Self { text: &self.text[..at], ..self }, self.from(at + 1))
    }
}

struct Words<'t> {
    text: &'t str,
    at: usize,
}

impl<'t> Words<'t> {
    fn peek(&self) -> Option<Word<'t>> {
        let rest = &self.text[self.at..];
        let start = self.at + rest.find(|c: char| !c.is_ascii_whitespace())?;
        let rest = &self.text[start..];
        let length = rest.find(|c: char| c.is_ascii_whitespace()).unwrap_or(rest.len());
        Some(Word { whole: self.text, start, text: &rest[..length] })
    }

    fn next(&mut self) -> Option<Word<'t>> {
        let word = self.peek()?;
        self.at = word.span().end;
        Some(word)
    }

    /// Whether one of those left is this one.
    fn has(mut self, wanted: &str) -> bool {
        while let Some(word) = self.next() {
            if word.text == wanted {
                return true;
            }
        }
        false
    }

    /// Takes the next word if it is this one.
    fn take(&mut self, wanted: &str) -> bool {
        let found = self.peek().is_some_and(|word| word.text == wanted);
        if found {
            self.next();
        }
        found
    }

    fn needed(&mut self, expected: &'static str) -> Result<Word<'t>> {
        let end = self.text.len();
        self.next().ok_or_else(|| {
            RuleError::new(self.text, end..end, RuleErrorKind::Unfinished { expected })
        })
    }

    fn expect(&mut self, wanted: &str, expected: &'static str) -> Result<()> {
        let word = self.needed(expected)?;
        if word.text == wanted {
            return Ok(());
        }
        Err(word.error(RuleErrorKind::Expected { expected }))
    }

    /// The same, for options that may come in any order; `true` if this was it.
    fn set<T>(
        &mut self,
        option: &mut Option<T>,
        name: &str,
        what: &'static str,
        read: impl FnOnce(Word<'t>, &'static str) -> Result<T>,
    ) -> Result<bool> {
        let word = self.peek();
        let Some(value) = self.option(name, what, read)? else { return Ok(false) };
        match (option.replace(value), word) {
            (Some(_), Some(word)) => {
                Err(word.error(RuleErrorKind::Conflict { why: "it is said already" }))
            }
            _ => Ok(true),
        }
    }

    /// `name value`, if the next word is the name.
    fn option<T>(
        &mut self,
        name: &str,
        what: &'static str,
        read: impl FnOnce(Word<'t>, &'static str) -> Result<T>,
    ) -> Result<Option<T>> {
        if !self.take(name) {
            return Ok(None);
        }
        let word = self.needed("a value")?;
        read(word, what).map(Some)
    }
}

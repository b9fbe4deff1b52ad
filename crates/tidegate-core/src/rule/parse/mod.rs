//! The parser of rules: words from left to right, without backtracking or recursion.
//!
//! ```text
//! rule    = rate [shape] | nginx | "concurrency" N ["wait" T] ["lease" T]
//! rate    = N "/" [N] unit; one of 0 denies everything, and has no shape
//! shape   = ["burst" N] ["start empty"] | "paced" | "fixed" ["from" ("first" | instant)]
//!         | "calendar" ["in" zone] | "sliding-log" | "sliding" | "leaky" ["capacity" N]
//!         | "queue" ["capacity" N] ["wait" T] | "smooth" ["burst" N] | "warmup" T ["cold" N]
//! nginx   = N "r/s" | N "r/m", then ["burst=" N] ["nodelay" | "delay=" N]
//! ```
//!
//! Always   Any text gives a rule, or an error that points at the first wrong word.

pub(crate) mod anchor;
pub(super) mod number;

use super::diagnostics::words::{Word, Words};
use super::diagnostics::{BYTES_MAX, RuleError, RuleErrorKind, leading_word, trailing_word};
use super::{NginxDelay, RuleKind, WindowStart};
use crate::algorithm::{CalendarUnit, sliding_log};
use crate::rate::{COUNT_MAX, PER_MICROSECOND_MAX, Rate};
use crate::time::Span;
use alloc::borrow::ToOwned;
use anchor::Anchor;

type Result<T> = core::result::Result<T, RuleError>;

/// The largest cold factor.
const COLD_MAX: u64 = 1_000;

pub(super) fn parse(text: &str) -> Result<RuleKind> {
    if text.len() > BYTES_MAX {
        return Err(RuleError::new(text, 0..0, RuleErrorKind::TooLong));
    }
    let mut words = Words::new(text);
    let Some(first) = words.next() else {
        return Err(RuleError::new(text, 0..0, RuleErrorKind::Empty));
    };
    let is_rate = !first.text.starts_with("rate=");
    let kind = match first.text.split_once('/') {
        Some((count, _)) if is_rate && count.ends_with('r') => nginx(first, &mut words)?,
        Some((count, _)) if is_rate => limited(first.split(count.len()), &mut words)?,
        None if first.text == "concurrency" => concurrency(&mut words)?,
        _ => return Err(leading_word::error(first)),
    };
    match words.next() {
        Some(word) => Err(trailing_word::error(&kind, word)),
        None => Ok(kind),
    }
}

/// `N/period` and the words that follow.
fn limited((count, period): (Word<'_>, Word<'_>), words: &mut Words<'_>) -> Result<RuleKind> {
    if let Some(at) = period.text.find([',', ';', '&', '+'])
        && goes_on_with_a_rate(period.from(at))
    {
        return Err(period.from(at).error(RuleErrorKind::SeveralRules));
    }
    if leading_word::is_counted(count) {
        return Err(leading_word::error(count));
    }
    if count.text.contains('.') {
        let expected = "a whole number (write `3/2s` for 1.5 a second)";
        return Err(count.error(RuleErrorKind::Expected { expected }));
    }
    if count.text.bytes().all(|digit| digit == b'0') && !count.text.is_empty() {
        number::period(period)?;
        return Ok(RuleKind::Nothing);
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
        "paced" => take(RuleKind::TokenBucket { rate, burst: 1, starts_empty: false }),
        "sliding" => take(RuleKind::Sliding { rate }),
        "sliding-log" if rate.count > sliding_log::COUNT_MAX => {
            let (what, max) = ("the count of a log", sliding_log::COUNT_MAX);
            Err(count.error(RuleErrorKind::TooLarge { what, max, unit: "" }))
        }
        "sliding-log" => take(RuleKind::SlidingLog { rate }),
        "fixed" => fixed(rate, words),
        "leaky" => leaky(rate, words),
        "queue" => queue(rate, words),
        "smooth" => smooth(rate, words),
        "warmup" => warmup(rate, words),
        _ => token_bucket(rate, words),
    }
}

/// `, 100/min`.
fn goes_on_with_a_rate(word: Word<'_>) -> bool {
    let rest = word.onwards()[1..].trim_ascii_start();
    rest.starts_with(|c: char| c.is_ascii_digit()) && rest.contains('/')
}

fn rate(word: Word<'_>, count: u64, period: Word<'_>) -> Result<Rate> {
    let period = number::period(period)?;
    if u128::from(count) > u128::from(period.as_micros()) * u128::from(PER_MICROSECOND_MAX) {
        return Err(word.error(RuleErrorKind::TooFast));
    }
    Ok(Rate { count, period })
}

fn token_bucket(rate: Rate, words: &mut Words<'_>) -> Result<RuleKind> {
    let burst = words.option("burst", "the burst", number::count)?.unwrap_or(rate.count);
    let starts_empty = words.take("start");
    if starts_empty {
        let word = words.needed("`empty`")?;
        if word.text != "empty" {
            let expected = "`empty`: a bucket starts full unless it starts empty";
            return Err(word.error(RuleErrorKind::Expected { expected }));
        }
    }
    Ok(RuleKind::TokenBucket { rate, burst, starts_empty })
}

fn fixed(rate: Rate, words: &mut Words<'_>) -> Result<RuleKind> {
    words.next();
    if !words.take("from") {
        return Ok(RuleKind::Fixed { rate, from: WindowStart::Epoch });
    }
    let word = words.needed("`first`, or an instant such as `2024-01-01T00:00:00+08:00`,")?;
    let from = match word.text {
        "first" => WindowStart::FirstRequest,
        _ => match Anchor::parse(word)? {
            // An instant at a window's edge means the same as the epoch.
            anchor if anchor.offset_within(rate.period).is_zero() => WindowStart::Epoch,
            anchor => WindowStart::Anchor(anchor),
        },
    };
    Ok(RuleKind::Fixed { rate, from })
}

fn calendar(count: u64, period: Word<'_>, words: &mut Words<'_>) -> Result<RuleKind> {
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
        let is_utc = ["UTC", "Etc/UTC"].iter().any(|utc| utc.eq_ignore_ascii_case(word.text));
        zone = (!is_utc).then(|| word.text.to_owned());
    }
    Ok(RuleKind::Calendar { count, unit, zone })
}

fn leaky(rate: Rate, words: &mut Words<'_>) -> Result<RuleKind> {
    words.next();
    let capacity = words.option("capacity", "the capacity", number::count)?;
    Ok(RuleKind::Leaky { rate, capacity: capacity.unwrap_or(rate.count) })
}

fn queue(rate: Rate, words: &mut Words<'_>) -> Result<RuleKind> {
    words.next();
    let (mut capacity, mut wait) = (None, None);
    while words.set(&mut capacity, "capacity", "the capacity", number::count)?
        || words.set(&mut wait, "wait", "the wait", number::span)?
    {}
    Ok(RuleKind::Queue { rate, capacity: capacity.unwrap_or(rate.count), wait })
}

fn smooth(rate: Rate, words: &mut Words<'_>) -> Result<RuleKind> {
    words.next();
    let burst = words.option("burst", "the burst", number::count)?;
    // An explicit burst of one second's worth is the default, and prints as such.
    let is_default = |burst: &u64| {
        u128::from(*burst) * u128::from(rate.period.as_micros())
            == u128::from(rate.count) * u128::from(Span::from_secs(1).as_micros())
    };
    Ok(RuleKind::Smooth { rate, burst: burst.filter(|burst| !is_default(burst)) })
}

fn warmup(rate: Rate, words: &mut Words<'_>) -> Result<RuleKind> {
    words.next();
    let word = words.needed("how long it takes, such as `warmup 1s`,")?;
    let warmup = number::span(word, "the warm-up")?;
    let cold =
        words.option("cold", "the cold factor", |word, what| match number::count(word, what)? {
            1 => {
                let why = "a cold factor of 1 means no warm-up; write `smooth` instead";
                Err(word.error(RuleErrorKind::Conflict { why }))
            }
            cold if cold > COLD_MAX => {
                Err(word.error(RuleErrorKind::TooLarge { what, max: COLD_MAX, unit: "" }))
            }
            cold => Ok(cold),
        })?;
    Ok(RuleKind::Warmup { rate, warmup, cold: cold.unwrap_or(3) })
}

fn concurrency(words: &mut Words<'_>) -> Result<RuleKind> {
    let word = words.needed("how many may be in flight, such as `concurrency 5`,")?;
    let max = number::count(word, "the number in flight")?;
    let (mut wait, mut lease) = (None, None);
    while words.set(&mut wait, "wait", "the wait", number::span)?
        || words.set(&mut lease, "lease", "the lease", number::span)?
    {}
    Ok(RuleKind::Concurrency { max, wait, lease })
}

/// Parses nginx's spelling: the rate of a `limit_req_zone` and the options of a `limit_req`.
fn nginx(first: Word<'_>, words: &mut Words<'_>) -> Result<RuleKind> {
    let digits = first.digits();
    let per_second = match &first.text[digits.text.len()..] {
        "r/s" => true,
        "r/m" => false,
        _ => {
            let expected = "nginx's `r/s` or `r/m`";
            return Err(first.from(digits.text.len()).error(RuleErrorKind::Expected { expected }));
        }
    };
    let count = number::count_or_zero(digits, "the rate")?;
    if count == 0 {
        let (why, write) = ("a rule that denies everything is a rate of 0", "0/s".to_owned());
        return Err(first.error(RuleErrorKind::Rewrite { why, write }));
    }
    if count > PER_MICROSECOND_MAX * 1_000_000 {
        return Err(digits.error(RuleErrorKind::TooFast));
    }
    let (mut burst, mut delay) = (None, None);
    while let Some(word) = words.peek() {
        match word.text.split_once('=') {
            Some((name @ "burst", _)) => {
                let (name, value) = word.split(name.len());
                if burst.replace(nginx_count(value, "the burst")?).is_some() {
                    return Err(name.error(RuleErrorKind::Repeated));
                }
            }
            Some((name @ "delay", _)) => {
                let (_, value) = word.split(name.len());
                let requests = NginxDelay::After(nginx_count(value, "the delay")?);
                set_delay(&mut delay, requests, word)?;
            }
            _ if word.text == "nodelay" => set_delay(&mut delay, NginxDelay::Never, word)?,
            _ => break,
        }
        words.next();
    }
    let delay = delay.unwrap_or(NginxDelay::After(0));
    Ok(RuleKind::Nginx { count, per_second, burst: burst.unwrap_or(0), delay })
}

fn set_delay(delay: &mut Option<NginxDelay>, value: NginxDelay, word: Word<'_>) -> Result<()> {
    let why = "a rule has only one of `nodelay` and `delay=`";
    match delay.replace(value) {
        Some(_) => Err(word.error(RuleErrorKind::Conflict { why })),
        None => Ok(()),
    }
}

/// Parses a count of nginx, which counts in thousandths, in 64 bits.
fn nginx_count(word: Word<'_>, what: &'static str) -> Result<u64> {
    let max = COUNT_MAX / 1_000;
    match number::count_or_zero(word, what)? {
        count if count > max => Err(word.error(RuleErrorKind::TooLarge { what, max, unit: "" })),
        count => Ok(count),
    }
}

//! Rules as numbers, which a test generates, prints as rule text for core, and passes to an oracle.

use super::Oracle;
use super::concurrency::Concurrency;
use super::leaky::Leaky;
use super::nginx::Nginx;
use super::queue::Queue;
use super::rate::Rate;
use super::sliding::Sliding;
use super::sliding_log::SlidingLog;
use super::smooth::Smooth;
use super::token_bucket::TokenBucket;
use super::windows::{Cut, Windows};
use jiff::tz::{Offset, TimeZone};
use std::fmt;
use tidegate_core::{CalendarUnit, Span, Timestamp};

/// A rule of any algorithm. It prints as rule text, not in the canonical form.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are those of the rule text")]
pub enum Rule {
    TokenBucket { rate: Rate, burst: u64, starts_empty: bool },
    Leaky { rate: Rate, capacity: u64 },
    Queue { rate: Rate, capacity: u64, wait: Option<Span> },
    Fixed { rate: Rate, from: From },
    Calendar { count: u64, unit: CalendarUnit },
    SlidingLog { rate: Rate },
    Sliding { rate: Rate },
    Smooth { rate: Rate, burst: Option<u64> },
    Warmup { rate: Rate, warmup: Span, cold: u64 },
    Concurrency { max: u64, lease: Option<Span> },
    Nginx { count: u64, per_second: bool, burst: u64, delay: Option<u64> },
}

/// The alignment of fixed windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum From {
    /// At the epoch.
    Epoch,
    /// With the first request.
    FirstRequest,
    /// At this instant.
    Anchor(Anchor),
}

/// An instant, written with an offset from UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Anchor {
    /// Seconds since the epoch.
    pub secs: i64,
    /// The offset from UTC.
    pub offset_mins: i32,
}

impl fmt::Display for Anchor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let offset = Offset::from_seconds(self.offset_mins * 60).map_err(|_| fmt::Error)?;
        let instant = jiff::Timestamp::from_second(self.secs).map_err(|_| fmt::Error)?;
        let zoned = instant.to_zoned(TimeZone::fixed(offset));
        write!(f, "{}", zoned.strftime("%Y-%m-%dT%H:%M:%S%:z"))
    }
}

impl Rule {
    /// Returns the oracle of this rule for one key; `None` for a warm-up, which is compared differently.
    pub fn oracle(&self, birth: Timestamp) -> Option<Box<dyn Oracle>> {
        Some(match *self {
            Self::TokenBucket { rate, burst, starts_empty: false } => {
                Box::new(TokenBucket::full(rate, burst, birth))
            }
            Self::TokenBucket { rate, burst, starts_empty: true } => {
                Box::new(TokenBucket::empty(rate, burst, birth))
            }
            Self::Leaky { rate, capacity } => Box::new(Leaky::new(rate, capacity, birth)),
            Self::Queue { rate, capacity, wait } => Box::new(Queue::new(rate, capacity, wait)),
            Self::Fixed { rate, from } => Box::new(Windows::new(rate.count, cut(rate, from))),
            Self::Calendar { count, unit } => Box::new(Windows::new(count, Cut::Calendar(unit))),
            Self::SlidingLog { rate } => Box::new(SlidingLog::new(rate)),
            Self::Sliding { rate } => Box::new(Sliding::new(rate)),
            Self::Smooth { rate, burst } => Box::new(Smooth::new(rate, burst, birth)),
            Self::Warmup { .. } => return None,
            Self::Concurrency { max, lease } => Box::new(Concurrency::new(max, lease)),
            Self::Nginx { count, per_second, burst, delay } => {
                Box::new(Nginx::new(count, per_second, burst, delay))
            }
        })
    }
}

fn cut(rate: Rate, from: From) -> Cut {
    let period = rate.period;
    match from {
        From::Epoch => Cut::Aligned { from_us: 0, period },
        From::FirstRequest => Cut::FirstAdmission { period },
        From::Anchor(Anchor { secs, .. }) => {
            Cut::Aligned { from_us: i128::from(secs) * 1_000_000, period }
        }
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::TokenBucket { rate, burst, starts_empty } => {
                let start = if starts_empty { " start empty" } else { "" };
                write!(f, "{rate} burst {burst}{start}")
            }
            Self::Leaky { rate, capacity } => write!(f, "{rate} leaky capacity {capacity}"),
            Self::Queue { rate, capacity, wait } => {
                write!(f, "{rate} queue capacity {capacity}{}", Optional(" wait ", wait))
            }
            Self::Fixed { rate, from: From::Epoch } => write!(f, "{rate} fixed"),
            Self::Fixed { rate, from: From::FirstRequest } => write!(f, "{rate} fixed from first"),
            Self::Fixed { rate, from: From::Anchor(anchor) } => {
                write!(f, "{rate} fixed from {anchor}")
            }
            Self::Calendar { count, unit } => write!(f, "{count}/{} calendar", unit_name(unit)),
            Self::SlidingLog { rate } => write!(f, "{rate} sliding-log"),
            Self::Sliding { rate } => write!(f, "{rate} sliding"),
            Self::Smooth { rate, burst } => {
                write!(f, "{rate} smooth{}", Optional(" burst ", burst))
            }
            Self::Warmup { rate, warmup, cold } => write!(f, "{rate} warmup {warmup} cold {cold}"),
            Self::Concurrency { max, lease } => {
                write!(f, "concurrency {max}{}", Optional(" lease ", lease))
            }
            Self::Nginx { count, per_second, burst, delay } => {
                let unit = if per_second { "s" } else { "m" };
                let delay = delay.map_or("nodelay".to_owned(), |delay| format!("delay={delay}"));
                write!(f, "{count}r/{unit} burst={burst} {delay}")
            }
        }
    }
}

fn unit_name(unit: CalendarUnit) -> &'static str {
    match unit {
        CalendarUnit::Minute => "min",
        CalendarUnit::Hour => "h",
        CalendarUnit::Day => "day",
        CalendarUnit::Week => "week",
        CalendarUnit::Month => "month",
        CalendarUnit::Year => "year",
    }
}

/// Prints a word and its value, or nothing if there is no value.
struct Optional<T>(&'static str, Option<T>);

impl<T: fmt::Display> fmt::Display for Optional<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.1.iter().try_for_each(|value| write!(f, "{}{value}", self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_anchor_prints_as_rfc_3339_writes_it() {
        let anchor = Anchor { secs: 1_704_038_400, offset_mins: 480 };
        assert_eq!(anchor.to_string(), "2024-01-01T00:00:00+08:00");
        let anchor = Anchor { secs: 0, offset_mins: -150 };
        assert_eq!(anchor.to_string(), "1969-12-31T21:30:00-02:30");
    }
}

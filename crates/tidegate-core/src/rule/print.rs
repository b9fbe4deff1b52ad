//! Prints a rule as canonical text: one spelling for each rule, without defaults.

use super::{NginxDelay, ParsedRule, RuleKind, WindowStart};
use crate::algorithm::CalendarUnit;
use crate::rate::Rate;
use crate::time::Span;
use core::fmt;

impl fmt::Display for ParsedRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            RuleKind::TokenBucket { rate, burst, starts_empty } => {
                token_bucket(f, *rate, *burst, *starts_empty)
            }
            RuleKind::Fixed { rate, from } => {
                write!(f, "{rate} fixed")?;
                match from {
                    WindowStart::Epoch => Ok(()),
                    WindowStart::FirstRequest => f.write_str(" from first"),
                    WindowStart::Anchor(anchor) => write!(f, " from {anchor}"),
                }
            }
            RuleKind::Calendar { count, unit, zone } => {
                write!(f, "{count}/{} calendar", unit_name(*unit))?;
                zone.iter().try_for_each(|zone| write!(f, " in {zone}"))
            }
            RuleKind::SlidingLog { rate } => write!(f, "{rate} sliding-log"),
            RuleKind::Sliding { rate } => write!(f, "{rate} sliding"),
            RuleKind::Leaky { rate, capacity } => {
                write!(f, "{rate} leaky")?;
                option(f, "capacity", Some(capacity).filter(|c| **c != rate.count))
            }
            RuleKind::Queue { rate, capacity, wait } => {
                write!(f, "{rate} queue")?;
                option(f, "capacity", Some(capacity).filter(|c| **c != rate.count))?;
                option(f, "wait", wait.as_ref())
            }
            RuleKind::Smooth { rate, burst } => {
                write!(f, "{rate} smooth")?;
                option(f, "burst", burst.as_ref())
            }
            RuleKind::Warmup { rate, warmup, cold } => {
                write!(f, "{rate} warmup {warmup}")?;
                option(f, "cold", Some(cold).filter(|cold| **cold != 3))
            }
            RuleKind::Concurrency { max, wait, lease } => {
                write!(f, "concurrency {max}")?;
                option(f, "wait", wait.as_ref())?;
                option(f, "lease", lease.as_ref())
            }
            RuleKind::Nothing => f.write_str("0/s"),
            RuleKind::Nginx { count, per_second, burst, delay } => {
                write!(f, "{count}r/{}", if *per_second { "s" } else { "m" })?;
                if *burst > 0 {
                    write!(f, " burst={burst}")?;
                }
                match delay {
                    NginxDelay::Never => f.write_str(" nodelay"),
                    NginxDelay::After(0) => Ok(()),
                    NginxDelay::After(requests) => write!(f, " delay={requests}"),
                }
            }
        }
    }
}

fn token_bucket(
    f: &mut fmt::Formatter<'_>,
    rate: Rate,
    burst: u64,
    starts_empty: bool,
) -> fmt::Result {
    write!(f, "{rate}")?;
    match burst {
        burst if burst == rate.count => {}
        1 if !starts_empty => return f.write_str(" paced"),
        burst => write!(f, " burst {burst}")?,
    }
    if starts_empty { f.write_str(" start empty") } else { Ok(()) }
}

fn option(
    f: &mut fmt::Formatter<'_>,
    name: &str,
    value: Option<&impl fmt::Display>,
) -> fmt::Result {
    value.map_or(Ok(()), |value| write!(f, " {name} {value}"))
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.count, Period(self.period))
    }
}

/// Prints a period without its number if that is one: `100/s`.
struct Period(Span);

impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = crate::time::UNITS.iter().find(|(_, us)| *us == self.0.as_micros());
        match unit {
            Some((name, _)) => f.write_str(name),
            None => write!(f, "{}", self.0),
        }
    }
}

pub(super) fn unit_name(unit: CalendarUnit) -> &'static str {
    match unit {
        CalendarUnit::Minute => "min",
        CalendarUnit::Hour => "h",
        CalendarUnit::Day => "day",
        CalendarUnit::Week => "week",
        CalendarUnit::Month => "month",
        CalendarUnit::Year => "year",
    }
}

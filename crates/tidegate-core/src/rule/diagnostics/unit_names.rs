//! Units as people write them, and the units of the rule language that they mean.

use crate::time::UNITS;

/// Returns the unit that `text` is, or was probably meant to be.
pub(in crate::rule) fn meant(text: &str) -> Option<&'static str> {
    let known = UNITS.iter().find(|(name, _)| *name == text);
    known.map(|(name, _)| *name).or_else(|| synonym(text))
}

/// Returns the unit for another spelling of it.
pub(in crate::rule) fn synonym(text: &str) -> Option<&'static str> {
    let plain = text.trim_end_matches([',', ';', '.']).to_ascii_lowercase();
    Some(match plain.as_str() {
        "s" | "sec" | "secs" | "second" | "seconds" => "s",
        "m" | "min" | "mins" | "minute" | "minutes" => "min",
        "h" | "hour" | "hours" | "hr" | "hrs" => "h",
        "d" | "day" | "days" => "day",
        "w" | "week" | "weeks" => "week",
        "us" | "µs" | "μs" | "usec" | "microsecond" | "microseconds" => "us",
        "ms" | "msec" | "millis" | "millisecond" | "milliseconds" => "ms",
        "mo" | "month" | "months" => "month calendar",
        "y" | "yr" | "year" | "years" => "year calendar",
        _ => return None,
    })
}

//! Durations in a configuration: a whole number and a unit, as in rules.

use super::report::Problem;
use std::time::Duration;
use tidegate::Span;

const UNITS: [(&str, u64); 7] = Span::UNITS;

/// Common spellings of units, and the units that they mean.
const ALIASES: [(&str, &str); 9] = [
    ("m", "min"),
    ("mins", "min"),
    ("minutes", "min"),
    ("sec", "s"),
    ("secs", "s"),
    ("seconds", "s"),
    ("hours", "h"),
    ("d", "day"),
    ("days", "day"),
];

/// Parses a duration such as `500ms`, `10s` or `5min`.
pub(super) fn read(text: &str) -> Result<Duration, Problem> {
    let unit_at = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, unit) = text.split_at(unit_at);
    let example =
        format!("write a whole number and a unit, such as \"{}s\"", number_or(digits, 10));
    if digits.is_empty() {
        return Err(Problem::new("a duration starts with a whole number").hint(example));
    }
    if unit.is_empty() {
        return Err(
            Problem::new("a duration needs a unit: us, ms, s, min, h, day or week").hint(example)
        );
    }
    let Some((_, us)) = UNITS.iter().find(|(known, _)| *known == unit) else {
        let meant = ALIASES.iter().find(|(other, _)| *other == unit);
        let hint = meant.map_or(example, |(_, meant)| format!("did you mean \"{digits}{meant}\"?"));
        return Err(Problem::new("unknown unit: write us, ms, s, min, h, day or week").hint(hint));
    };
    let number: Option<u64> = digits.parse().ok();
    match number.and_then(|number| number.checked_mul(*us)) {
        Some(us) => Ok(Duration::from_micros(us)),
        None => Err(Problem::new("this duration is too long")),
    }
}

fn number_or(digits: &str, otherwise: u64) -> u64 {
    digits.parse().unwrap_or(otherwise)
}

/// Formats a duration in the largest unit that divides it.
pub(super) fn show(duration: Duration) -> String {
    let us = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
    let whole = UNITS.iter().find(|(_, unit)| us > 0 && us.is_multiple_of(*unit));
    whole.map_or("0s".to_owned(), |(name, unit)| format!("{}{name}", us / unit))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_duration_has_a_unit() {
        assert_eq!(read("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(read("5min"), Ok(Duration::from_secs(300)));
        assert_eq!(read("0s"), Ok(Duration::ZERO));
        for text in ["", "10", "s", "1.5s", "-1s", "10 s", "10S", "10m", "99999999999999999999s"] {
            assert!(read(text).is_err(), "{text:?} was read");
        }
        let minutes = Problem::new("unknown unit: write us, ms, s, min, h, day or week");
        assert_eq!(read("5m"), Err(minutes.hint("did you mean \"5min\"?")));
        let most = format!("{}week", u64::MAX / 604_800_000_000);
        assert!(read(&most).is_ok());
        assert!(read(&format!("{}week", u64::MAX / 604_800_000_000 + 1)).is_err());
    }

    proptest! {
        #[test]
        fn a_shown_duration_reads_back(us in any::<u64>()) {
            let duration = Duration::from_micros(us);
            prop_assert_eq!(read(&show(duration)), Ok(duration));
        }

        #[test]
        fn no_text_panics(text in ".*") {
            drop(read(&text));
        }
    }
}

//! Parses times in scenarios: spans such as `1h30min`, and instants of RFC 3339.
//!
//! Always   Times are whole microseconds and never rounded: a finer time is an error.

use tidegate_core::{Span, Timestamp};

/// Parses a span such as `1h30min`, `500ms` or `0s`: whole numbers with units, added up.
pub(super) fn span(text: &str) -> Result<Span, String> {
    let wrong = || format!("`{text}` is not a time such as `500ms` or `1h30min`");
    let mut rest = text;
    let mut us = 0_u64;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?;
        let number: u64 = rest[..digits].parse().map_err(|_| wrong())?;
        rest = &rest[digits..];
        let unit = &rest[..rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len())];
        let unit_us = unit_us(unit).ok_or_else(|| {
            format!("unknown unit `{unit}` in `{text}`: expected us, ms, s, min, h, day or week")
        })?;
        let part = number.checked_mul(unit_us).and_then(|part| us.checked_add(part));
        us = part.ok_or_else(|| format!("`{text}` is longer than the longest span"))?;
        rest = &rest[unit.len()..];
    }
    if text.is_empty() { Err(wrong()) } else { Ok(Span::from_micros(us)) }
}

fn unit_us(unit: &str) -> Option<u64> {
    Some(match unit {
        "us" => 1,
        "ms" => 1_000,
        "s" => 1_000_000,
        "min" => 60_000_000,
        "h" => 3_600_000_000,
        "day" => 86_400_000_000,
        "week" => 604_800_000_000,
        _ => return None,
    })
}

/// Parses a span after `start`, or an instant.
pub(super) fn moment(text: &str, start: Timestamp) -> Result<Timestamp, String> {
    if text.contains('T') {
        return instant(text);
    }
    let offset = span(text)?.as_micros();
    let at = start.as_micros().checked_add(offset);
    at.map(Timestamp::from_micros).ok_or_else(|| format!("`{text}` is after the latest timestamp"))
}

/// Parses an instant such as `2024-03-10T00:00:00-08:00`, to the microsecond.
pub(super) fn instant(text: &str) -> Result<Timestamp, String> {
    let wrong = "is not an instant such as `2024-03-10T00:00:00-08:00`";
    let instant: jiff::Timestamp = text.parse().map_err(|_| format!("`{text}` {wrong}"))?;
    if instant.subsec_nanosecond() % 1_000 != 0 {
        return Err(format!("`{text}` is finer than a microsecond"));
    }
    let us = u64::try_from(instant.as_microsecond());
    us.map(Timestamp::from_micros).map_err(|_| format!("`{text}` is before 1970"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_of_a_span_add_up() {
        assert_eq!(span("0s"), Ok(Span::ZERO));
        assert_eq!(span("1h30min"), Ok(Span::from_secs(5_400)));
        assert_eq!(span("1day1us"), Ok(Span::from_micros(86_400_000_001)));
        assert_eq!(span("18446744073709551615us"), Ok(Span::MAX));
    }

    #[test]
    fn invalid_spans_are_errors() {
        assert_eq!(
            span("5m").unwrap_err(),
            "unknown unit `m` in `5m`: expected us, ms, s, min, h, day or week"
        );
        assert_eq!(span("5").unwrap_err(), "`5` is not a time such as `500ms` or `1h30min`");
        assert_eq!(span("").unwrap_err(), "`` is not a time such as `500ms` or `1h30min`");
        let long = "18446744073709551615us1us";
        assert_eq!(span(long).unwrap_err(), format!("`{long}` is longer than the longest span"));
        assert!(span("-1s").is_err() && span("1.5s").is_err() && span("s").is_err());
    }

    #[test]
    fn an_instant_has_an_offset_and_whole_microseconds() {
        let at = instant("2024-01-01T08:00:00.000001+08:00").unwrap();
        assert_eq!(at, Timestamp::from_micros(1_704_067_200_000_001));
        assert!(instant("2024-01-01T08:00:00").unwrap_err().contains("is not an instant"));
        assert!(instant("2024-02-30T00:00:00Z").unwrap_err().contains("is not an instant"));
        assert!(instant("2024-01-01T08:00:00.0000001Z").unwrap_err().contains("finer"));
        assert!(instant("1969-12-31T23:59:59Z").unwrap_err().contains("before 1970"));
    }

    #[test]
    fn a_moment_counts_from_the_start() {
        let start = Timestamp::from_micros(5);
        assert_eq!(moment("2us", start), Ok(Timestamp::from_micros(7)));
        assert_eq!(moment("1970-01-01T00:00:00Z", start), Ok(Timestamp::EPOCH));
        assert!(moment("18446744073709551615us", start).unwrap_err().contains("latest timestamp"));
    }
}

//! Converts rules to Envoy's rates, a number of requests in a unit of time, and back.
//!
//! Invariant A period that is not one of Envoy's units becomes `Unknown` and is never rounded, because Envoy sends the unit to
//!           clients.

use super::proto::{RateLimit, RateLimitOverride, Unit};
use tidegate::Rule;

/// Describes a limit for Envoy.
pub(super) fn describe_rule(name: &str, rule: &Rule) -> RateLimit {
    let (count, unit) = rate(&rule.to_string());
    RateLimit {
        requests_per_unit: u32::try_from(count).unwrap_or(u32::MAX),
        unit: unit.into(),
        name: name.to_owned(),
        unit_multiplier: None,
    }
}

/// Describes a descriptor's own limit for Envoy, as it was sent.
pub(super) fn describe_override(own: &RateLimitOverride) -> RateLimit {
    RateLimit {
        requests_per_unit: own.requests_per_unit,
        unit: own.unit,
        name: String::new(),
        unit_multiplier: own.unit_multiplier,
    }
}

/// Returns the rule of a descriptor's own limit; `None` if it admits nothing.
pub(super) fn rule_text(own: &RateLimitOverride) -> Option<String> {
    let RateLimitOverride { requests_per_unit, unit_multiplier, .. } = *own;
    let (count, unit) = match own.unit() {
        // A request without a unit has been refused before; the shortest unit is the mildest.
        Unit::Unknown | Unit::Second => (1, "s"),
        Unit::Minute => (1, "min"),
        Unit::Hour => (1, "h"),
        Unit::Day => (1, "day"),
        Unit::Week => (1, "week"),
        Unit::Month => (30, "day"),
        Unit::Year => (365, "day"),
    };
    let units = u64::from(unit_multiplier.unwrap_or(1).max(1)) * count;
    (requests_per_unit > 0).then(|| format!("{requests_per_unit}/{units}{unit} fixed"))
}

/// Parses the rate at the beginning of a rule's canonical text. A concurrency limit has no period.
fn rate(rule: &str) -> (u64, Unit) {
    let mut words = rule.split(' ');
    let first = words.next().unwrap_or_default();
    let Some((count, period)) = first.split_once('/') else {
        return (number(words.next().unwrap_or_default()), Unit::Unknown);
    };
    match count.strip_suffix('r') {
        // In nginx's syntax a minute is `m`.
        Some(count) if period == "m" => (number(count), Unit::Minute),
        Some(count) => (number(count), unit(period)),
        None => (number(count), unit(period)),
    }
}

fn number(digits: &str) -> u64 {
    digits.parse().expect("a rule prints its count in digits")
}

fn unit(period: &str) -> Unit {
    match period {
        "s" => Unit::Second,
        "min" => Unit::Minute,
        "h" => Unit::Hour,
        "day" => Unit::Day,
        "week" => Unit::Week,
        // The lengths of Envoy's months and years.
        "month" | "30day" => Unit::Month,
        "year" | "365day" => Unit::Year,
        _ => Unit::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn described(rule: &str) -> (u32, Unit) {
        let limit = describe_rule("name", &rule.parse().unwrap());
        assert_eq!((limit.name.as_str(), limit.unit_multiplier), ("name", None));
        (limit.requests_per_unit, limit.unit())
    }

    #[test]
    fn a_rule_of_one_unit_is_told_in_it() {
        assert_eq!(described("100/s burst 20"), (100, Unit::Second));
        assert_eq!(described("20/60s fixed"), (20, Unit::Minute));
        assert_eq!(described("5/h sliding"), (5, Unit::Hour));
        assert_eq!(described("7/24h sliding-log"), (7, Unit::Day));
        assert_eq!(described("7/7day fixed"), (7, Unit::Week));
        assert_eq!(described("1/month calendar in Asia/Shanghai"), (1, Unit::Month));
        assert_eq!(described("1/30day fixed"), (1, Unit::Month));
        assert_eq!(described("1/year calendar"), (1, Unit::Year));
        assert_eq!(described("1/365day fixed"), (1, Unit::Year));
        assert_eq!(described("10r/s burst=5 nodelay"), (10, Unit::Second));
        assert_eq!(described("30r/m"), (30, Unit::Minute));
        assert_eq!(described("20/s paced"), (20, Unit::Second));
        assert_eq!(described("5/s warmup 1s"), (5, Unit::Second));
    }

    #[test]
    fn any_other_period_is_unknown() {
        for rule in ["50/10s", "1/ms", "1/2min fixed", "3/1500ms leaky", "1/2week fixed"] {
            assert_eq!(described(rule).1, Unit::Unknown, "{rule}");
        }
        assert_eq!(described("concurrency 5 lease 30s"), (5, Unit::Unknown));
    }

    #[test]
    fn a_count_above_envoys_maximum_becomes_the_maximum() {
        assert_eq!(described("5000000000/s"), (u32::MAX, Unit::Second));
    }

    #[test]
    fn every_limit_that_envoy_can_send_is_a_rule() {
        let texts = [
            "4294967295/s fixed",
            "4294967295/min fixed",
            "4294967295/h fixed",
            "4294967295/day fixed",
            "4294967295/30day fixed",
            "4294967295/365day fixed",
            "4294967295/week fixed",
        ];
        for (unit, text) in (1..).zip(texts) {
            let requests_per_unit = u32::MAX;
            let own = RateLimitOverride { requests_per_unit, unit, unit_multiplier: None };
            let rule: Rule = rule_text(&own).unwrap().parse().unwrap();
            assert_eq!(rule.to_string(), text);
            assert_eq!(rate(text), (u32::MAX.into(), own.unit()));
            assert_eq!(describe_override(&own).unit, unit);
        }
    }

    #[test]
    fn several_units_are_one_period() {
        let own = RateLimitOverride { requests_per_unit: 5, unit: 1, unit_multiplier: Some(10) };
        assert_eq!(rule_text(&own).as_deref(), Some("5/10s fixed"));
        assert_eq!(describe_override(&own).unit_multiplier, Some(10));
    }

    #[test]
    fn a_limit_of_0_is_not_a_rule() {
        let own = RateLimitOverride { requests_per_unit: 0, unit: 1, unit_multiplier: None };
        assert_eq!(rule_text(&own), None);
    }
}

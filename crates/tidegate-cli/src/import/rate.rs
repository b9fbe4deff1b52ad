//! Translates a `rate_limit` of envoyproxy/ratelimit into a rule.

use super::Untranslated;
use super::yaml::{Node, Yaml, line};
use serde_saphyr::Spanned;

/// Envoy's units and their periods. Its months have 30 days and its years 365.
const UNITS: [(&str, &str); 7] = [
    ("second", "s"),
    ("minute", "min"),
    ("hour", "h"),
    ("day", "day"),
    ("week", "week"),
    ("month", "30day"),
    ("year", "365day"),
];

/// The rate limit of a descriptor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RateLimit {
    /// `None` if it is unlimited.
    pub(super) rule: Option<String>,
    pub(super) name: Option<String>,
    /// Names of limits, with their lines.
    pub(super) replaces: Vec<(u64, String)>,
    /// The limit as Envoy states it, for a comment.
    pub(super) original: String,
}

/// Reads a rate limit, or returns `None` and reports why it cannot be translated.
pub(super) fn read(node: &Node, untranslated: &mut Vec<Untranslated>) -> Option<RateLimit> {
    let mut report = |line: u64, why: String| untranslated.push(Untranslated { line, why });
    let Yaml::Map(entries) = &node.value else {
        report(line(node), "`rate_limit` is not a map".to_owned());
        return None;
    };
    let (mut unit, mut count, mut is_unlimited) = (None, None, false);
    let (mut name, mut replaces) = (None, Vec::new());
    for (key, value) in entries {
        match (key.value.as_str(), &value.value) {
            ("unit", Yaml::Text(text)) => unit = Some((line(value), text.to_ascii_lowercase())),
            ("requests_per_unit", Yaml::Whole(number)) => count = Some((line(value), *number)),
            ("unlimited", Yaml::Flag(flag)) => is_unlimited = *flag,
            ("name", Yaml::Text(text)) => name = Some(text.clone()),
            ("replaces", Yaml::List(list)) => {
                for entry in list {
                    match replaced(entry) {
                        Some(name) => replaces.push((line(&name), name.value)),
                        None => report(line(entry), "this `replaces` has no name".to_owned()),
                    }
                }
            }
            (other, _) => report(line(key), unknown(other)),
        }
    }
    if is_unlimited {
        if let Some((line, _)) = unit {
            report(line, "an unlimited `rate_limit` has no `unit`".to_owned());
        }
        return Some(RateLimit { rule: None, name, replaces, original: "unlimited".to_owned() });
    }
    let (rule, original) =
        rule(unit, count, line(node)).map_err(|out| untranslated.push(out)).ok()?;
    Some(RateLimit { rule: Some(rule), name, replaces, original })
}

fn unknown(key: &str) -> String {
    match key {
        "unit" | "requests_per_unit" | "unlimited" | "name" | "replaces" => {
            format!("this is not a value for `{key}`")
        }
        _ => format!("unknown key `{}` in `rate_limit`", key.escape_debug()),
    }
}

fn replaced(entry: &Node) -> Option<Spanned<String>> {
    let Yaml::Map(entries) = &entry.value else { return None };
    let [(key, value)] = &entries[..] else { return None };
    let Yaml::Text(name) = &value.value else { return None };
    (key.value == "name").then(|| Spanned::new(name.clone(), value.referenced, value.defined))
}

/// Returns the rule, and the limit as Envoy states it.
fn rule(
    unit: Option<(u64, String)>,
    count: Option<(u64, u64)>,
    line: u64,
) -> Result<(String, String), Untranslated> {
    let missing = |what: &str| Untranslated { line, why: format!("`rate_limit` has no `{what}`") };
    let (unit_line, unit) = unit.ok_or_else(|| missing("unit"))?;
    let (count_line, count) = count.ok_or_else(|| missing("requests_per_unit"))?;
    let Some((_, period)) = UNITS.iter().find(|(name, _)| *name == unit) else {
        let why = format!("unknown unit `{}`", unit.escape_debug());
        return Err(Untranslated { line: unit_line, why });
    };
    if count > u64::from(u32::MAX) {
        let why = format!("{count} requests per unit are more than envoyproxy/ratelimit supports");
        return Err(Untranslated { line: count_line, why });
    }
    let rule = if count == 0 { "0/s".to_owned() } else { format!("{count}/{period} fixed") };
    Ok((rule, format!("{count} per {unit}")))
}

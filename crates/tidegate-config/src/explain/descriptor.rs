//! Explains a request of Envoy's: which limit each descriptor matches, and why.
//!
//! Always   Limits are looked up with the code of the gRPC service ([`Descriptors`]).

use super::limit::{KeyToPeek, LimitExplanation};
use crate::config::{LimitConfig, Mode};
use crate::matching::{
    DescriptorMatch, Descriptors, MatchedEntry, descriptor_key, names_credential,
};
use serde::Serialize;

/// Which limit one descriptor matches.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DescriptorExplanation {
    /// The descriptor's entries.
    pub descriptor: String,
    /// The entry of the configuration that each entry matched, and those that it hides; or the entry that no limit has.
    pub why: String,
    /// The limit that the descriptor matches.
    pub limit: Option<LimitExplanation>,
}

/// An entry of a descriptor: key and value.
pub type Entry = (String, String);

/// Returns which of these limits each descriptor of this domain matches.
pub(super) fn explained(
    limits: &[&LimitConfig],
    descriptors: &Descriptors,
    domain: &str,
    requested: &[Vec<Entry>],
) -> Vec<DescriptorExplanation> {
    let requested: Vec<Vec<(&str, &str)>> =
        requested.iter().map(|entries| pairs(entries)).collect();
    let matches: Vec<DescriptorMatch> =
        requested.iter().map(|entries| descriptors.follow(domain, entries)).collect();
    let limits_found: Vec<Option<usize>> = matches.iter().map(|found| found.limit).collect();
    let has_domain = descriptors.has_domain(domain);
    let explain =
        |(entries, found): (&Vec<(&str, &str)>, &DescriptorMatch)| DescriptorExplanation {
            descriptor: shown(entries),
            why: if has_domain {
                why(entries, found)
            } else {
                "no limit has this domain".to_owned()
            },
            limit: found.limit.map(|index| {
                let replacing = descriptors.replacing(&limits_found, index);
                let replacing = replacing.map(|index| limits[index].name.as_str());
                LimitExplanation::of_descriptor(index, limits[index], replacing, entries)
            }),
        };
    requested.iter().zip(&matches).map(explain).collect()
}

impl LimitExplanation {
    fn of_descriptor(
        index: usize,
        limit: &LimitConfig,
        replaced_by: Option<&str>,
        entries: &[(&str, &str)],
    ) -> Self {
        let (counts, why) = match replaced_by {
            Some(other) => (false, format!("{other} replaces it")),
            None if limit.mode == Mode::Off => (false, "its mode is off".to_owned()),
            None => (true, "the descriptor matches it".to_owned()),
        };
        let key = || KeyToPeek { index, key: descriptor_key(limit, entries) };
        Self { to_peek: counts.then(key), ..Self::new(limit, counts, why) }
    }
}

fn pairs(entries: &[Entry]) -> Vec<(&str, &str)> {
    entries.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect()
}

fn shown(entries: &[(&str, &str)]) -> String {
    let entries = entries.iter().map(shown_entry);
    entries.collect::<Vec<_>>().join(", ")
}

/// Returns an entry with escapes, so that it cannot control a terminal, and without its value if that is a credential.
fn shown_entry((key, value): &(&str, &str)) -> String {
    let value = if names_credential(key) { "[redacted]" } else { value };
    format!("{key}={value}").as_bytes().escape_ascii().to_string()
}

/// Returns what each entry matched, and where the search ended if it found no limit.
fn why(entries: &[(&str, &str)], found: &DescriptorMatch) -> String {
    let step = |(entry, matched): (&(&str, &str), &MatchedEntry)| {
        let step = format!("{} matches {}", shown_entry(entry), matched.entry);
        let hidden: Vec<String> = matched.hidden.iter().map(ToString::to_string).collect();
        if hidden.is_empty() {
            step
        } else {
            format!("{step}, which hides {}", hidden.join(" and "))
        }
    };
    let mut steps: Vec<String> = entries.iter().zip(&found.matched).map(step).collect();
    match (entries.get(found.matched.len()), found.limit) {
        (Some(entry), _) => {
            let entry = shown_entry(entry);
            steps.push(format!("no limit has {entry} at depth {}", found.matched.len() + 1));
        }
        (None, None) => steps.push("no limit has exactly these entries".to_owned()),
        (None, Some(_)) => {}
    }
    steps.join("; ")
}

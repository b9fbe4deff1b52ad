//! Explains a request of Envoy's: which limit each descriptor matches, and why.
//!
//! Always   Limits are looked up with the code of the gRPC service ([`Descriptors`]).

use super::{Explanation, KeyToPeek, LimitExplanation};
use crate::config::{LimitConfig, Mode};
use crate::matching::{Chosen, Descriptors, Trail, descriptor_key, names_credential};
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

impl Explanation {
    /// Explains which of these limits count a request of this domain with these descriptors.
    pub fn of_descriptors(
        limits: &[&LimitConfig],
        descriptors: &Descriptors,
        domain: &str,
        requested: &[Vec<Entry>],
    ) -> Self {
        let requested: Vec<Vec<(&str, &str)>> =
            requested.iter().map(|entries| pairs(entries)).collect();
        let trails: Vec<Trail> =
            requested.iter().map(|entries| descriptors.follow(domain, entries)).collect();
        let matched: Vec<Option<usize>> = trails.iter().map(|trail| trail.limit).collect();
        let has_domain = descriptors.has_domain(domain);
        let explain = |(entries, trail): (&Vec<(&str, &str)>, &Trail)| DescriptorExplanation {
            descriptor: shown(entries),
            why: if has_domain {
                why(entries, trail)
            } else {
                "no limit has this domain".to_owned()
            },
            limit: trail.limit.map(|index| {
                let replacing = descriptors.replacing(&matched, index);
                let replacing = replacing.map(|index| limits[index].name.as_str());
                LimitExplanation::of_descriptor(index, limits[index], replacing, entries)
            }),
        };
        let descriptors = requested.iter().zip(&trails).map(explain).collect();
        Self { descriptors, ..Self::empty() }
    }
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
fn why(entries: &[(&str, &str)], trail: &Trail) -> String {
    let step = |(entry, chosen): (&(&str, &str), &Chosen)| {
        let step = format!("{} matches {}", shown_entry(entry), chosen.entry);
        let hidden: Vec<String> = chosen.hidden.iter().map(ToString::to_string).collect();
        if hidden.is_empty() {
            step
        } else {
            format!("{step}, which hides {}", hidden.join(" and "))
        }
    };
    let mut steps: Vec<String> = entries.iter().zip(&trail.chosen).map(step).collect();
    match (entries.get(trail.chosen.len()), trail.limit) {
        (Some(entry), _) => {
            let entry = shown_entry(entry);
            steps.push(format!("no limit has {entry} at depth {}", trail.chosen.len() + 1));
        }
        (None, None) => steps.push("no limit has exactly these entries".to_owned()),
        (None, Some(_)) => {}
    }
    steps.join("; ")
}

//! Which limits would decide a request of Envoy's: which descriptor led to which, on which way, and what that hides.
//!
//! Always   Found as the gRPC service finds it ([`Descriptors`](crate::matching::Descriptors)), and only looked at.

use super::{Explained, Explanation, Weight, mode, verdict};
use crate::config::Mode;
use crate::engine::{Ask, Engine, Limit};
use crate::matching::{Chosen, Trail, descriptor_key, names_credential};
use crate::store::Key;
use serde::Serialize;

/// What becomes of one descriptor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ExplainedDescriptor {
    /// Its entries.
    pub descriptor: String,
    /// What was chosen for each of them, and what that hides; or where the way ended.
    pub why: String,
    /// The limit that this led to.
    pub limit: Option<Explained>,
}

/// An entry of a descriptor: key and value.
pub type Entry = (String, String);

/// What would happen to a request of this domain with these descriptors, if it came now.
pub async fn explain_descriptors(
    engine: &Engine,
    domain: &str,
    descriptors: &[Vec<Entry>],
    cost: u64,
) -> Explanation {
    let limits = engine.limits();
    let borrowed: Vec<Vec<(&str, &str)>> =
        descriptors.iter().map(|entries| pairs(entries)).collect();
    let trails: Vec<Trail> =
        borrowed.iter().map(|entries| limits.descriptors().follow(domain, entries)).collect();
    let found: Vec<Option<usize>> = trails.iter().map(|trail| trail.limit).collect();
    let is_known = limits.descriptors().has_domain(domain);
    let (mut explained, mut weights) = (Vec::new(), Vec::new());
    for (entries, trail) in borrowed.iter().zip(&trails) {
        let mut one = ExplainedDescriptor {
            descriptor: shown(entries),
            why: if is_known {
                why(entries, trail)
            } else {
                "no limit is of this domain".to_owned()
            },
            limit: None,
        };
        if let Some(place) = trail.limit {
            let limit = &limits.named()[place];
            let by = limits.descriptors().replacing(&found, place);
            let by = by.map(|by| limits.named()[by].name());
            let (limit, weight) = counted(engine, limit, by, (entries, cost)).await;
            weights.extend(weight.map(|weight| (weight, limit.limit.clone())));
            one.limit = Some(limit);
        }
        explained.push(one);
    }
    let (verdict, decided_by) = verdict(weights);
    let (path, limits, hint) = (None, Vec::new(), None);
    Explanation { verdict, decided_by, path, limits, descriptors: explained, hint }
}

/// What the limit makes of a descriptor that leads to it.
async fn counted(
    engine: &Engine,
    limit: &Limit,
    replaced_by: Option<&str>,
    (entries, cost): (&[(&str, &str)], u64),
) -> (Explained, Option<Weight>) {
    let mut explained = Explained {
        limit: limit.name().to_owned(),
        rule: limit.rule().to_string(),
        mode: mode(limit.mode()),
        counts: replaced_by.is_none() && limit.mode() != Mode::Off,
        why: match replaced_by {
            Some(other) => format!("{other} replaces it"),
            None if limit.mode() == Mode::Off => "its mode is off".to_owned(),
            None => "the descriptor leads to it".to_owned(),
        },
        key: None,
        now: None,
        without_store: None,
    };
    if !explained.counts {
        return (explained, None);
    }
    let key = descriptor_key(limit.config(), entries);
    explained.key = Some(engine.shown_key(limit, &key));
    let weight = explained.stand(engine, &Ask { limit, key: Key(&key), cost }).await;
    (explained, weight)
}

fn pairs(entries: &[Entry]) -> Vec<(&str, &str)> {
    entries.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect()
}

fn shown(entries: &[(&str, &str)]) -> String {
    let entries = entries.iter().map(shown_entry);
    entries.collect::<Vec<_>>().join(", ")
}

/// Returns an entry without its value if that is a credential, and with escapes: what a client sends may not play with a
/// terminal.
fn shown_entry((key, value): &(&str, &str)) -> String {
    let value = if names_credential(key) { "[redacted]" } else { value };
    format!("{key}={value}").as_bytes().escape_ascii().to_string()
}

/// The way, entry by entry, and its end if that is no limit.
fn why(entries: &[(&str, &str)], trail: &Trail) -> String {
    let step = |(entry, chosen): (&(&str, &str), &Chosen)| {
        let said = format!("{} is {}", shown_entry(entry), chosen.entry);
        let hidden: Vec<String> = chosen.hidden.iter().map(ToString::to_string).collect();
        if hidden.is_empty() {
            said
        } else {
            format!("{said}, which hides {}", hidden.join(" and "))
        }
    };
    let mut steps: Vec<String> = entries.iter().zip(&trail.chosen).map(step).collect();
    match (entries.get(trail.chosen.len()), trail.limit) {
        (Some(entry), _) => {
            let entry = shown_entry(entry);
            steps.push(format!("no limit has {entry} at depth {}", trail.chosen.len() + 1));
        }
        (None, None) => steps.push("no limit has just these entries".to_owned()),
        (None, Some(_)) => {}
    }
    steps.join("; ")
}

//! `domain`, `descriptor` and `replaces`: what a limit counts for Envoy.

use super::report::Wrong;
use super::table::Table;
use super::value::{Text, Value};
use super::{DescriptorConfig, LimitConfig, near};
use crate::matching::{DescriptorPart, ENTRIES_MAX, KeyPart, Pattern};
use std::collections::{HashMap, HashSet};

/// Maximum number of limits that a limit replaces.
const REPLACES_MAX: usize = 64;

/// A name that is replaced, where it is written.
pub(super) struct Replaced<'a> {
    by: String,
    name: Text<'a>,
}

pub(super) fn read<'a>(
    table: &Table<'a>,
    limit: &str,
    promises: &mut Vec<Replaced<'a>>,
) -> Option<DescriptorConfig> {
    let (domain, descriptor) = (table.get("domain"), table.get("descriptor"));
    let replaces = table.get("replaces");
    let (domain, descriptor) = match (domain, descriptor) {
        (Some(domain), Some(descriptor)) => (domain, descriptor),
        (domain, descriptor) => {
            tell_alone(domain.as_ref(), descriptor.as_ref(), replaces.as_ref());
            return None;
        }
    };
    let names = replaces.map(|value| value.texts(REPLACES_MAX)).unwrap_or_default();
    let replaces = names.iter().map(|name| name.read.to_owned()).collect();
    promises.extend(names.into_iter().map(|name| Replaced { by: limit.to_owned(), name }));
    let domain = domain.text()?;
    if domain.read.is_empty() {
        domain.tell(Wrong::new("a domain has a name").hint("the one in Envoy's configuration"));
    }
    let entries = entries(&descriptor);
    Some(DescriptorConfig { domain: domain.read.to_owned(), entries, replaces })
}

/// One of them without the others makes no sense.
fn tell_alone(
    domain: Option<&Value<'_>>,
    descriptor: Option<&Value<'_>>,
    replaces: Option<&Value<'_>>,
) {
    let needs = |value: &Value<'_>, other: &str, hint: &str| {
        value.tell(Wrong::new(format!("`{}` needs a `{other}`", value.name)).hint(hint));
    };
    match (domain, descriptor, replaces) {
        (None, Some(descriptor), _) => {
            needs(descriptor, "domain", "add `domain = \"…\"`, as in Envoy's configuration");
        }
        (Some(domain), None, _) => {
            needs(domain, "descriptor", "add `descriptor = [\"…\"]`: which entries Envoy sends");
        }
        (_, _, Some(replaces)) => {
            needs(replaces, "descriptor", "only limits that Envoy asks for replace one another");
        }
        _ => {}
    }
}

fn entries(descriptor: &Value<'_>) -> Vec<DescriptorPart> {
    let texts = descriptor.text_or_texts(ENTRIES_MAX);
    if texts.is_empty() {
        descriptor.tell(Wrong::new("a descriptor has at least one entry"));
    }
    let entry = |text: &Text<'_>| entry(text.read).map_err(|wrong| text.tell(wrong)).ok();
    texts.iter().filter_map(entry).collect()
}

/// `key`, or `key=value` with stars.
fn entry(text: &str) -> Result<DescriptorPart, Wrong> {
    let (key, value) = match text.split_once('=') {
        Some((key, value)) => (key, Some(value)),
        None => (text, None),
    };
    if key.is_empty() {
        return Err(Wrong::new("an entry has a key").hint("`key`, or `key=value`"));
    }
    if value == Some("") {
        let hint = format!("write `{key}` for any value");
        return Err(Wrong::new("nothing stands after the `=`").hint(hint));
    }
    Ok(DescriptorPart { key: key.to_owned(), value: value.map(|v| Pattern(v.to_owned())) })
}

/// Tells names that are replaced and do not exist.
pub(super) fn check_replaced(replaced: &[Replaced<'_>], limits: &[LimitConfig]) {
    let names: HashSet<&str> = limits.iter().map(|limit| limit.name.as_str()).collect();
    for Replaced { by, name } in replaced {
        if name.read == by {
            name.tell(Wrong::new("a limit cannot replace itself"));
        } else if !names.contains(name.read) {
            // Names are told for the first few only, and so is what they look like.
            let near = near(name.read, names.iter().copied().take(1_000));
            let hint = near.map(|near| format!("did you mean `{near}`?"));
            name.tell(Wrong::new("no limit has this name").maybe(hint));
        }
    }
}

/// The limit before this one that counts the same descriptor.
pub(super) fn twin(
    seen: &mut HashMap<(String, String), String>,
    limit: &str,
    descriptor: &DescriptorConfig,
) -> Option<String> {
    let path: Vec<String> = descriptor.entries.iter().map(ToString::to_string).collect();
    let place = (descriptor.domain.clone(), format!("{path:?}"));
    seen.insert(place, limit.to_owned())
}

/// What is wrong with this rule for a descriptor.
pub(super) fn check_rule(limit: &LimitConfig) -> Result<(), Wrong> {
    if limit.descriptor.is_none() || !limit.rule.is_concurrency() {
        return Ok(());
    }
    let wrong =
        Wrong::new("Envoy does not tell when a request is over, so nobody can be in flight");
    Err(wrong.hint("choose a rate such as `100/s`, or leave `domain` and `descriptor` out"))
}

/// What is wrong with this key for this descriptor.
pub(super) fn check_key(limit: &LimitConfig) -> Result<(), Wrong> {
    let asked = limit.key.iter().find_map(|part| match part {
        KeyPart::Descriptor(key) => Some(key),
        _ => None,
    });
    let Some(asked) = asked else { return Ok(()) };
    let Some(descriptor) = &limit.descriptor else {
        let wrong = Wrong::new(format!("`descriptor:{asked}` needs a `descriptor`"));
        return Err(wrong.hint("add `domain` and `descriptor`: only Envoy sends entries"));
    };
    let is_known = |key: &str| descriptor.entries.iter().any(|entry| entry.key == key);
    for part in &limit.key {
        match part {
            KeyPart::Descriptor(key) if is_known(key) => {}
            KeyPart::Constant(_) => {}
            KeyPart::Descriptor(key) => {
                return Err(Wrong::new(format!("`descriptor` has no entry `{key}`")));
            }
            other => {
                let wrong = Wrong::new(format!("Envoy does not tell `{other}`"));
                return Err(wrong.hint("make another limit for HTTP requests"));
            }
        }
    }
    if !limit.when.is_empty() {
        let wrong = Wrong::new("`when` looks at HTTP requests, and `descriptor:` keys at Envoy's");
        return Err(wrong.hint("make a limit of each"));
    }
    Ok(())
}

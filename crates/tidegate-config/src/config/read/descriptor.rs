//! `domain`, `descriptor` and `replaces`: which descriptors of Envoy a limit counts.

use super::report::Problem;
use super::table::Table;
use super::value::{Text, Value};
use crate::config::limit::{DescriptorConfig, LimitConfig};
use crate::request::{DescriptorPart, ENTRIES_MAX, KeyPart, Pattern};
use std::collections::{HashMap, HashSet};
use tidegate_core::diagnostics::nearest_name;

/// Maximum number of limits that a limit replaces.
const REPLACES_MAX: usize = 64;

/// A name in the `replaces` list of the limit `by`.
pub(super) struct Replaced<'a> {
    by: String,
    name: Text<'a>,
}

pub(super) fn read<'a>(
    table: &Table<'a>,
    limit: &str,
    unresolved: &mut Vec<Replaced<'a>>,
) -> Option<DescriptorConfig> {
    let (domain, descriptor) = (table.get("domain"), table.get("descriptor"));
    let replaces = table.get("replaces");
    let (domain, descriptor) = match (domain, descriptor) {
        (Some(domain), Some(descriptor)) => (domain, descriptor),
        (domain, descriptor) => {
            report_incomplete(domain.as_ref(), descriptor.as_ref(), replaces.as_ref());
            return None;
        }
    };
    let names = replaces.map(|value| value.texts(REPLACES_MAX)).unwrap_or_default();
    let replaces = names.iter().map(|name| name.read.to_owned()).collect();
    unresolved.extend(names.into_iter().map(|name| Replaced { by: limit.to_owned(), name }));
    let domain = domain.text()?;
    if domain.read.is_empty() {
        domain.error(
            Problem::new("`domain` must not be empty")
                .hint("write the domain of Envoy's configuration"),
        );
    }
    let entries = entries(&descriptor);
    Some(DescriptorConfig { domain: domain.read.to_owned(), entries, replaces })
}

/// Reports a `domain` without a `descriptor`, the reverse, and `replaces` without both.
fn report_incomplete(
    domain: Option<&Value<'_>>,
    descriptor: Option<&Value<'_>>,
    replaces: Option<&Value<'_>>,
) {
    let needs = |value: &Value<'_>, other: &str, hint: &str| {
        value.error(Problem::new(format!("`{}` needs a `{other}`", value.name)).hint(hint));
    };
    match (domain, descriptor, replaces) {
        (None, Some(descriptor), _) => {
            needs(descriptor, "domain", "add `domain = \"…\"`, as in Envoy's configuration");
        }
        (Some(domain), None, _) => {
            needs(
                domain,
                "descriptor",
                "add `descriptor = [\"…\"]` with the entries that Envoy sends",
            );
        }
        (_, _, Some(replaces)) => {
            needs(replaces, "descriptor", "only limits with a descriptor can replace one another");
        }
        _ => {}
    }
}

fn entries(descriptor: &Value<'_>) -> Vec<DescriptorPart> {
    let texts = descriptor.text_or_texts(ENTRIES_MAX);
    if texts.is_empty() {
        descriptor.error(Problem::new("a descriptor needs at least one entry"));
    }
    let entry = |text: &Text<'_>| entry(text.read).map_err(|problem| text.error(problem)).ok();
    texts.iter().filter_map(entry).collect()
}

/// Parses `key` or `key=value`, where the value may contain `*`.
fn entry(text: &str) -> Result<DescriptorPart, Problem> {
    let (key, value) = match text.split_once('=') {
        Some((key, value)) => (key, Some(value)),
        None => (text, None),
    };
    if key.is_empty() {
        return Err(Problem::new("an entry needs a key").hint("write `key`, or `key=value`"));
    }
    if value == Some("") {
        let hint = format!("write `{key}` for any value");
        return Err(Problem::new("the value after `=` is missing").hint(hint));
    }
    Ok(DescriptorPart { key: key.to_owned(), value: value.map(|v| Pattern(v.to_owned())) })
}

/// Reports names in `replaces` that no limit has.
pub(super) fn check_replaced(replaced: &[Replaced<'_>], limits: &[LimitConfig]) {
    let names: HashSet<&str> = limits.iter().map(|limit| limit.name.as_str()).collect();
    for Replaced { by, name } in replaced {
        if name.read == by {
            name.error(Problem::new("a limit cannot replace itself"));
        } else if !names.contains(name.read) {
            // With many limits, a similar name is looked for among the first only.
            let near = nearest_name(name.read, names.iter().copied().take(1_000));
            let hint = near.map(|near| format!("did you mean `{near}`?"));
            name.error(Problem::new("no limit has this name").maybe(hint));
        }
    }
}

/// Returns the earlier limit that counts the same descriptor.
pub(super) fn duplicate(
    seen: &mut HashMap<(String, String), String>,
    limit: &str,
    descriptor: &DescriptorConfig,
) -> Option<String> {
    let path: Vec<String> = descriptor.entries.iter().map(ToString::to_string).collect();
    let descriptor = (descriptor.domain.clone(), format!("{path:?}"));
    seen.insert(descriptor, limit.to_owned())
}

/// Refuses a concurrency rule on a limit with a descriptor.
pub(super) fn check_rule(limit: &LimitConfig) -> Result<(), Problem> {
    if limit.descriptor.is_none() || !limit.rule.is_concurrency() {
        return Ok(());
    }
    let problem = Problem::new(
        "Envoy does not report the end of a request, so requests in flight cannot be counted",
    );
    Err(problem.hint("choose a rate such as `100/s`, or remove `domain` and `descriptor`"))
}

/// Checks that the key of a limit uses entries of its descriptor, and nothing that Envoy does not send with them.
pub(super) fn check_key(limit: &LimitConfig) -> Result<(), Problem> {
    let first = limit.key.iter().find_map(|part| match part {
        KeyPart::Descriptor(key) => Some(key),
        _ => None,
    });
    let Some(first) = first else { return Ok(()) };
    let Some(descriptor) = &limit.descriptor else {
        let problem = Problem::new(format!("`descriptor:{first}` needs a `descriptor`"));
        return Err(
            problem.hint("add `domain` and `descriptor`: only Envoy sends descriptor entries")
        );
    };
    let is_known = |key: &str| descriptor.entries.iter().any(|entry| entry.key == key);
    for part in &limit.key {
        match part {
            KeyPart::Descriptor(key) if is_known(key) => {}
            KeyPart::Constant(_) => {}
            KeyPart::Descriptor(key) => {
                return Err(Problem::new(format!("`descriptor` has no entry `{key}`")));
            }
            other => {
                let problem = Problem::new(format!("Envoy does not send `{other}`"));
                return Err(problem.hint("use a separate limit for HTTP requests"));
            }
        }
    }
    if !limit.when.is_empty() {
        let problem = Problem::new(
            "`when` needs an HTTP request, and a `descriptor:` key needs Envoy's descriptors",
        );
        return Err(problem.hint("use two limits, one for each"));
    }
    Ok(())
}

//! `when`: the conditions under which a limit counts a request.
//!
//! Always   All conditions must hold. Conditions under `not` must all fail.

use super::report::Problem;
use super::server::network;
use super::table::Table;
use super::value::{Text, Value};
use crate::request::{Condition, KeyPart, PartError};
use std::ops::Range;

/// Maximum number of conditions of a limit.
const CONDITIONS_MAX: usize = 32;
/// Maximum number of patterns of a condition.
const PATTERNS_MAX: usize = 256;

pub(super) fn read(value: &Value<'_>) -> Vec<Condition> {
    let Some(table) = value.table() else { return Vec::new() };
    let conditions = conditions(&table, false);
    if conditions.len() > CONDITIONS_MAX {
        value.error(Problem::new(format!("`when` must have at most {CONDITIONS_MAX} conditions")));
    }
    conditions
}

fn conditions(table: &Table<'_>, is_negated: bool) -> Vec<Condition> {
    let mut read = Vec::new();
    for (span, value) in table.entries() {
        if value.name == "not" && !is_negated {
            let inner = value.table();
            read.extend(inner.iter().flat_map(|table| conditions(table, true)));
        } else {
            read.extend(condition(table, span, &value, is_negated));
        }
    }
    read
}

fn condition(
    table: &Table<'_>,
    span: Range<usize>,
    value: &Value<'_>,
    is_negated: bool,
) -> Option<Condition> {
    let part = part(value.name).map_err(|problem| table.report().error(span, problem)).ok()?;
    let texts = value.text_or_texts(PATTERNS_MAX);
    if texts.is_empty() {
        value.error(Problem::new("a condition needs at least one pattern"));
    }
    let mut condition = Condition::new(part, is_negated);
    for text in texts {
        if let Err(problem) = add(&mut condition, &text) {
            text.error(problem);
        }
    }
    Some(condition)
}

fn part(name: &str) -> Result<KeyPart, Problem> {
    let known = "a condition is one of method, path, host, ip, header:NAME, cookie:NAME, query:NAME and \
                 not";
    match name.parse() {
        Ok(KeyPart::Constant(_) | KeyPart::Descriptor(_)) => {
            Err(Problem::new(format!("`{name}` is not part of an HTTP request")).hint(known))
        }
        Ok(KeyPart::Ip { .. }) if name != "ip" => {
            let hint = "write `ip = \"192.0.2.0/24\"`";
            Err(Problem::new("a condition has its prefix length in the network").hint(hint))
        }
        Ok(part) => Ok(part),
        Err(PartError { message, hint, .. }) => {
            let hint = hint.filter(|_| name != "not").unwrap_or_else(|| known.to_owned());
            Err(Problem::new(format!("{message} `{}` in `when`", name.escape_debug())).hint(hint))
        }
    }
}

fn add(condition: &mut Condition, text: &Text<'_>) -> Result<(), Problem> {
    let pattern = text.read;
    if pattern.is_empty() {
        return Err(Problem::new("an empty pattern matches nothing").hint("`*` matches anything"));
    }
    let pattern = match &condition.part {
        KeyPart::Ip { .. } => {
            condition.networks.push(network(pattern)?);
            return Ok(());
        }
        KeyPart::Method if pattern.bytes().any(|byte| byte.is_ascii_lowercase()) => {
            let capitals = pattern.to_ascii_uppercase();
            return Err(Problem::new("a method is in capitals").hint(format!("write {capitals:?}")));
        }
        KeyPart::Path if !pattern.starts_with(['/', '*']) => {
            let hint = format!("write {:?}", format!("/{pattern}"));
            return Err(Problem::new("a path starts with `/`").hint(hint));
        }
        KeyPart::Host => pattern.to_ascii_lowercase(),
        _ => pattern.to_owned(),
    };
    condition.add_pattern(pattern);
    Ok(())
}

//! `when`: which requests a limit counts.
//!
//! Always   All conditions must hold. Under `not`, each that is named must not.

use super::report::Wrong;
use super::server::network;
use super::table::Table;
use super::value::{Text, Value};
use crate::matching::{Condition, KeyPart, PartError};
use std::ops::Range;

/// So many conditions, and so many patterns for each of them.
const CONDITIONS_MAX: usize = 32;
const PATTERNS_MAX: usize = 256;

pub(super) fn read(value: &Value<'_>) -> Vec<Condition> {
    let Some(table) = value.table() else { return Vec::new() };
    let conditions = conditions(&table, false);
    if conditions.len() > CONDITIONS_MAX {
        value.tell(Wrong::new(format!("`when` must have at most {CONDITIONS_MAX} conditions")));
    }
    conditions
}

fn conditions(table: &Table<'_>, is_negated: bool) -> Vec<Condition> {
    let mut read = Vec::new();
    for (place, value) in table.entries() {
        if value.name == "not" && !is_negated {
            let inner = value.table();
            read.extend(inner.iter().flat_map(|table| conditions(table, true)));
        } else {
            read.extend(condition(table, place, &value, is_negated));
        }
    }
    read
}

fn condition(
    table: &Table<'_>,
    place: Range<usize>,
    value: &Value<'_>,
    is_negated: bool,
) -> Option<Condition> {
    let part = part(value.name).map_err(|wrong| table.report().tell(place, wrong)).ok()?;
    let texts = value.text_or_texts(PATTERNS_MAX);
    if texts.is_empty() {
        value.tell(Wrong::new("a condition needs at least one pattern"));
    }
    let mut condition = Condition::new(part, is_negated);
    for text in texts {
        if let Err(wrong) = add(&mut condition, &text) {
            text.tell(wrong);
        }
    }
    Some(condition)
}

fn part(name: &str) -> Result<KeyPart, Wrong> {
    let known = "conditions look at method, path, host, ip, header:NAME, cookie:NAME, query:NAME \
                 and not";
    match name.parse() {
        Ok(KeyPart::Constant(_) | KeyPart::Descriptor(_)) => {
            Err(Wrong::new(format!("`{name}` is not part of an HTTP request")).hint(known))
        }
        Ok(KeyPart::Ip { .. }) if name != "ip" => {
            let hint = "write `ip = \"192.0.2.0/24\"`";
            Err(Wrong::new("the bits belong to the network that `ip` is compared with").hint(hint))
        }
        Ok(part) => Ok(part),
        Err(PartError { message, hint, .. }) => {
            let hint = hint.filter(|_| name != "not").unwrap_or_else(|| known.to_owned());
            Err(Wrong::new(format!("{message} `{}` in `when`", name.escape_debug())).hint(hint))
        }
    }
}

fn add(condition: &mut Condition, text: &Text<'_>) -> Result<(), Wrong> {
    let pattern = text.read;
    if pattern.is_empty() {
        return Err(Wrong::new("an empty pattern matches nothing").hint("`*` matches anything"));
    }
    let pattern = match &condition.part {
        KeyPart::Ip { .. } => {
            condition.networks.push(network(pattern)?);
            return Ok(());
        }
        KeyPart::Method if pattern.bytes().any(|byte| byte.is_ascii_lowercase()) => {
            let capitals = pattern.to_ascii_uppercase();
            return Err(Wrong::new("methods are in capitals").hint(format!("write {capitals:?}")));
        }
        KeyPart::Path if !pattern.starts_with(['/', '*']) => {
            let hint = format!("write {:?}", format!("/{pattern}"));
            return Err(Wrong::new("paths begin with `/`").hint(hint));
        }
        KeyPart::Host => pattern.to_ascii_lowercase(),
        _ => pattern.to_owned(),
    };
    condition.add_pattern(pattern);
    Ok(())
}

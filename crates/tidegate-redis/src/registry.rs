//! What rule a limit has, for all who share it (B8).
//!
//! Always   A rule has a version, and a state the version of its rule. Whoever finds a state of an older rule
//!          takes it over into the newer one, and whoever finds one of a newer rule learns that rule first: so all
//!          nodes go by one rule, whichever of them was told.

use crate::link::StoreError;
use crate::script;
use crate::shared::Shared;
use crate::store::Inner;
use redis::Value;
use std::collections::BTreeMap;
use std::time::Duration;
use tidegate::{Rule, RuleError};
use tidegate_core::{Lending, Timestamp};

/// A limit's rule as all know it.
#[derive(Debug)]
pub(crate) struct Current {
    /// As users know it.
    pub(crate) rule: Rule,
    /// How it is lent out, if it is.
    pub(crate) lending: Option<Lending>,
    pub(crate) version: u64,
    /// What Redis goes by: the rule, or what is left of it when a part is lent out.
    pub(crate) shared: Shared,
    /// What Redis went by before, as far as it is known, by version.
    pub(crate) before: BTreeMap<u64, Rule>,
}

/// What stands before a rule that is lent out.
const LENT: &str = "lent ";

/// A rule as it stands in the registry.
pub(crate) fn text(rule: &Rule, is_lent: bool) -> String {
    if is_lent && rule.limit().rule().lend().is_some() {
        format!("{LENT}{rule}")
    } else {
        rule.to_string()
    }
}

/// The rule that a text of the registry is about, and how it is lent out.
fn published(text: &str) -> Result<(Rule, Option<Lending>), RuleError> {
    match text.strip_prefix(LENT) {
        Some(text) => text.parse().map(|rule: Rule| {
            let lending = rule.limit().rule().lend();
            (rule, lending)
        }),
        None => Ok((text.parse()?, None)),
    }
}

/// What Redis goes by.
fn effective(rule: &Rule, lending: Option<&Lending>) -> Rule {
    let Some(lending) = lending else { return rule.clone() };
    lending.rule.to_string().parse().expect("a rule with less room is a rule of the same zone")
}

/// What the registry is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Question {
    /// This is my rule, unless there is another.
    Have,
    /// This is the rule from now on.
    Publish,
}

/// Asks the registry about a limit.
pub(crate) async fn ask(
    store: &Inner,
    name: &str,
    (text, version): (&str, u64),
    question: Question,
    deadline: Duration,
) -> Result<Current, StoreError> {
    let key = format!("{}rule:{name}", store.settings.prefix).into_bytes();
    let publish = if question == Question::Publish { "1" } else { "0" };
    let args = [text.to_owned(), version.to_string(), publish.to_owned()];
    let args = args.map(String::into_bytes).to_vec();
    let value = store.run(script::register(), vec![key], args, deadline).await?;
    let address = || store.link.nodes().first().map(|node| node.address()).unwrap_or_default();
    let malformed = |what: String| StoreError::Malformed { address: address(), what };
    read(&value).map_err(malformed)
}

fn read(value: &Value) -> Result<Current, String> {
    let strange = || format!("{value:?} for the rule of a limit");
    let Value::Array(parts) = value else { return Err(strange()) };
    let [Value::Int(version), Value::Int(born), texts @ ..] = parts.as_slice() else {
        return Err(strange());
    };
    let number = |integer: i64| u64::try_from(integer).map_err(|_| strange());
    let (version, born) = (number(*version)?, Timestamp::from_micros(number(*born)?));
    let (mut rules, mut before) = (BTreeMap::new(), BTreeMap::new());
    for pair in texts.as_chunks::<2>().0 {
        let [Value::Int(version), Value::BulkString(text)] = pair else { return Err(strange()) };
        let text = str::from_utf8(text).map_err(|_| strange())?;
        let known = published(text).map_err(|error| format!("`{text}` for a rule: {error}"))?;
        before.insert(number(*version)?, effective(&known.0, known.1.as_ref()));
        rules.insert(number(*version)?, known);
    }
    let (rule, lending) = rules.remove(&version).ok_or_else(strange)?;
    let goes_by = before.remove(&version).ok_or_else(strange)?;
    let shared = Shared::new(goes_by.limit().clone(), version, born)
        .map_err(|error| format!("`{rule}` for a rule: {error}"))?;
    Ok(Current { rule, lending, version, shared, before })
}

//! `[limits.<name>]`: the limits, in the order of the file.

use super::descriptor::{self, Replaced};
use super::report::Problem;
use super::server::KEYS_MAX;
use super::store::{DEADLINE_MAX, DEADLINE_MIN};
use super::table::Table;
use super::value::{Text, Value};
use super::when;
use crate::config::limit::{
    Fallback, LimitConfig, MissingKey, NAME_BYTES_MAX, OnError, THROTTLES_NAME, is_limit_name,
};
use crate::request::{KeyPart, PartError};
use std::collections::HashMap;
use std::ops::Range;
use tidegate::Rule;
use tidegate::limiter::Overflow;
use tidegate_http::Mode;

/// Maximum number of limits.
const LIMITS_MAX: usize = 10_000;
/// Maximum number of parts of a key.
const KEY_PARTS_MAX: usize = 16;
/// Maximum size of a fallback response.
const BODY_BYTES_MAX: usize = 64 << 10;

const MODES: [(&str, Mode); 3] =
    [("enforce", Mode::Enforce), ("shadow", Mode::Shadow), ("off", Mode::Off)];
const MISSING_KEYS: [(&str, MissingKey); 3] =
    [("shared", MissingKey::Shared), ("allow", MissingKey::Allow), ("deny", MissingKey::Deny)];
const ON_ERRORS: [(&str, OnError); 3] =
    [("local", OnError::Local), ("allow", OnError::Allow), ("deny", OnError::Deny)];
const OVERFLOWS: [(&str, Overflow); 2] = [("share", Overflow::Share), ("deny", Overflow::Deny)];

/// Reads the limits. With `is_shared`, rules must fit into the numbers of the store. With `has_tokens`, clients send one of the
/// server's tokens in `Authorization`.
pub(super) fn read(table: &Table<'_>, is_shared: bool, has_tokens: bool) -> Vec<LimitConfig> {
    let entries = table.entries();
    if let Some((span, _)) = entries.get(LIMITS_MAX) {
        let problem = Problem::new(format!("there must be at most {LIMITS_MAX} limits"));
        table.report().error(span.clone(), problem);
        return Vec::new();
    }
    let (mut replaced, mut descriptors) = (Vec::new(), HashMap::new());
    let mut limits = Vec::with_capacity(entries.len());
    for (span, value) in entries {
        let Some(limit) = limit(table, span.clone(), &value, &mut replaced) else { continue };
        if is_shared {
            check_shared(&limit, &value);
        }
        if has_tokens {
            check_own_token(&limit, &value);
        }
        if let Some(descriptor) = &limit.descriptor
            && let Some(other) = descriptor::duplicate(&mut descriptors, &limit.name, descriptor)
        {
            let problem = Problem::new(format!("`{other}` counts the same descriptor"));
            table.report().error(
                span,
                problem.hint("remove one of them: a descriptor is counted by one limit"),
            );
        }
        limits.push(limit);
    }
    descriptor::check_replaced(&replaced, &limits);
    limits
}

/// Reads a limit. If its rule is missing or invalid, the limit has a placeholder rule, so that its other errors are found too.
fn limit<'a>(
    limits: &Table<'a>,
    span: Range<usize>,
    value: &Value<'a>,
    replaced: &mut Vec<Replaced<'a>>,
) -> Option<LimitConfig> {
    let name = value.name;
    if let Err(problem) = check_name(name) {
        limits.report().error(span, problem);
    }
    let table = value.table()?;
    let rule = rule(&table).unwrap_or_else(placeholder);
    let mut limit = LimitConfig::new(name, rule);
    limit.mode = choice(&table, "mode", &MODES);
    limit.when = table.get("when").map(|value| when::read(&value)).unwrap_or_default();
    limit.on_missing_key = choice(&table, "on_missing_key", &MISSING_KEYS);
    limit.max_keys = table.get("max_keys").and_then(|value| value.size(1..=KEYS_MAX));
    limit.overflow = choice(&table, "overflow", &OVERFLOWS);
    limit.fallback = table.get("fallback").and_then(|value| fallback(&value));
    limit.descriptor = descriptor::read(&table, name, replaced);
    if let Err(problem) = descriptor::check_rule(&limit)
        && let Some(rule) = table.get("rule")
    {
        rule.error(problem);
    }
    limit.on_error = choice(&table, "on_error", &ON_ERRORS);
    limit.deadline =
        table.get("deadline").and_then(|value| value.duration(DEADLINE_MIN..=DEADLINE_MAX));
    if let Some(value) = table.get("key") {
        limit.key = key(&value);
        if let Err(problem) = descriptor::check_key(&limit) {
            value.error(problem);
        }
    }
    table.refuse_unknown();
    Some(limit)
}

/// Refuses a rule whose numbers do not fit into the doubles of Lua scripts, so that no request finds out later.
fn check_shared(limit: &LimitConfig, value: &Value<'_>) {
    if let Err(error) = limit.rule.limit().lua_params()
        && let Some(rule) = value.table().and_then(|table| table.get("rule"))
    {
        let problem = Problem::new(format!("this rule cannot be kept in the store: {error}"));
        rule.error(problem.hint("choose a smaller count or burst, or a shorter time"));
    }
}

/// Refuses `header:authorization` if clients send the server's tokens there: all clients of a proxy would share one key.
fn check_own_token(limit: &LimitConfig, value: &Value<'_>) {
    let is_own = |part: &KeyPart| *part == KeyPart::Header("authorization".to_owned());
    let is_counted = limit.key.iter().any(is_own);
    let is_condition = limit.when.iter().any(|condition| is_own(&condition.part));
    for (name, is) in [("key", is_counted), ("when", is_condition)] {
        if is && let Some(value) = value.table().and_then(|table| table.get(name)) {
            let problem = Problem::new(
                "`header:authorization` contains one of this server's `tokens`, which all clients of a proxy share",
            );
            value.error(problem.hint(
                "let the proxy pass on its client's header under another name, such as `header:x-client-authorization`",
            ));
        }
    }
}

fn placeholder() -> Rule {
    "1/s".parse().expect("the text is a valid rule")
}

fn check_name(name: &str) -> Result<(), Problem> {
    if name == THROTTLES_NAME {
        let problem = Problem::new("this name stands for the command CL.THROTTLE in metrics");
        return Err(problem.hint("choose another name"));
    }
    if is_limit_name(name) {
        return Ok(());
    }
    let problem = Problem::new("this is not a valid name for a limit");
    Err(problem.hint(format!("use at most {NAME_BYTES_MAX} letters, digits, `_`, `-` and `.`")))
}

fn choice<T: Copy + Default>(table: &Table<'_>, name: &'static str, choices: &[(&str, T)]) -> T {
    table.get(name).and_then(|value| value.choice(choices)).unwrap_or_default()
}

fn rule(table: &Table<'_>) -> Option<Rule> {
    let text = table.need("rule", "such as `rule = \"100/s burst 20\"`")?.text()?;
    match text.read.parse::<Rule>() {
        Ok(rule) => Some(rule),
        Err(error) => {
            text.error_inside(error.span(), Problem::new(error.message()));
            None
        }
    }
}

fn key(value: &Value<'_>) -> Vec<KeyPart> {
    let texts = value.text_or_texts(KEY_PARTS_MAX);
    if value.is_empty_list() {
        let problem = Problem::new("`key` is empty");
        value
            .error(problem.hint(
                "name a part such as \"ip\", or remove `key` to count all requests together",
            ));
    }
    let part = |text: &Text<'_>| match text.read.parse::<KeyPart>() {
        Ok(part) => Some(part),
        Err(PartError { span, message, hint }) => {
            text.error_inside(span, Problem::new(message).maybe(hint));
            None
        }
    };
    texts.iter().filter_map(part).collect()
}

fn fallback(value: &Value<'_>) -> Option<Fallback> {
    let table = value.table()?;
    let status = table.get("status").and_then(|value| value.whole(200..=599));
    let content_type = table.get("content_type").and_then(|value| value.text());
    let body = table.get("body").and_then(|value| value.text());
    table.refuse_unknown();
    if let Some(text) = &content_type
        && !text.read.bytes().all(|byte| (b' '..=b'~').contains(&byte))
    {
        text.error(Problem::new("a content type must be ASCII, such as \"application/json\""));
    }
    if let Some(text) = &body
        && text.read.len() > BODY_BYTES_MAX
    {
        text.error(Problem::new(format!("`body` must have at most {BODY_BYTES_MAX} bytes")));
    }
    if let Some(text) = &body
        && matches!(status, Some(204 | 304))
    {
        text.error(Problem::new("a response with this status has no body").hint("remove `body`"));
    }
    Some(Fallback {
        status: status.and_then(|status| u16::try_from(status).ok()).unwrap_or(429),
        content_type: content_type.map_or("text/plain; charset=utf-8", |text| text.read).to_owned(),
        body: body.map_or("", |text| text.read).to_owned(),
    })
}

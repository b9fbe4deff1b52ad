//! `[limits.<name>]`: the limits, in the order of the file.

use super::descriptor::{self, Replaced};
use super::report::Wrong;
use super::server::KEYS_MAX;
use super::store::{DEADLINE_MAX, DEADLINE_MIN};
use super::table::Table;
use super::value::{Text, Value};
use super::{Fallback, LimitConfig, MissingKey, Mode, OnError, when};
use crate::matching::{KeyPart, PartError};
use std::collections::HashMap;
use std::ops::Range;
use tidegate::Rule;
use tidegate::limiter::Overflow;

/// The name under which metrics show what the command `CL.THROTTLE` counts; no limit may have it.
pub const THROTTLES_NAME: &str = "CL.THROTTLE";

/// So many limits may have a name.
const LIMITS_MAX: usize = 10_000;
/// A name is no longer than this.
const NAME_BYTES_MAX: usize = 64;
/// A key has no more parts than this.
const KEY_PARTS_MAX: usize = 16;
/// What is given instead of a refusal is no larger than this.
const BODY_BYTES_MAX: usize = 64 << 10;

const MODES: [(&str, Mode); 3] =
    [("enforce", Mode::Enforce), ("shadow", Mode::Shadow), ("off", Mode::Off)];
const MISSING_KEYS: [(&str, MissingKey); 3] =
    [("shared", MissingKey::Shared), ("allow", MissingKey::Allow), ("deny", MissingKey::Deny)];
const ON_ERRORS: [(&str, OnError); 3] =
    [("local", OnError::Local), ("allow", OnError::Allow), ("deny", OnError::Deny)];
const OVERFLOWS: [(&str, Overflow); 2] = [("share", Overflow::Share), ("deny", Overflow::Deny)];

/// The limits. `is_shared`: they are kept in a store, which cannot count as far as memory can. `has_tokens`: who asks brings
/// a token of the server's.
pub(super) fn read(table: &Table<'_>, is_shared: bool, has_tokens: bool) -> Vec<LimitConfig> {
    let entries = table.entries();
    if let Some((place, _)) = entries.get(LIMITS_MAX) {
        let wrong = Wrong::new(format!("there must be at most {LIMITS_MAX} limits"));
        table.report().tell(place.clone(), wrong);
        return Vec::new();
    }
    let (mut replaced, mut twins) = (Vec::new(), HashMap::new());
    let mut limits = Vec::with_capacity(entries.len());
    for (place, value) in entries {
        let Some(limit) = limit(table, place.clone(), &value, &mut replaced) else { continue };
        if is_shared {
            check_shared(&limit, &value);
        }
        if has_tokens {
            check_own_token(&limit, &value);
        }
        if let Some(descriptor) = &limit.descriptor
            && let Some(twin) = descriptor::twin(&mut twins, &limit.name, descriptor)
        {
            let wrong = Wrong::new(format!("`{twin}` counts the same descriptor"));
            table.report().tell(place, wrong.hint("Envoy's requests are counted by one of them"));
        }
        limits.push(limit);
    }
    descriptor::check_replaced(&replaced, &limits);
    limits
}

/// A limit; where its rule is missing or wrong, one that stands for it until the report is closed.
fn limit<'a>(
    limits: &Table<'a>,
    place: Range<usize>,
    value: &Value<'a>,
    replaced: &mut Vec<Replaced<'a>>,
) -> Option<LimitConfig> {
    let name = value.name;
    if let Err(wrong) = check_name(name) {
        limits.report().tell(place, wrong);
    }
    let table = value.table()?;
    let rule = rule(&table).unwrap_or_else(stand_in);
    let mut limit = LimitConfig::new(name, rule);
    limit.mode = choice(&table, "mode", &MODES);
    limit.when = table.get("when").map(|value| when::read(&value)).unwrap_or_default();
    limit.on_missing_key = choice(&table, "on_missing_key", &MISSING_KEYS);
    limit.max_keys = table.get("max_keys").and_then(|value| value.size(1..=KEYS_MAX));
    limit.overflow = choice(&table, "overflow", &OVERFLOWS);
    limit.fallback = table.get("fallback").and_then(|value| fallback(&value));
    limit.descriptor = descriptor::read(&table, name, replaced);
    if let Err(wrong) = descriptor::check_rule(&limit)
        && let Some(rule) = table.get("rule")
    {
        rule.tell(wrong);
    }
    limit.on_error = choice(&table, "on_error", &ON_ERRORS);
    limit.deadline =
        table.get("deadline").and_then(|value| value.duration(DEADLINE_MIN..=DEADLINE_MAX));
    if let Some(value) = table.get("key") {
        limit.key = key(&value);
        if let Err(wrong) = descriptor::check_key(&limit) {
            value.tell(wrong);
        }
    }
    table.refuse_unknown();
    Some(limit)
}

/// Scripts count in doubles: a rule whose numbers do not fit is refused here, and not when somebody asks.
fn check_shared(limit: &LimitConfig, value: &Value<'_>) {
    if let Err(error) = limit.rule.limit().lua_params()
        && let Some(rule) = value.table().and_then(|table| table.get("rule"))
    {
        let wrong = Wrong::new(format!("this rule cannot be kept in the store: {error}"));
        rule.tell(wrong.hint("choose a smaller count or burst, or a shorter time"));
    }
}

/// With tokens, `Authorization` is the proxy's: every request behind it would have the same, or none.
fn check_own_token(limit: &LimitConfig, value: &Value<'_>) {
    let is_own = |part: &KeyPart| *part == KeyPart::Header("authorization".to_owned());
    let is_counted = limit.key.iter().any(is_own);
    let is_asked = limit.when.iter().any(|condition| is_own(&condition.part));
    for (name, is) in [("key", is_counted), ("when", is_asked)] {
        if is && let Some(value) = value.table().and_then(|table| table.get(name)) {
            let wrong = Wrong::new(
                "`header:authorization` is where a proxy brings one of this server's `tokens`: all its clients would be one",
            );
            value.tell(wrong.hint(
                "let the proxy hand on its client's under another name, such as `header:x-client-authorization`",
            ));
        }
    }
}

fn stand_in() -> Rule {
    "1/s".parse().expect("this is a rule")
}

fn check_name(name: &str) -> Result<(), Wrong> {
    if name == THROTTLES_NAME {
        let wrong = Wrong::new("this is the name of what the command CL.THROTTLE counts");
        return Err(wrong.hint("choose another name"));
    }
    if is_limit_name(name) {
        return Ok(());
    }
    let wrong = Wrong::new("this cannot be the name of a limit");
    Err(wrong.hint(format!("up to {NAME_BYTES_MAX} letters, digits, `_`, `-` and `.` can")))
}

/// Whether a limit can have this name.
pub fn is_limit_name(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
    (1..=NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(is_plain)
}

fn choice<T: Copy + Default>(table: &Table<'_>, name: &'static str, choices: &[(&str, T)]) -> T {
    table.get(name).and_then(|value| value.choice(choices)).unwrap_or_default()
}

fn rule(table: &Table<'_>) -> Option<Rule> {
    let text = table.need("rule", "such as `rule = \"100/s burst 20\"`")?.text()?;
    match text.read.parse::<Rule>() {
        Ok(rule) => Some(rule),
        Err(error) => {
            text.tell_inside(error.span(), Wrong::new(error.message()));
            None
        }
    }
}

fn key(value: &Value<'_>) -> Vec<KeyPart> {
    let texts = value.text_or_texts(KEY_PARTS_MAX);
    if value.is_empty_list() {
        let wrong = Wrong::new("`key` has no part: everybody would be counted together");
        value.tell(wrong.hint("name a part such as \"ip\", or leave `key` out if that is meant"));
    }
    let part = |text: &Text<'_>| match text.read.parse::<KeyPart>() {
        Ok(part) => Some(part),
        Err(PartError { span, message, hint }) => {
            text.tell_inside(span, Wrong::new(message).maybe(hint));
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
        text.tell(Wrong::new("a content type is plain ASCII, such as \"application/json\""));
    }
    if let Some(text) = &body
        && text.read.len() > BODY_BYTES_MAX
    {
        text.tell(Wrong::new(format!("a body has at most {BODY_BYTES_MAX} bytes")));
    }
    if let Some(text) = &body
        && matches!(status, Some(204 | 304))
    {
        text.tell(Wrong::new("an answer with this status has no body").hint("leave `body` out"));
    }
    Some(Fallback {
        status: status.and_then(|status| u16::try_from(status).ok()).unwrap_or(200),
        content_type: content_type.map_or("text/plain; charset=utf-8", |text| text.read).to_owned(),
        body: body.map_or("", |text| text.read).to_owned(),
    })
}

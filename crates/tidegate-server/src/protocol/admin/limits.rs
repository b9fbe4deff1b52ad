//! `/v1/limits` and `/v1/top`: what each limit is, and what it has done to whom.

use super::health::{Store, state, why_degraded};
use crate::config::{Mode, OnError, describe_rule, near};
use crate::engine::{Limit, Limits, RULES_MAX};
use crate::protocol::http::base64;
use crate::protocol::http::{Answered, JSON, Page, Problem, parameter};
use crate::server::Server;
use crate::store::THROTTLES_NAME;
use http::StatusCode;
use serde::Serialize;
use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tidegate::{Stats, TopKey};

/// So many keys are shown unless told.
const TOP: usize = 10;
/// And never more than so many.
const TOP_MAX: usize = 100;

#[derive(Serialize)]
struct All<'a> {
    limits: Vec<Shown<'a>>,
    /// All that came with rates of their own.
    throttle: Shown<'a>,
    /// Those that were asked for by rule text.
    unnamed: Vec<Shown<'a>>,
    /// As `/readyz` says: `ok`, `degraded`, `denying` or `draining`.
    state: &'static str,
    /// What is wrong with the store, for people.
    problems: Vec<String>,
    ad_hoc_rules: AdHocRules,
    is_config_stale: bool,
    is_draining: bool,
}

/// How much room there is for rules that are asked for by their text, and whether they may be.
#[derive(Serialize)]
struct AdHocRules {
    are_taken: bool,
    open: usize,
    max: usize,
}

#[derive(Serialize)]
struct Cleared {
    cleared: usize,
}

#[derive(Serialize)]
struct Shown<'a> {
    name: &'a str,
    rule: String,
    explain: String,
    mode: &'static str,
    /// Why it is decided without the store, while it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    degraded: Option<String>,
    /// What decides while the store does not answer; none where limits are in memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    on_error: Option<&'static str>,
    stats: Counted,
}

#[derive(Serialize)]
struct Counted {
    allow: u64,
    deny: u64,
    wait: u64,
    shadow_deny: u64,
    overflow: u64,
    forgotten: u64,
    /// None where keys are kept in a store: it does not say how many there are.
    #[serde(skip_serializing_if = "Option::is_none")]
    keys: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_keys: Option<usize>,
}

#[derive(Serialize)]
struct Top<'a> {
    limit: &'a str,
    /// How far back the counts reach, rounded up.
    window_s: u64,
    hot: Vec<Busy>,
    denied: Vec<Busy>,
}

/// A busy key as JSON can have it: as text, or as bytes in base64.
#[derive(Serialize)]
struct Busy {
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key_base64: Option<String>,
    /// At most so often, and at least `error` times less.
    count: u64,
    error: u64,
}

/// Every limit.
pub(super) fn all(server: &Server) -> Answered {
    let limits = server.engine.limits();
    let unnamed = limits.unnamed();
    let store = Store::of(&server.engine);
    json(&All {
        state: state(server, &store).1,
        problems: store.problems(),
        limits: limits.named().iter().map(|limit| shown(limit)).collect(),
        throttle: throttled(server),
        unnamed: distinct(&unnamed).map(|limit| shown(limit)).collect(),
        ad_hoc_rules: AdHocRules {
            are_taken: server.config().server.has_ad_hoc_rules,
            open: distinct(&unnamed).count(),
            max: RULES_MAX,
        },
        is_config_stale: server.status.is_config_stale.load(Ordering::Relaxed),
        is_draining: server.status.drain.has_begun(),
    })
}

/// Forgets the rule without a name that is asked for, or all of them, with what is owed under them.
pub(super) fn clear(server: &Server, query: Option<&str>) -> Result<Answered, Problem> {
    let rule = parameter(query, "rule");
    let rule = rule.as_deref().map(std::str::from_utf8).transpose();
    let rule = rule.map_err(|_| Problem::bad("`rule` is no text"))?;
    let cleared = server.engine.clear_ad_hoc_rules(rule);
    tracing::info!("the operator had {cleared} rules without a name forgotten");
    match (rule, cleared) {
        (Some(_), 0) => {
            let detail = "there is no such rule; /v1/limits lists them as `unnamed`";
            Err(Problem::new(StatusCode::NOT_FOUND, detail))
        }
        _ => Ok(json(&Cleared { cleared })),
    }
}

/// The busiest keys of one limit.
pub(super) fn top(server: &Server, query: Option<&str>) -> Result<Answered, Problem> {
    let Some(name) = parameter(query, "limit") else {
        return Err(Problem::bad("`limit` is missing: /v1/top?limit=name"));
    };
    let count = match parameter(query, "k") {
        None => TOP,
        Some(text) => number(&text)?,
    };
    if *name == *THROTTLES_NAME.as_bytes() {
        // Its keys are forgotten but for their fingerprints, before anything is decided.
        return Ok(json(&shown_top(THROTTLES_NAME, &tidegate::Top::default(), key)));
    }
    let limit = find(&server.engine.limits(), &String::from_utf8_lossy(&name))?;
    let shown = |top: &TopKey| match server.engine.redacted_key(&limit, top.fingerprint) {
        Some(digest) => Busy { key: Some(digest), key_base64: None, ..key(top) },
        None => key(top),
    };
    Ok(json(&shown_top(limit.name(), &limit.counters().top(count), shown)))
}

fn shown_top<'a>(limit: &'a str, top: &tidegate::Top, key: impl Fn(&TopKey) -> Busy) -> Top<'a> {
    Top {
        limit,
        window_s: top.window.as_secs_ceil(),
        hot: top.hot.iter().map(&key).collect(),
        denied: top.denied.iter().map(&key).collect(),
    }
}

/// Those that were asked for by their text, each once, however it was written.
pub(super) fn distinct(unnamed: &[Arc<Limit>]) -> impl Iterator<Item = &Arc<Limit>> {
    unnamed.iter().enumerate().filter_map(|(place, limit)| {
        let is_same = |other: &Arc<Limit>| Arc::ptr_eq(other, limit);
        (!unnamed[..place].iter().any(is_same)).then_some(limit)
    })
}

fn shown(limit: &Limit) -> Shown<'_> {
    let (deny, shadow_deny) = (limit.denied(), limit.shadow_denied());
    Shown {
        name: limit.name(),
        rule: limit.rule().to_string(),
        explain: describe_rule(limit.rule()),
        mode: match limit.mode() {
            Mode::Enforce => "enforce",
            Mode::Shadow => "shadow",
            Mode::Off => "off",
        },
        degraded: limit.counters().shared().and_then(|shared| why_degraded(shared.health())),
        on_error: limit.counters().shared().map(|shared| match shared.on_error() {
            OnError::Local => "local",
            OnError::Allow => "allow",
            OnError::Deny => "deny",
        }),
        stats: Counted {
            deny,
            shadow_deny,
            ..Counted::of(&limit.counters().stats(), limit.counters().shared().is_some())
        },
    }
}

/// What was decided about keys whose rates come with the requests, as if it were one limit.
fn throttled(server: &Server) -> Shown<'_> {
    let store = server.engine.store();
    Shown {
        name: THROTTLES_NAME,
        rule: "comes with each request".to_owned(),
        explain: "admits what each command says: CL.THROTTLE key max_burst count period".to_owned(),
        mode: "enforce",
        degraded: store.throttles_health().and_then(why_degraded),
        on_error: store.is_shared().then_some("local"),
        stats: Counted::of(&store.throttled(), store.is_shared()),
    }
}

impl Counted {
    /// Where nobody is in the shadow.
    fn of(stats: &Stats, is_shared: bool) -> Self {
        Self {
            allow: stats.allowed,
            deny: stats.denied,
            wait: stats.waited,
            shadow_deny: 0,
            overflow: stats.overflowed,
            forgotten: stats.evicted,
            keys: (!is_shared).then_some(stats.keys),
            max_keys: (!is_shared).then_some(stats.max_keys),
        }
    }
}

fn number(text: &[u8]) -> Result<usize, Problem> {
    let number = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
    number
        .filter(|number| (1..=TOP_MAX).contains(number))
        .ok_or_else(|| Problem::bad(format!("`k` is a whole number from 1 to {TOP_MAX}")))
}

/// One that is there: looking makes no limit of a rule's text.
fn find(limits: &Limits, name: &str) -> Result<Arc<Limit>, Problem> {
    let unnamed = || limits.unnamed().into_iter().find(|limit| limit.name() == name);
    limits.get(name).cloned().or_else(unnamed).ok_or_else(|| {
        let names = limits.named().iter().map(|limit| limit.name());
        let meant = if name.len() <= 64 { near(name, names) } else { None };
        let detail: Cow<'static, str> = match meant {
            Some(meant) => format!("there is no such limit; did you mean `{meant}`?").into(),
            None => "there is no such limit; /v1/limits lists them".into(),
        };
        Problem::new(StatusCode::NOT_FOUND, detail)
    })
}

fn key(top: &TopKey) -> Busy {
    let bytes = top.name.as_bytes();
    let text = std::str::from_utf8(bytes).ok().map(str::to_owned);
    let key_base64 = text.is_none().then(|| base64::encode(bytes));
    Busy { key: text, key_base64, count: top.count, error: top.error }
}

fn json(value: &impl Serialize) -> Answered {
    Page::new(StatusCode::OK).body(JSON, |out| {
        serde_json::to_writer(out, value).expect("these have no maps whose keys are not text");
    })
}

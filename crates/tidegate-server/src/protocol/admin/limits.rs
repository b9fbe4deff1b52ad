//! `/v1/limits` and `/v1/top`: limits, their statistics, and their busiest keys.

use super::health::{StoreReport, state, why_degraded};
use crate::config::{Mode, OnError, describe_rule, near};
use crate::engine::{Limit, Limits, RULES_MAX};
use crate::protocol::http::{JSON, Problem, RawResponse, ResponseBuilder, base64, parameter};
use crate::server::Server;
use crate::store::THROTTLES_NAME;
use http::StatusCode;
use serde::Serialize;
use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tidegate::store::{Stats, TopKey};

/// Default number of keys.
const TOP: usize = 10;
/// Maximum number of keys.
const TOP_MAX: usize = 100;

#[derive(Serialize)]
struct LimitsView<'a> {
    limits: Vec<LimitView<'a>>,
    /// All keys of `CL.THROTTLE`, whose requests bring their rates.
    throttle: LimitView<'a>,
    /// Ad-hoc rules.
    unnamed: Vec<LimitView<'a>>,
    /// The word of `/readyz`: `ok`, `degraded`, `denying` or `draining`.
    state: &'static str,
    /// The problems of the store, for people.
    problems: Vec<String>,
    ad_hoc_rules: AdHocRules,
    is_config_stale: bool,
    is_draining: bool,
}

/// Whether clients may send rules, and how many are in use.
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
struct LimitView<'a> {
    name: &'a str,
    rule: String,
    explain: String,
    mode: &'static str,
    /// The reason while it is decided without the store.
    #[serde(skip_serializing_if = "Option::is_none")]
    degraded: Option<String>,
    /// The behaviour without the store; `None` if limits are in memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    on_error: Option<&'static str>,
    stats: LimitStats,
}

#[derive(Serialize)]
struct LimitStats {
    allow: u64,
    deny: u64,
    wait: u64,
    shadow_deny: u64,
    overflow: u64,
    forgotten: u64,
    /// `None` if keys are in Redis, which does not count them.
    #[serde(skip_serializing_if = "Option::is_none")]
    keys: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_keys: Option<usize>,
}

#[derive(Serialize)]
struct TopView<'a> {
    limit: &'a str,
    /// The time that the counts cover, rounded up.
    window_s: u64,
    hot: Vec<BusyKey>,
    denied: Vec<BusyKey>,
}

/// A busy key, as a string or in base64.
#[derive(Serialize)]
struct BusyKey {
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key_base64: Option<String>,
    /// Maximum number of requests; the minimum is lower by `error`.
    count: u64,
    error: u64,
}

/// Answers `/v1/limits`.
pub(super) fn all(server: &Server) -> RawResponse {
    let limits = server.engine.limits();
    let unnamed = limits.unnamed();
    let store = StoreReport::of(&server.engine);
    json(&LimitsView {
        state: state(server, &store).1,
        problems: store.problems(),
        limits: limits.named().iter().map(|limit| view(limit)).collect(),
        throttle: throttled(server),
        unnamed: distinct(&unnamed).map(|limit| view(limit)).collect(),
        ad_hoc_rules: AdHocRules {
            are_taken: server.config().server.has_ad_hoc_rules,
            open: distinct(&unnamed).count(),
            max: RULES_MAX,
        },
        is_config_stale: server.status.is_config_stale.load(Ordering::Relaxed),
        is_draining: server.status.drain.has_begun(),
    })
}

/// Removes one ad-hoc rule or all of them, with their keys.
pub(super) fn clear(server: &Server, query: Option<&str>) -> Result<RawResponse, Problem> {
    let rule = parameter(query, "rule");
    let rule = rule.as_deref().map(std::str::from_utf8).transpose();
    let rule = rule.map_err(|_| Problem::bad("`rule` is not UTF-8"))?;
    let cleared = server.engine.clear_ad_hoc_rules(rule);
    tracing::info!("the operator removed {cleared} ad-hoc rules");
    match (rule, cleared) {
        (Some(_), 0) => {
            let detail = "there is no such rule; /v1/limits lists them as `unnamed`";
            Err(Problem::new(StatusCode::NOT_FOUND, detail))
        }
        _ => Ok(json(&Cleared { cleared })),
    }
}

/// Answers `/v1/top`: the busiest keys of one limit.
pub(super) fn top(server: &Server, query: Option<&str>) -> Result<RawResponse, Problem> {
    let Some(name) = parameter(query, "limit") else {
        return Err(Problem::bad("`limit` is missing: /v1/top?limit=name"));
    };
    let count = match parameter(query, "k") {
        None => TOP,
        Some(text) => number(&text)?,
    };
    if *name == *THROTTLES_NAME.as_bytes() {
        // Only fingerprints of its keys are stored.
        return Ok(json(&top_view(THROTTLES_NAME, &tidegate::store::Top::default(), key)));
    }
    let limit = find(&server.engine.limits(), &String::from_utf8_lossy(&name))?;
    let view = |top: &TopKey| match server.engine.redacted_key(&limit, top.fingerprint) {
        Some(digest) => BusyKey { key: Some(digest), key_base64: None, ..key(top) },
        None => key(top),
    };
    Ok(json(&top_view(limit.name(), &limit.counters().top(count), view)))
}

fn top_view<'a>(
    limit: &'a str,
    top: &tidegate::store::Top,
    key: impl Fn(&TopKey) -> BusyKey,
) -> TopView<'a> {
    TopView {
        limit,
        window_s: top.window.as_secs_ceil(),
        hot: top.hot.iter().map(&key).collect(),
        denied: top.denied.iter().map(&key).collect(),
    }
}

/// Returns each ad-hoc rule once, however its text was written.
pub(super) fn distinct(unnamed: &[Arc<Limit>]) -> impl Iterator<Item = &Arc<Limit>> {
    unnamed.iter().enumerate().filter_map(|(index, limit)| {
        let is_same = |other: &Arc<Limit>| Arc::ptr_eq(other, limit);
        (!unnamed[..index].iter().any(is_same)).then_some(limit)
    })
}

fn view(limit: &Limit) -> LimitView<'_> {
    let (deny, shadow_deny) = (limit.denied(), limit.shadow_denied());
    LimitView {
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
        stats: LimitStats {
            deny,
            shadow_deny,
            ..LimitStats::of(&limit.counters().stats(), limit.counters().shared().is_some())
        },
    }
}

/// Returns the statistics of `CL.THROTTLE` as of one limit.
fn throttled(server: &Server) -> LimitView<'_> {
    let store = server.engine.store();
    let shared = store.shared();
    LimitView {
        name: THROTTLES_NAME,
        rule: "comes with each request".to_owned(),
        explain: "each command has its own rate: CL.THROTTLE key max_burst count period".to_owned(),
        mode: "enforce",
        degraded: shared.and_then(|store| why_degraded(store.throttle_health())),
        on_error: shared.map(|_| "local"),
        stats: LimitStats::of(&store.throttle_stats(), shared.is_some()),
    }
}

impl LimitStats {
    /// Returns the statistics of a limit without shadow mode.
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

/// Finds an existing limit. A new rule text does not create one.
fn find(limits: &Limits, name: &str) -> Result<Arc<Limit>, Problem> {
    let unnamed = || limits.unnamed().into_iter().find(|limit| limit.name() == name);
    limits.get(name).cloned().or_else(unnamed).ok_or_else(|| {
        let names = limits.named().iter().map(|limit| limit.name());
        let nearest = if name.len() <= 64 { near(name, names) } else { None };
        let detail: Cow<'static, str> = match nearest {
            Some(nearest) => format!("there is no such limit; did you mean `{nearest}`?").into(),
            None => "there is no such limit; /v1/limits lists them".into(),
        };
        Problem::new(StatusCode::NOT_FOUND, detail)
    })
}

fn key(top: &TopKey) -> BusyKey {
    let bytes = top.name.as_bytes();
    let text = std::str::from_utf8(bytes).ok().map(str::to_owned);
    let key_base64 = text.is_none().then(|| base64::encode(bytes));
    BusyKey { key: text, key_base64, count: top.count, error: top.error }
}

fn json(value: &impl Serialize) -> RawResponse {
    ResponseBuilder::new(StatusCode::OK).body(JSON, |out| {
        serde_json::to_writer(out, value).expect("all keys of its maps are strings");
    })
}

//! Which limits would decide a request, on which keys, and why.
//!
//! Always   Consumes nothing: it goes the way that deciding goes ([`matching`](crate::matching)), and peeks
//!          where deciding takes. Keys are shown with escapes, so that no key can play with a terminal, and
//!          without credentials.

mod asked;
mod envoy;
mod text;

pub use asked::{Asked, Values, hint};
pub use envoy::{Entry, ExplainedDescriptor, explain_descriptors};

use crate::config::Mode;
use crate::engine::{Ask, Engine, Limit};
use crate::matching::{Look, Path, Request, look};
use crate::store::Key;
use serde::Serialize;
use std::cmp::Reverse;
use tidegate::{Decision, Retry, Span, Verdict};
use tidegate_http::{JSON_INTEGER_MAX, millis_ceil};

/// What would happen to a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Explanation {
    /// What the caller would be told.
    pub verdict: Told,
    /// The limit that would decide: the one that keeps the request waiting longest, or else the one with the
    /// least remaining. None if none counts the request.
    pub decided_by: Option<String>,
    /// The path as limits compare it, with escapes, where that is not how it was sent; or that it is ambiguous.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Each limit, in the order of the configuration; none of them where Envoy asks.
    pub limits: Vec<Explained>,
    /// Where Envoy asks, each descriptor in the order asked.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub descriptors: Vec<ExplainedDescriptor>,
    /// What seems to be configured otherwise than it was meant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

/// What one limit makes of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Explained {
    /// Its name.
    pub limit: String,
    /// Its rule.
    pub rule: String,
    /// `enforce`, `shadow` or `off`.
    pub mode: &'static str,
    /// Whether it counts the request.
    pub counts: bool,
    /// Why, or why not.
    pub why: String,
    /// Whom it would count, with escapes; a digest stands for a credential.
    pub key: Option<String>,
    /// How it stands now with this key.
    pub now: Option<Standing>,
    /// Why `now` is not what the store says, and who decides instead; none if the store answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub without_store: Option<String>,
}

/// What a limit would say to this key now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Standing {
    /// What it would say. A limit in the shadow says it, and is not obeyed.
    pub verdict: Told,
    /// Whether the caller would pass only because the limit is in the shadow.
    pub is_shadowed: bool,
    /// The most that it admits at once, if anybody knows.
    pub limit: Option<u64>,
    /// How much more would be admitted after this request, if anybody knows.
    pub remaining: Option<u64>,
    /// How long to wait, if that helps.
    pub retry_after_ms: Option<u64>,
    /// How long until the key is as good as new; nobody knows where only a release can tell.
    pub reset_after_ms: Option<u64>,
}

/// What a caller is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Told {
    /// It passes now.
    Allow,
    /// It passes after a while.
    Wait,
    /// It does not pass.
    Deny,
}

/// What would happen to this request, if it came now.
pub async fn explain(engine: &Engine, request: &Request<'_>, cost: u64) -> Explanation {
    let mut limits = Vec::new();
    let mut weights = Vec::new();
    for limit in engine.limits().named() {
        let (explained, weight) = explain_one(engine, limit, request, cost).await;
        weights.extend(weight.map(|weight| (weight, explained.limit.clone())));
        limits.push(explained);
    }
    let (verdict, decided_by) = verdict(weights);
    let path = request.path.as_ref().and_then(path);
    Explanation { verdict, decided_by, path, limits, descriptors: Vec::new(), hint: None }
}

/// What limits take a path for, if that is worth telling.
fn path(path: &Path<'_>) -> Option<String> {
    match path.canonical() {
        None => Some("ambiguous: servers differ about which page it is".to_owned()),
        Some(_) if path.came_canonical() => None,
        Some(canonical) => Some(canonical.escape_ascii().to_string()),
    }
}

/// What those who have something to say make together, and which of them does. Of those that weigh the same, the first.
fn verdict(weights: Vec<(Weight, String)>) -> (Told, Option<String>) {
    let heaviest = weights.iter().map(|(weight, _)| *weight).max();
    let decisive = weights.into_iter().find(|(weight, _)| Some(*weight) == heaviest);
    (heaviest.map_or(Told::Allow, Weight::told), decisive.map(|(_, limit)| limit))
}

/// How much a limit has to say in the end, the least first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Weight {
    Allow(Reverse<u64>),
    Wait(Span),
    Deny(Span),
    /// Waiting does not help.
    DenyForGood,
}

impl Weight {
    fn of(decision: &Decision) -> Self {
        match decision.verdict {
            Verdict::Allow => Self::Allow(Reverse(decision.remaining)),
            Verdict::Wait(wait) => Self::Wait(wait),
            Verdict::Deny(Retry::After(wait)) => Self::Deny(wait),
            Verdict::Deny(Retry::OnRelease) => Self::Deny(Span::MAX),
            Verdict::Deny(Retry::Never) => Self::DenyForGood,
        }
    }

    fn told(self) -> Told {
        match self {
            Self::Allow(_) => Told::Allow,
            Self::Wait(_) => Told::Wait,
            Self::Deny(_) | Self::DenyForGood => Told::Deny,
        }
    }
}

async fn explain_one(
    engine: &Engine,
    limit: &Limit,
    request: &Request<'_>,
    cost: u64,
) -> (Explained, Option<Weight>) {
    let config = limit.config();
    let look = look(config, request);
    let mut explained = Explained {
        limit: limit.name().to_owned(),
        rule: limit.rule().to_string(),
        mode: mode(limit.mode()),
        counts: matches!(look, Look::Counts { .. }),
        why: text::why(config, &look),
        key: None,
        now: None,
        without_store: None,
    };
    let key = match look {
        Look::Counts { key, .. } => key,
        Look::Refuses(_) => return (explained, Some(Weight::DenyForGood)),
        _ => return (explained, None),
    };
    explained.key = Some(engine.shown_key(limit, &key));
    let weight = explained.stand(engine, &Ask { limit, key: Key(&key), cost }).await;
    (explained, weight)
}

impl Explained {
    /// Says how it stands with the key, also while the store does not answer.
    async fn stand(&mut self, engine: &Engine, ask: &Ask<'_>) -> Option<Weight> {
        let decision = match engine.look(ask).await {
            Ok(decision) => decision,
            Err(error) => {
                self.without_store = Some(text::without_store(ask.limit.config().on_error, &error));
                engine.look_without_store(ask)
            }
        };
        // A limit in the shadow is not obeyed, so it does not decide.
        let is_obeyed = ask.limit.mode() == Mode::Enforce;
        self.now = Some(standing(&decision, is_obeyed));
        is_obeyed.then(|| Weight::of(&decision))
    }
}

fn mode(mode: Mode) -> &'static str {
    match mode {
        Mode::Enforce => "enforce",
        Mode::Shadow => "shadow",
        Mode::Off => "off",
    }
}

fn standing(decision: &Decision, is_obeyed: bool) -> Standing {
    let wait = match decision.verdict {
        Verdict::Wait(wait) => Some(wait),
        _ => decision.retry_after(),
    };
    Standing {
        verdict: Weight::of(decision).told(),
        is_shadowed: !is_obeyed && !decision.is_allow(),
        limit: decision.known_limit().map(in_json),
        remaining: decision.known_remaining().map(in_json),
        retry_after_ms: wait.map(millis_ceil),
        reset_after_ms: decision.known_reset_after().map(millis_ceil),
    }
}

fn in_json(number: u64) -> u64 {
    number.min(JSON_INTEGER_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The key that a limit by these parts is shown to count this request on.
    fn shown_key(engine: &Engine, request: &Request<'_>) -> String {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let explained = runtime.block_on(explain(engine, request, 1));
        explained.limits[0].key.clone().expect("it counts every request")
    }

    fn engine(key: &str) -> Engine {
        let text = format!("[limits.a]\nrule = \"9/s\"\nkey = {key}\n");
        let config = crate::config::read(&text, "t.toml").unwrap();
        let clock = crate::clock::ServerClock::Manual(tidegate::ManualClock::new());
        Engine::new(&config, clock, &tidegate::Snapshot::default())
    }

    #[test]
    fn a_key_is_shown_without_the_credentials_in_it() {
        let request = |cookie: &'static [u8]| Request {
            path: Some("/a".into()),
            headers: vec![("authorization", b"Bearer hush"), ("cookie", cookie)],
            ..Request::default()
        };
        let (one, two) = (request(b"sid=s3cret"), request(b"sid=other"));
        let parts = [
            "\"header:authorization\"",
            "[\"cookie:sid\", \"path\"]",
            "[\"path\", \"header:cookie\"]",
        ];
        for parts in parts {
            let engine = engine(parts);
            let text = shown_key(&engine, &one);
            assert!(
                text.starts_with("[redacted ") && text.len() >= "[redacted ]".len() + 16,
                "{text}"
            );
            assert_eq!(text, shown_key(&engine, &one));
        }
        let by_cookie = engine("\"cookie:sid\"");
        let (one_key, two_key) = (shown_key(&by_cookie, &one), shown_key(&by_cookie, &two));
        assert_ne!(one_key, two_key, "different keys look different");
        let nobody = shown_key(&engine("\"cookie:none\""), &one);
        assert_eq!(nobody, "", "the key of requests without a credential has none in it");
        assert_eq!(shown_key(&engine("\"path\""), &one), "/a");
    }

    #[test]
    fn no_number_is_shown_that_nobody_knows() {
        let shown = serde_json::to_string(&standing(&Decision::UNLIMITED, true)).unwrap();
        let unknown = r#""limit":null,"remaining":null,"retry_after_ms":null,"reset_after_ms":0}"#;
        assert!(shown.ends_with(unknown), "{shown}");
        let mut endless = Decision::without_state(Verdict::Deny(Retry::After(Span::MAX)));
        endless.limit = u64::MAX - 1;
        let shown = serde_json::to_string(&standing(&endless, true)).unwrap();
        let most = JSON_INTEGER_MAX;
        assert!(
            shown.contains(&format!(r#""limit":{most},"remaining":0,"retry_after_ms":{most}"#))
        );
    }
}

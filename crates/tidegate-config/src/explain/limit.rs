//! What one limit does with a request, and what it would decide for a key.

use super::reason;
use crate::config::{LimitConfig, Mode};
use crate::matching::{Look, Request, look};
use serde::Serialize;
use std::cmp::Reverse;
use std::fmt::Display;
use tidegate::{Decision, Retry, Span, Verdict};
use tidegate_http::{JSON_INTEGER_MAX, millis_ceil};

/// What one limit does with a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LimitExplanation {
    /// The limit's name.
    pub limit: String,
    /// The limit's rule.
    pub rule: String,
    /// `enforce`, `shadow` or `off`.
    pub mode: &'static str,
    /// Whether the limit counts the request.
    pub counts: bool,
    /// Why it does, or does not.
    pub why: String,
    /// The key under which it counts the request, with escapes, or with a digest in place of a credential.
    pub key: Option<String>,
    /// What the limit would decide for this key now.
    pub now: Option<KeyState>,
    /// Why `now` does not come from the store, and what decides instead. `None` if the store answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub without_store: Option<String>,
    #[serde(skip)]
    pub(super) is_enforced: bool,
    #[serde(skip)]
    pub(super) to_peek: Option<KeyToPeek>,
    #[serde(skip)]
    pub(super) weight: Option<Weight>,
}

/// A limit and a key whose state an engine adds to an explanation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyToPeek {
    /// The index of the limit in the configuration.
    pub index: usize,
    /// The key.
    pub key: Vec<u8>,
}

/// What a limit would decide for a key now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct KeyState {
    /// The decision. In shadow mode the request passes whatever it is.
    pub verdict: VerdictKind,
    /// Whether the request passes only because the limit is in shadow mode.
    pub is_shadowed: bool,
    /// The maximum that the limit admits at once, if that is known.
    pub limit: Option<u64>,
    /// What the limit would admit after this request, if that is known.
    pub remaining: Option<u64>,
    /// The time to wait before a request can pass, if waiting helps.
    pub retry_after_ms: Option<u64>,
    /// The time until the key has recovered; `None` if that depends on a release.
    pub reset_after_ms: Option<u64>,
}

/// A decision without its numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum VerdictKind {
    /// The request passes now.
    Allow,
    /// The request passes after a wait.
    Wait,
    /// The request does not pass.
    Deny,
}

impl LimitExplanation {
    pub(super) fn new(limit: &LimitConfig, counts: bool, why: String) -> Self {
        Self {
            limit: limit.name.clone(),
            rule: limit.rule.to_string(),
            mode: match limit.mode {
                Mode::Enforce => "enforce",
                Mode::Shadow => "shadow",
                Mode::Off => "off",
            },
            counts,
            why,
            key: None,
            now: None,
            without_store: None,
            is_enforced: limit.mode == Mode::Enforce,
            to_peek: None,
            weight: None,
        }
    }

    pub(super) fn of_request(index: usize, limit: &LimitConfig, request: &Request<'_>) -> Self {
        let look = look(limit, request);
        let counts = matches!(look, Look::Counts { .. });
        let explanation = Self::new(limit, counts, reason::why(limit, &look));
        match look {
            Look::Counts { key, .. } => {
                Self { to_peek: Some(KeyToPeek { index, key }), ..explanation }
            }
            Look::Refuses(_) => Self { weight: Some(Weight::DenyForGood), ..explanation },
            _ => explanation,
        }
    }

    /// Adds the key in a form that may be shown, and the limit's decision for it.
    pub fn add_state(&mut self, shown_key: String, decision: &Decision) {
        self.key = Some(shown_key);
        self.now = Some(KeyState::new(decision, self.is_enforced));
        // Only an enforced limit affects the request.
        self.weight = self.is_enforced.then(|| Weight::of(decision));
    }

    /// Adds that the store did not answer, so that the limit's `on_error` decides.
    pub fn add_store_error(&mut self, limit: &LimitConfig, error: &dyn Display) {
        self.without_store = Some(reason::without_store(limit.on_error, error));
    }
}

impl KeyState {
    fn new(decision: &Decision, is_enforced: bool) -> Self {
        let wait = match decision.verdict {
            Verdict::Wait(wait) => Some(wait),
            _ => decision.retry_after(),
        };
        Self {
            verdict: Weight::of(decision).verdict(),
            is_shadowed: !is_enforced && !decision.is_allow(),
            limit: decision.known_limit().map(in_json),
            remaining: decision.known_remaining().map(in_json),
            retry_after_ms: wait.map(millis_ceil),
            reset_after_ms: decision.known_reset_after().map(millis_ceil),
        }
    }
}

fn in_json(number: u64) -> u64 {
    number.min(JSON_INTEGER_MAX)
}

/// A decision, ordered by how much it restricts the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Weight {
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

    pub(super) fn verdict(self) -> VerdictKind {
        match self {
            Self::Allow(_) => VerdictKind::Allow,
            Self::Wait(_) => VerdictKind::Wait,
            Self::Deny(_) | Self::DenyForGood => VerdictKind::Deny,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_number_is_null_and_a_large_one_fits_into_json() {
        let shown = |decision| serde_json::to_string(&KeyState::new(&decision, true)).unwrap();
        let unknown = r#""limit":null,"remaining":null,"retry_after_ms":null,"reset_after_ms":0}"#;
        assert!(shown(Decision::UNLIMITED).ends_with(unknown), "{}", shown(Decision::UNLIMITED));
        let mut endless = Decision::without_state(Verdict::Deny(Retry::After(Span::MAX)));
        endless.limit = u64::MAX - 1;
        let most = JSON_INTEGER_MAX;
        let expected = format!(r#""limit":{most},"remaining":0,"retry_after_ms":{most}"#);
        assert!(shown(endless).contains(&expected), "{}", shown(endless));
    }
}

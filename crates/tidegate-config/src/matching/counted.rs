//! Which limits count a request, and under which keys.

use super::{Condition, KeyPart, Request, key};
use crate::config::{LimitConfig, MissingKey, Mode};
use std::borrow::Cow;
use std::fmt;

/// A request that must be refused, because a limit that is told so finds no key in it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the limit `{limit}` counts by `{part}`, which {}", .why.clause())]
pub struct KeyMissing {
    /// The name of the limit.
    pub limit: String,
    /// What it counts by.
    pub part: KeyPart,
    /// Why the request has no value for it.
    pub why: NoValue,
}

/// Why a request has no value for a part of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoValue {
    /// Every server finds none.
    Absent,
    /// It comes more than once.
    Repeated,
    /// Servers differ about what it is, or whether it is there.
    Ambiguous,
}

impl NoValue {
    /// Whether the server behind may find a value, which the client has hidden from limits.
    pub(super) fn is_contradictory(self) -> bool {
        self != Self::Absent
    }

    fn clause(self) -> &'static str {
        match self {
            Self::Absent => "the request has not",
            Self::Repeated => "comes twice in the request",
            Self::Ambiguous => "is ambiguous in the request",
        }
    }
}

/// A part of a limit's key for which a request has no value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyFault<'a> {
    /// The part.
    pub part: &'a KeyPart,
    /// Why there is no value.
    pub why: NoValue,
}

impl KeyFault<'_> {
    /// Returns the refusal of the request by the limit of this name.
    pub fn refusal(self, limit: &str) -> KeyMissing {
        KeyMissing { limit: limit.to_owned(), part: self.part.clone(), why: self.why }
    }
}

/// `the request has no query:user`, `query:user comes twice`, `path is ambiguous`.
impl fmt::Display for KeyFault<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.why {
            NoValue::Absent => write!(f, "the request has no {}", self.part),
            NoValue::Repeated => write!(f, "{} comes twice", self.part),
            NoValue::Ambiguous => write!(f, "{} is ambiguous", self.part),
        }
    }
}

/// What a limit makes of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Look<'a> {
    /// It counts it.
    Counts {
        /// Whom.
        key: Vec<u8>,
        /// The part whose value contradicts itself, if there is one: the request shares the key of all such requests.
        contradictory: Option<KeyFault<'a>>,
    },
    /// It is off.
    Off,
    /// It counts only what Envoy asks.
    ForEnvoy,
    /// It counts who is in flight, and nobody tells it when the request is over.
    InFlight,
    /// This does not hold.
    Unless(&'a Condition),
    /// The request has not what it counts by, which is no reason to refuse it.
    Keyless(KeyFault<'a>),
    /// The request has not what it counts by, and must be refused.
    Refuses(KeyFault<'a>),
}

/// What this limit makes of this request.
pub fn look<'a>(limit: &'a LimitConfig, request: &Request<'_>) -> Look<'a> {
    if limit.mode == Mode::Off {
        return Look::Off;
    }
    if !counts_http(limit) {
        return Look::ForEnvoy;
    }
    if limit.rule.is_concurrency() {
        return Look::InFlight;
    }
    if let Some(condition) = limit.when.iter().find(|condition| !condition.holds(request)) {
        return Look::Unless(condition);
    }
    let values: Vec<Result<Cow<'_, [u8]>, NoValue>> =
        limit.key.iter().map(|part| value(part, limit, request)).collect();
    let faults = || {
        let parts = limit.key.iter().zip(&values);
        parts.filter_map(|(part, value)| {
            value.as_ref().err().map(|why| KeyFault { part, why: *why })
        })
    };
    let contradictory = faults().find(|fault| fault.why.is_contradictory());
    match (contradictory.or_else(|| faults().next()), limit.on_missing_key, limit.mode) {
        // A limit in the shadow refuses nobody.
        (Some(fault), MissingKey::Deny, Mode::Enforce) => Look::Refuses(fault),
        (Some(fault), MissingKey::Deny, _) => Look::Keyless(fault),
        (Some(fault), MissingKey::Allow, _) if contradictory.is_none() => Look::Keyless(fault),
        _ => {
            let key = key::join(values.into_iter().map(Result::unwrap_or_default));
            Look::Counts { key, contradictory }
        }
    }
}

/// What the request has for a part of the key. Where nobody can say for which path it is, a limit that counts one path only takes
/// it for that one.
fn value<'a>(
    part: &'a KeyPart,
    limit: &LimitConfig,
    request: &Request<'a>,
) -> Result<Cow<'a, [u8]>, NoValue> {
    let only_path = || {
        let path = request.path.as_ref().filter(|_| *part == KeyPart::Path)?;
        limit.when.iter().find_map(|condition| condition.only_path(path)).map(Cow::Owned)
    };
    key::value(part, request).or_else(|why| only_path().ok_or(why))
}

/// Whether it counts what is not Envoy's: it says so by a key or a condition that only HTTP has.
fn counts_http(limit: &LimitConfig) -> bool {
    let is_envoys = |part: &KeyPart| matches!(part, KeyPart::Descriptor(_) | KeyPart::Constant(_));
    limit.descriptor.is_none() || !limit.when.is_empty() || !limit.key.iter().all(is_envoys)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(lines: &str) -> LimitConfig {
        let text = format!("[limits.a]\nrule = \"1/s\"\n{lines}");
        crate::config::tests::read(&text, "t.toml").unwrap().limits.remove(0)
    }

    fn key_of(lines: &str, request: &Request<'_>) -> Option<String> {
        match look(&limit(lines), request) {
            Look::Counts { key, .. } => Some(String::from_utf8(key).unwrap()),
            _ => None,
        }
    }

    #[test]
    fn a_limit_without_a_key_counts_everybody_together() {
        assert_eq!(key_of("", &Request::default()).unwrap(), "");
    }

    #[test]
    fn conditions_must_all_hold() {
        let lines = "when = { method = [\"POST\", \"PUT\"], path = \"/login*\" }";
        let ask = |method, path: &'static str| Request {
            method: Some(method),
            path: Some(path.into()),
            ..Request::default()
        };
        assert!(key_of(lines, &ask("POST", "/login")).is_some());
        assert!(key_of(lines, &ask("PUT", "/login")).is_some());
        assert!(key_of(lines, &ask("GET", "/login")).is_none());
        let limit = limit(lines);
        let Look::Unless(condition) = look(&limit, &ask("POST", "/")) else { panic!("it counts") };
        assert_eq!(condition.to_string(), "path is /login*");
    }

    #[test]
    fn who_has_no_key_shares_one_or_passes_or_is_refused() {
        let nobody = Request::default();
        let key = "key = [\"header:x-user\"]\n";
        assert_eq!(key_of(key, &nobody).unwrap(), "");
        let allow = limit(&format!("{key}on_missing_key = \"allow\""));
        assert!(matches!(look(&allow, &nobody), Look::Keyless(_)));
        let deny = limit(&format!("{key}on_missing_key = \"deny\""));
        assert!(matches!(look(&deny, &nobody), Look::Refuses(_)));
        let shadow = limit(&format!("{key}on_missing_key = \"deny\"\nmode = \"shadow\""));
        assert!(matches!(look(&shadow, &nobody), Look::Keyless(_)), "a shadow refuses nobody");
    }

    #[test]
    fn who_sends_a_header_twice_is_nobody_new() {
        let key = "key = [\"header:x-user\"]\n";
        let fresh = |other: &'static str| {
            let headers = vec![("x-user", &b"ann"[..]), ("x-user", other.as_bytes())];
            Request { headers, ..Request::default() }
        };
        assert_eq!(key_of(key, &fresh("1")).unwrap(), "");
        assert_eq!(key_of(key, &fresh("2")).unwrap(), "");
        let deny = limit(&format!("{key}on_missing_key = \"deny\""));
        assert!(matches!(look(&deny, &fresh("1")), Look::Refuses(_)));
    }

    #[test]
    fn a_contradictory_value_is_never_let_through_uncounted() {
        let query = |query| Request { query: Some(query), ..Request::default() };
        let headers = |headers: &[(&'static str, &'static str)]| {
            let headers = headers.iter().map(|(name, value)| (*name, value.as_bytes())).collect();
            Request { headers, ..Request::default() }
        };
        let path = |path: &'static str| Request { path: Some(path.into()), ..Request::default() };
        for (lines, request) in [
            ("key = \"query:user\"", query("user=ann&user=")),
            ("key = \"query:user\"", query("user=ann&user=ann")),
            ("key = \"query:user\"", query("User=ann")),
            ("key = \"header:x-user\"", headers(&[("x-user", "ann"), ("x-user", "")])),
            ("key = \"cookie:sid\"", headers(&[("cookie", "sid=1; sid=2")])),
            ("key = \"path\"\nwhen = { path = \"/login*\" }", path("/x%2f..%2flogin")),
        ] {
            let told = |missing: &str| format!("{lines}\non_missing_key = \"{missing}\"");
            for missing in ["allow", "shared"] {
                let key = key_of(&told(missing), &request);
                assert_eq!(key.as_deref(), Some(""), "{missing}: {lines}: {request:?}");
            }
            assert!(matches!(look(&limit(&told("deny")), &request), Look::Refuses(_)), "{lines}");
        }
        for absent in [query("user="), query("x=1"), Request::default()] {
            let limit = limit("key = \"query:user\"\non_missing_key = \"allow\"");
            assert!(matches!(look(&limit, &absent), Look::Keyless(_)), "{absent:?}");
        }
    }

    #[test]
    fn a_contradictory_value_is_counted_where_another_part_is_absent() {
        let lines = "key = [\"query:user\", \"header:x-user\"]\non_missing_key = \"allow\"";
        let request = Request { query: Some("user=ann&user=bob"), ..Request::default() };
        assert_eq!(key_of(lines, &request).as_deref(), Some("|"));
    }

    #[test]
    fn who_lacks_one_part_is_still_told_apart_by_the_others() {
        let key = "key = [\"method\", \"header:x-user\"]";
        let ask = |method| Request { method: Some(method), ..Request::default() };
        assert_eq!(key_of(key, &ask("GET")).unwrap(), "GET|");
        assert_eq!(key_of(key, &ask("PUT")).unwrap(), "PUT|");
    }

    #[test]
    fn what_only_envoy_asks_is_not_counted_here() {
        let envoy = "domain = \"d\"\ndescriptor = [\"a\"]\n";
        let look_at = |lines: &str| look(&limit(lines), &Request::default()) == Look::ForEnvoy;
        assert!(look_at(envoy));
        assert!(look_at(&format!("{envoy}key = \"descriptor:a\"")));
        assert!(look_at(&format!("{envoy}key = \"constant:all\"")));
        assert!(!look_at(&format!("{envoy}key = \"ip\"")));
        assert!(!look_at(&format!("{envoy}when = {{ path = \"/*\" }}")));
    }
}

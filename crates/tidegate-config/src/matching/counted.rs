//! Whether a limit counts a request, and under which key.

use crate::config::{LimitConfig, MissingKey, Mode};
use crate::request::{Condition, KeyPart, NoValue, Request, key, names_credential};
use std::borrow::Cow;
use std::fmt;

/// The request has no value for the key of a limit with `on_missing_key = "deny"`, so it is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the limit `{limit}` counts by `{part}`, which {}", clause(*.why))]
pub struct KeyMissing {
    /// The name of the limit.
    pub limit: String,
    /// The part of the key without a value.
    pub part: KeyPart,
    /// Why there is no value.
    pub why: NoValue,
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

fn clause(why: NoValue) -> &'static str {
    match why {
        NoValue::Absent => "the request does not have",
        NoValue::Repeated => "comes twice in the request",
        NoValue::Ambiguous => "is ambiguous in the request",
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

/// Whether a limit counts a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Look<'a> {
    /// The limit counts the request.
    Counts {
        /// The key under which the request is counted.
        key: Vec<u8>,
        /// The repeated or ambiguous part, if there is one: the request is counted under the shared key.
        contradictory: Option<KeyFault<'a>>,
    },
    /// The limit is off.
    Off,
    /// The limit counts only requests of Envoy.
    ForEnvoy,
    /// The limit counts requests in flight, and this protocol does not report the end of a request.
    InFlight,
    /// The limit does not count the request because this condition does not hold.
    Unless(&'a Condition),
    /// The request has no value for the key, and passes uncounted.
    Keyless(KeyFault<'a>),
    /// The request has no value for the key, and is refused.
    Refuses(KeyFault<'a>),
}

/// Returns whether a limit counts a request, and under which key.
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
        // A limit in shadow mode refuses no request.
        (Some(fault), MissingKey::Deny, Mode::Enforce) => Look::Refuses(fault),
        (Some(fault), MissingKey::Deny, _) => Look::Keyless(fault),
        (Some(fault), MissingKey::Allow, _) if contradictory.is_none() => Look::Keyless(fault),
        _ => {
            let key = key::join(values.into_iter().map(Result::unwrap_or_default));
            Look::Counts { key, contradictory }
        }
    }
}

/// Returns the value of a part of the key. If the path is ambiguous and the limit counts only one path, the value is that
/// path.
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

/// Returns whether the keys of a limit contain credentials.
pub fn counts_credentials(limit: &LimitConfig) -> bool {
    let mut entries = limit.descriptor.iter().flat_map(|descriptor| &descriptor.entries);
    limit.key.iter().any(KeyPart::is_credential)
        || entries.any(|entry| names_credential(&entry.key))
}

/// Returns whether a limit counts HTTP requests: one without a descriptor does, and one whose key or conditions need HTTP.
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
    fn a_limit_without_a_key_counts_all_requests_together() {
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
    fn a_request_without_a_key_shares_one_or_passes_or_is_denied() {
        let anonymous = Request::default();
        let key = "key = [\"header:x-user\"]\n";
        assert_eq!(key_of(key, &anonymous).unwrap(), "");
        let allow = limit(&format!("{key}on_missing_key = \"allow\""));
        assert!(matches!(look(&allow, &anonymous), Look::Keyless(_)));
        let deny = limit(&format!("{key}on_missing_key = \"deny\""));
        assert!(matches!(look(&deny, &anonymous), Look::Refuses(_)));
        let shadow = limit(&format!("{key}on_missing_key = \"deny\"\nmode = \"shadow\""));
        assert!(
            matches!(look(&shadow, &anonymous), Look::Keyless(_)),
            "a limit in shadow mode refuses no request"
        );
    }

    #[test]
    fn a_repeated_header_has_no_key_of_its_own() {
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
    fn a_missing_part_leaves_the_other_parts_of_the_key() {
        let key = "key = [\"method\", \"header:x-user\"]";
        let ask = |method| Request { method: Some(method), ..Request::default() };
        assert_eq!(key_of(key, &ask("GET")).unwrap(), "GET|");
        assert_eq!(key_of(key, &ask("PUT")).unwrap(), "PUT|");
    }

    #[test]
    fn a_limit_for_envoy_does_not_count_http_requests() {
        let envoy = "domain = \"d\"\ndescriptor = [\"a\"]\n";
        let look_at = |lines: &str| look(&limit(lines), &Request::default()) == Look::ForEnvoy;
        assert!(look_at(envoy));
        assert!(look_at(&format!("{envoy}key = \"descriptor:a\"")));
        assert!(look_at(&format!("{envoy}key = \"constant:all\"")));
        assert!(!look_at(&format!("{envoy}key = \"ip\"")));
        assert!(!look_at(&format!("{envoy}when = {{ path = \"/*\" }}")));
    }
}

//! Which limits count a request, and under which keys.

use super::{Condition, KeyPart, Request, key};
use crate::config::{LimitConfig, MissingKey, Mode};
use crate::engine::{Limit, Limits};
use std::borrow::Cow;
use std::sync::Arc;

/// A limit that counts a request.
#[derive(Clone, Debug)]
pub struct Counted {
    /// The limit.
    pub limit: Arc<Limit>,
    /// Whom it counts.
    pub key: Vec<u8>,
}

/// A request that must be refused, because a limit that is told so finds no key in it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the limit `{limit}` counts by `{part}`, which the request has not")]
pub struct KeyMissing {
    /// The name of the limit.
    pub limit: String,
    /// What it counts by.
    pub part: KeyPart,
}

/// What a limit makes of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Look<'a> {
    /// It counts it.
    Counts {
        /// Whom.
        key: Vec<u8>,
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
    Keyless(&'a KeyPart),
    /// The request has not what it counts by, and must be refused.
    Refuses(&'a KeyPart),
}

/// Every limit with a name that counts this request, in the order of the configuration.
pub fn counted(limits: &Limits, request: &Request<'_>) -> Result<Vec<Counted>, KeyMissing> {
    let mut counted = Vec::new();
    for limit in limits.named() {
        match look(limit.config(), request) {
            Look::Counts { key } => counted.push(Counted { limit: Arc::clone(limit), key }),
            Look::Refuses(part) => {
                return Err(KeyMissing { limit: limit.name().to_owned(), part: part.clone() });
            }
            Look::Off | Look::ForEnvoy | Look::InFlight | Look::Unless(_) | Look::Keyless(_) => {}
        }
    }
    Ok(counted)
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
    let values: Vec<Option<Cow<'_, [u8]>>> =
        limit.key.iter().map(|part| value(part, limit, request)).collect();
    let missing = values.iter().position(Option::is_none).map(|place| &limit.key[place]);
    match (missing, limit.on_missing_key, limit.mode) {
        // A limit in the shadow refuses nobody.
        (Some(part), MissingKey::Deny, Mode::Enforce) => Look::Refuses(part),
        (Some(part), MissingKey::Allow | MissingKey::Deny, _) => Look::Keyless(part),
        _ => Look::Counts { key: key::join(values.into_iter().map(Option::unwrap_or_default)) },
    }
}

/// What the request has for a part of the key. Where nobody can say for which path it is, a limit that counts one path only takes
/// it for that one.
fn value<'a>(
    part: &'a KeyPart,
    limit: &LimitConfig,
    request: &Request<'a>,
) -> Option<Cow<'a, [u8]>> {
    let only_path = || {
        let path = request.path.as_ref().filter(|_| *part == KeyPart::Path)?;
        limit.when.iter().find_map(|condition| condition.only_path(path)).map(Cow::Owned)
    };
    key::value(part, request).or_else(only_path)
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
        crate::config::read(&text, "t.toml").unwrap().limits.remove(0)
    }

    fn key_of(lines: &str, request: &Request<'_>) -> Option<String> {
        match look(&limit(lines), request) {
            Look::Counts { key } => Some(String::from_utf8(key).unwrap()),
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

//! Evaluates the conditions of a limit for a request.
//!
//! Always   A missing value matches no pattern: a condition on it does not hold, and its negation does.
//!          If servers differ about a value (a repeated header, cookie or parameter, a path with `%2f..`), the condition holds
//!          if it holds for any reading, so that the request is counted.

use super::http_request::Request;
use super::key;
use super::part::KeyPart;
use super::path::{Path, PathPattern};
use super::pattern::Pattern;
use super::values::Values;
use ipnet::IpNet;
use std::fmt;

/// What must hold for a limit to count a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// The part of the request that is compared.
    pub part: KeyPart,
    /// The patterns; one of them must match.
    pub patterns: Vec<Pattern>,
    /// The same patterns in canonical form, if the part is `path`.
    paths: Vec<PathPattern>,
    /// If the part is `ip`, the networks instead of patterns; the address must be in one of them.
    pub networks: Vec<IpNet>,
    /// Whether the condition holds if no pattern and no network matches.
    pub is_negated: bool,
}

impl Condition {
    /// Creates a condition without patterns, which never holds.
    ///
    /// ```
    /// use tidegate_config::matching::{Condition, KeyPart, Request};
    ///
    /// let mut condition = Condition::new(KeyPart::Path, false);
    /// condition.add_pattern("/login*");
    /// let request = Request { path: Some("//LOGIN;x".into()), ..Request::default() };
    /// assert!(condition.holds(&request), "some servers read this path as /login");
    /// ```
    pub fn new(part: KeyPart, is_negated: bool) -> Self {
        let (patterns, paths, networks) = (Vec::new(), Vec::new(), Vec::new());
        Self { part, patterns, paths, networks, is_negated }
    }

    /// Adds a pattern; one of the patterns must match.
    pub fn add_pattern(&mut self, pattern: impl Into<String>) {
        let pattern = Pattern(pattern.into());
        if self.part == KeyPart::Path {
            self.paths.push(PathPattern::new(&pattern.0));
        }
        self.patterns.push(pattern);
    }

    /// Returns whether the condition holds for this request.
    pub fn holds(&self, request: &Request<'_>) -> bool {
        match &self.part {
            KeyPart::Path => self.holds_for_path(request.path.as_ref()),
            KeyPart::Header(name) => self.holds_for(&Values::of_header(request, name)),
            KeyPart::Cookie(name) => self.holds_for(&Values::of_cookie(request, name)),
            KeyPart::Query(name) => self.holds_for(&Values::of_query(request, name)),
            _ => self.matches(request) != self.is_negated,
        }
    }

    /// Returns the path for which the condition holds, if there is exactly one.
    pub(crate) fn only_path(&self, path: &Path<'_>) -> Option<Vec<u8>> {
        match &self.paths[..] {
            [only] if !self.is_negated => only.only(path),
            _ => None,
        }
    }

    fn holds_for_path(&self, path: Option<&Path<'_>>) -> bool {
        let Some(path) = path else { return self.is_negated };
        if self.is_negated {
            return !self.paths.iter().any(|pattern| pattern.surely_matches(path));
        }
        self.paths.iter().any(|pattern| pattern.may_match(path))
    }

    /// A condition holds if any value matches, and its negation holds if any value does not.
    fn holds_for(&self, values: &Values<'_>) -> bool {
        if self.is_negated && values.may_be_absent {
            return true;
        }
        values.all.iter().any(|value| self.is_matched_by(value) != self.is_negated)
    }

    fn matches(&self, request: &Request<'_>) -> bool {
        if let KeyPart::Ip { .. } = self.part {
            let ip = request.ip.map(|ip| ip.to_canonical());
            return ip.is_some_and(|ip| self.networks.iter().any(|net| net.contains(&ip)));
        }
        let value = key::value(&self.part, request);
        value.is_ok_and(|value| self.is_matched_by(&value))
    }

    fn is_matched_by(&self, value: &[u8]) -> bool {
        !value.is_empty() && self.patterns.iter().any(|pattern| pattern.matches(value))
    }
}

/// `path is /login* or /signin*`, `host is not internal.*`.
impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let part = match &self.part {
            KeyPart::Ip { .. } => "ip".to_owned(),
            part => part.to_string(),
        };
        let is = if self.is_negated { "is not" } else { "is" };
        let networks = self.networks.iter().map(ToString::to_string);
        let is_secret = |pattern: &Pattern| self.part.is_credential() && pattern.0 != "*";
        let patterns = self.patterns.iter().map(|pattern| {
            if is_secret(pattern) { "[redacted]".to_owned() } else { pattern.to_string() }
        });
        let meant: Vec<String> = networks.chain(patterns).collect();
        write!(f, "{part} {is} {}", meant.join(" or "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn condition(part: &str, pattern: &str, is_negated: bool) -> Condition {
        let mut condition = Condition::new(part.parse().unwrap(), is_negated);
        condition.add_pattern(pattern);
        condition
    }

    #[test]
    fn a_condition_prints_no_credential() {
        let printed = |part: &str, pattern: &str| condition(part, pattern, false).to_string();
        assert_eq!(
            printed("header:authorization", "Bearer hush"),
            "header:authorization is [redacted]"
        );
        assert_eq!(
            printed("header:x-client-authorization", "Bearer hush"),
            "header:x-client-authorization is [redacted]"
        );
        assert_eq!(printed("query:access_token", "hush"), "query:access_token is [redacted]");
        assert_eq!(printed("cookie:staff", "*"), "cookie:staff is *");
        assert_eq!(printed("header:x-plan", "free"), "header:x-plan is free");
    }

    #[test]
    fn a_condition_holds_or_its_negation_does() {
        let request = Request { path: Some("/%6cogin/x".into()), ..Request::default() };
        for (part, pattern, matches) in
            [("path", "/login*", true), ("path", "/logout", false), ("host", "*", false)]
        {
            assert_eq!(condition(part, pattern, false).holds(&request), matches);
            assert_eq!(condition(part, pattern, true).holds(&request), !matches);
        }
    }

    #[test]
    fn a_repeated_header_does_not_evade_a_limit() {
        let holds = |pattern: &str, is_negated: bool, values: &[&'static str]| {
            let headers = values.iter().map(|value| ("x-plan", value.as_bytes())).collect();
            let request = Request { headers, ..Request::default() };
            condition("header:x-plan", pattern, is_negated).holds(&request)
        };
        assert!(holds("free", false, &["free", "paid"]) && holds("free", false, &["paid", "free"]));
        assert!(!holds("free", false, &["paid", "paid"]));
        assert!(holds("staff", true, &["staff", "free"]) && holds("staff", true, &["", "staff"]));
        assert!(!holds("staff", true, &["staff", " staff "]), "whichever value a server reads");
        for (values, matches) in
            [(&["free"][..], true), (&["paid"], false), (&[""], false), (&[], false)]
        {
            assert_eq!(holds("free", false, values), matches, "{values:?}");
            assert_eq!(holds("free", true, values), !matches, "{values:?}");
        }
        assert!(
            !holds("*", false, &[""]) && holds("*", true, &[""]),
            "an empty value counts as absent"
        );
    }

    #[test]
    fn addresses_are_compared_as_networks() {
        let mut condition = Condition::new("ip".parse().unwrap(), false);
        condition.networks = vec!["10.0.0.0/8".parse().unwrap(), "2001:db8::/32".parse().unwrap()];
        let from = |ip: &str| Request { ip: Some(ip.parse().unwrap()), ..Request::default() };
        assert!(condition.holds(&from("10.1.2.3")));
        assert!(condition.holds(&from("::ffff:10.1.2.3")));
        assert!(condition.holds(&from("2001:db8::1")));
        assert!(!condition.holds(&from("11.1.2.3")));
        assert!(!condition.holds(&Request::default()));
        assert_eq!(condition.to_string(), "ip is 10.0.0.0/8 or 2001:db8::/32");
    }
}

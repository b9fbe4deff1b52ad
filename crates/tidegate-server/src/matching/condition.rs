//! Whether what a limit is told to count is what a request is.
//!
//! Always   What a request does not have matches no pattern: a condition on it does not hold, and its
//!          negation does.
//!          A header that comes twice is each of its values, because nobody knows which of them the service behind
//!          looks at: in doubt a request is counted.

use super::{Condition, KeyPart, Pattern, Request, key};
use std::fmt;

impl Condition {
    /// Whether it holds for this request.
    pub fn holds(&self, request: &Request<'_>) -> bool {
        match &self.part {
            KeyPart::Header(name) => self.holds_for_header(request, name),
            _ => self.matches(request) != self.is_negated,
        }
    }

    /// One value that matches is enough for a condition, and one that does not for its negation.
    fn holds_for_header(&self, request: &Request<'_>, name: &str) -> bool {
        let mut values = key::headers(request, name).map(<[u8]>::trim_ascii).peekable();
        if values.peek().is_none() {
            return self.is_negated;
        }
        values.any(|value| self.is_matched_by(value) != self.is_negated)
    }

    fn matches(&self, request: &Request<'_>) -> bool {
        if let KeyPart::Ip { .. } = self.part {
            let ip = request.ip.map(|ip| ip.to_canonical());
            return ip.is_some_and(|ip| self.networks.iter().any(|net| net.contains(&ip)));
        }
        let value = key::value(&self.part, request);
        value.is_some_and(|value| self.is_matched_by(&value))
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
        let part = part.parse().unwrap();
        let patterns = vec![Pattern(pattern.to_owned())];
        Condition { part, patterns, networks: Vec::new(), is_negated }
    }

    #[test]
    fn a_condition_prints_no_credential() {
        let printed = |part: &str, pattern: &str| condition(part, pattern, false).to_string();
        assert_eq!(
            printed("header:authorization", "Bearer hush"),
            "header:authorization is [redacted]"
        );
        assert_eq!(printed("cookie:staff", "*"), "cookie:staff is *");
        assert_eq!(printed("header:x-plan", "free"), "header:x-plan is free");
    }

    #[test]
    fn a_condition_holds_or_its_negation_does() {
        let request = Request { path: Some("/%6cogin/x"), ..Request::default() };
        for (part, pattern, matches) in
            [("path", "/login*", true), ("path", "/logout", false), ("host", "*", false)]
        {
            assert_eq!(condition(part, pattern, false).holds(&request), matches);
            assert_eq!(condition(part, pattern, true).holds(&request), !matches);
        }
    }

    #[test]
    fn nobody_gets_out_of_a_limit_by_sending_a_header_twice() {
        let holds = |pattern: &str, is_negated: bool, values: &[&'static str]| {
            let headers = values.iter().map(|value| ("x-plan", value.as_bytes())).collect();
            let request = Request { headers, ..Request::default() };
            condition("header:x-plan", pattern, is_negated).holds(&request)
        };
        assert!(holds("free", false, &["free", "paid"]) && holds("free", false, &["paid", "free"]));
        assert!(!holds("free", false, &["paid", "paid"]));
        assert!(holds("staff", true, &["staff", "free"]) && holds("staff", true, &["", "staff"]));
        assert!(!holds("staff", true, &["staff", " staff "]), "whichever of them is looked at");
        for (values, matches) in
            [(&["free"][..], true), (&["paid"], false), (&[""], false), (&[], false)]
        {
            assert_eq!(holds("free", false, values), matches, "{values:?}");
            assert_eq!(holds("free", true, values), !matches, "{values:?}");
        }
        assert!(!holds("*", false, &[""]) && holds("*", true, &[""]), "an empty value is none");
    }

    #[test]
    fn addresses_are_compared_as_networks() {
        let condition = Condition {
            part: "ip".parse().unwrap(),
            patterns: Vec::new(),
            networks: vec!["10.0.0.0/8".parse().unwrap(), "2001:db8::/32".parse().unwrap()],
            is_negated: false,
        };
        let from = |ip: &str| Request { ip: Some(ip.parse().unwrap()), ..Request::default() };
        assert!(condition.holds(&from("10.1.2.3")));
        assert!(condition.holds(&from("::ffff:10.1.2.3")));
        assert!(condition.holds(&from("2001:db8::1")));
        assert!(!condition.holds(&from("11.1.2.3")));
        assert!(!condition.holds(&Request::default()));
        assert_eq!(condition.to_string(), "ip is 10.0.0.0/8 or 2001:db8::/32");
    }
}

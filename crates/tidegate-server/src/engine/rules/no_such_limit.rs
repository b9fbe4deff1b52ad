//! Why a text in a request names no limit.

use super::{EVICTION_SCAN_MAX, NAME_BYTES_MAX, RULES_MAX};
use tidegate::RuleError;
use tidegate_redis::UnsupportedRule;

/// Why no limit was found for a text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoSuchLimit {
    /// The text is neither a name nor a rule.
    #[error("no limit is named `{name}`, and it is not a rule: {}{}", at(.error, .name), hint(.near.as_deref()))]
    Neither {
        /// The text.
        name: String,
        /// Why the text is not a rule.
        error: Box<RuleError>,
        /// The name that is most similar to the text.
        near: Option<String>,
    },
    /// Too many different rules are in use, or too many of this client's.
    #[error(
        "the server keeps at most {RULES_MAX} different rules that are given as text, three quarters of them for one client, and none of \
         the {EVICTION_SCAN_MAX} that it looked at can be evicted: give the limit a name in the configuration"
    )]
    TooManyRules,
    /// The text is a rule, and ad-hoc rules are switched off.
    #[error(
        "no limit is named `{0}`, and this server accepts no rules in requests (`ad_hoc_rules = false` in [server]): use the name of \
         a limit"
    )]
    NoAdHocRules(String),
    /// The store cannot represent the rule.
    #[error("{0}: {cause}", cause = .0.source)]
    UnsupportedRule(#[from] UnsupportedRule),
    /// The text is longer than any name or rule.
    #[error("a limit's name or rule has at most {NAME_BYTES_MAX} bytes")]
    TooLong,
}

/// Returns what is wrong with a text as a rule, and at which character, on one line.
pub(crate) fn at(error: &RuleError, text: &str) -> String {
    let before = text.get(..error.span().start).unwrap_or(text);
    format!("{}, at character {}", error.message(), before.chars().count() + 1)
}

fn hint(near: Option<&str>) -> String {
    near.map(|near| format!("; did you mean the limit `{near}`?")).unwrap_or_default()
}

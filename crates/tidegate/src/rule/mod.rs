//! Rules: what a limiter enforces, parsed from text or built from numbers.
//!
//! [`Rule`] is at the root of the crate. This module has the [builder](RuleBuilder) and what few programs need:
//! [`RuleErrorKind`] to react to the kind of an error, and [`Limit`] and [`State`] to decide without a limiter.

mod builder;
#[cfg(feature = "zones")]
mod zone;

pub use builder::{RuleBuilder, algorithm};
pub use tidegate_core::{CalendarUnit, Limit, RuleError, RuleErrorKind, State, Window};

use std::fmt;
use std::str::FromStr;
use tidegate_core::Span;

/// What a limiter enforces: `100/s burst 20`, `1/day calendar in Asia/Shanghai`, `concurrency 5`.
///
/// A rule is parsed from text, or built from numbers. Both check it: its numbers are in range, and its time zone exists.
///
/// ```
/// use tidegate::Rule;
///
/// let rule: Rule = "100/s burst 20".parse()?;
/// assert_eq!(rule.explain(), "admits 20 at once, then one every 10ms; at most 6020 in any 60s");
/// assert_eq!(rule, Rule::per_second(100).burst(20).build()?);
///
/// let error = "100/s bust 20".parse::<Rule>().unwrap_err();
/// assert!(error.to_string().starts_with("unknown word `bust`"));
/// # Ok::<(), tidegate::RuleError>(())
/// ```
#[derive(Clone)]
pub struct Rule {
    pub(crate) limit: Limit,
}

impl Rule {
    /// Returns a sentence that says what the rule admits.
    pub fn explain(&self) -> String {
        self.limit.rule().explain()
    }

    /// Returns whether this is a `concurrency` rule, whose admissions are held and released.
    pub fn is_concurrency(&self) -> bool {
        self.limit.is_concurrency()
    }

    /// Returns whether every request with a cost is denied: `0/s`. Such a decision needs no state.
    pub fn admits_nothing(&self) -> bool {
        self.limit.rule().admits_nothing()
    }

    /// Returns the time after which a permit is taken back, if the rule has one.
    pub fn lease(&self) -> Option<Span> {
        self.limit.permit_lease()
    }

    /// Returns the long-term rate as a count and its period, as written in the rule. `None` for `concurrency`, which has no
    /// rate, and for calendar months and years, whose length varies.
    ///
    /// ```
    /// use tidegate::{Rule, Span};
    ///
    /// assert_eq!("100/min burst 5".parse::<Rule>()?.rate(), Some((100, Span::from_secs(60))));
    /// assert_eq!("9/month calendar".parse::<Rule>()?.rate(), None);
    /// # Ok::<(), tidegate::RuleError>(())
    /// ```
    pub fn rate(&self) -> Option<(u64, Span)> {
        self.limit.rule().rate()
    }

    /// Returns whether the rule makes requests wait itself: `queue`, `smooth`, `warmup`, and nginx without `nodelay`.
    pub fn delays_requests(&self) -> bool {
        self.limit.delays_requests()
    }

    /// Returns this rule's share for one of `nodes` nodes that enforce it without communicating.
    ///
    /// ```
    /// # use tidegate::Rule;
    /// let rule: Rule = "100/s burst 20".parse()?;
    /// assert_eq!(rule.share(2).to_string(), "100/2s burst 10");
    /// # Ok::<(), tidegate::RuleError>(())
    /// ```
    #[expect(clippy::missing_panics_doc, reason = "a share is a rule of the same zone")]
    #[must_use]
    pub fn share(&self, nodes: u64) -> Self {
        let text = self.limit.rule().share(nodes).to_string();
        text.parse().expect("a share is a rule of the same zone")
    }

    /// Returns the rule in the form that decides, for programs that store the [`State`] of each key themselves.
    pub fn limit(&self) -> &Limit {
        &self.limit
    }
}

impl FromStr for Rule {
    type Err = RuleError;

    fn from_str(text: &str) -> Result<Self, RuleError> {
        let limit = Limit::read(text, |unit, zone| {
            #[cfg(feature = "zones")]
            return zone::find(unit, zone);
            #[cfg(not(feature = "zones"))]
            {
                let _ = (unit, zone);
                None
            }
        })?;
        Ok(Self { limit })
    }
}

/// The same as `parse`, for code that is generic over the type from which a rule is made.
impl TryFrom<&str> for Rule {
    type Error = RuleError;

    fn try_from(text: &str) -> Result<Self, RuleError> {
        text.parse()
    }
}

/// Prints the canonical text.
impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.limit.fmt(f)
    }
}

/// Prints the canonical text: `Rule("100/s burst 20")`.
impl fmt::Debug for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Rule").field(&self.to_string()).finish()
    }
}

/// Two rules are equal if their canonical texts are.
impl PartialEq for Rule {
    fn eq(&self, other: &Self) -> bool {
        self.limit.rule() == other.limit.rule()
    }
}

impl Eq for Rule {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_shows_itself_as_its_text() {
        let rule: Rule = "10/1s  burst 20".parse().unwrap();
        assert_eq!(format!("{rule:?}"), "Rule(\"10/s burst 20\")");
    }
}

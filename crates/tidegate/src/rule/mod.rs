//! A rule as users write it, read and ready for a limiter, time zone and all.

#[cfg(feature = "zones")]
mod zone;

use std::fmt;
use std::str::FromStr;
use tidegate_core::{Limit, RuleError, Span};

/// What a limiter obeys: `100/s burst 20`, `1/day calendar in Asia/Shanghai`, `concurrency 5`.
///
/// A rule that parses is good: its numbers are in range, its time zone exists.
///
/// ```
/// use tidegate::Rule;
///
/// let rule: Rule = "100/s burst 20".parse()?;
/// assert_eq!(rule.explain(), "admits 20 at once, then one every 10ms; at most 6020 in any 60s");
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
    /// The sentence that says what the rule does.
    ///
    /// ```
    /// let rule: tidegate::Rule = "100/min sliding-log".parse()?;
    /// assert_eq!(rule.explain(), "admits 100 at once, and never more than 100 in any 1min");
    /// # Ok::<(), tidegate::RuleError>(())
    /// ```
    pub fn explain(&self) -> String {
        self.limit.rule().explain()
    }
}

impl Rule {
    /// `concurrency max`.
    pub(crate) fn concurrency(max: u64) -> Self {
        let text = format!("concurrency {}", max.max(1));
        text.parse().expect("a number from 1 is a rule")
    }

    /// Whether it counts who is in flight, so that an admission is held and given back.
    ///
    /// ```
    /// assert!("concurrency 5".parse::<tidegate::Rule>()?.is_concurrency());
    /// # Ok::<(), tidegate::RuleError>(())
    /// ```
    pub fn is_concurrency(&self) -> bool {
        self.limit.is_concurrency()
    }

    /// Whether it denies every request that costs anything: `0/s`. Such a decision needs no state.
    ///
    /// ```
    /// assert!("0/s".parse::<tidegate::Rule>()?.admits_nothing());
    /// # Ok::<(), tidegate::RuleError>(())
    /// ```
    pub fn admits_nothing(&self) -> bool {
        self.limit.rule().admits_nothing()
    }

    /// How long a place in flight is held at the most, where the rule says so.
    ///
    /// ```
    /// use tidegate::{Rule, Span};
    ///
    /// assert_eq!("concurrency 5 lease 30s".parse::<Rule>()?.lease(), Some(Span::from_secs(30)));
    /// assert_eq!("concurrency 5".parse::<Rule>()?.lease(), None);
    /// # Ok::<(), tidegate::RuleError>(())
    /// ```
    pub fn lease(&self) -> Option<Span> {
        self.limit.permit_lease()
    }

    /// How much it admits in the long run, and in how long, as the rule says it. `None` where nothing is
    /// admitted per time, or the time is not always as long: `concurrency`, calendar months and years.
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

    /// Whether it makes requests wait by itself: `queue`, `smooth`, `warmup`, and nginx's delay.
    ///
    /// ```
    /// assert!("10/s queue".parse::<tidegate::Rule>()?.delays_requests());
    /// # Ok::<(), tidegate::RuleError>(())
    /// ```
    pub fn delays_requests(&self) -> bool {
        self.limit.delays_requests()
    }
}

impl Rule {
    /// This rule's share for one of `nodes` nodes that obey it without talking to each other.
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

    /// The rule, ready to decide, for those who keep the states themselves.
    ///
    /// ```
    /// # use tidegate::Rule;
    /// let rule: Rule = "100/s burst 20".parse()?;
    /// assert_eq!(rule.limit().stem(), "token_bucket");
    /// # Ok::<(), tidegate::RuleError>(())
    /// ```
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

/// The same as `parse`, for code that is generic over what a rule is made of.
///
/// ```
/// use tidegate::Rule;
///
/// assert_eq!(Rule::try_from("10/1s")?, "10/s".parse()?);
/// # Ok::<(), tidegate::RuleError>(())
/// ```
impl TryFrom<&str> for Rule {
    type Error = RuleError;

    fn try_from(text: &str) -> Result<Self, RuleError> {
        text.parse()
    }
}

/// The canonical text.
impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.limit.fmt(f)
    }
}

/// The canonical text too: `Rule("100/s burst 20")`.
impl fmt::Debug for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Rule").field(&self.to_string()).finish()
    }
}

/// Two rules are equal when they say the same.
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

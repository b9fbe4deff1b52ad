//! A rule of which a part is lent out ahead of use, without admitting more than the rule.
//!
//! Always   At most `most` is lent and unused at any time, and what lends it runs with so much less room: in any
//!          interval, what was lent before it and what is lent in it add up to the rule's own bound. A window has no
//!          room to reserve: what is lent in it is counted in it, and ends with it.

use super::{Rule, RuleKind};

/// How a rule is lent out; made by [`Rule::lease_terms`].
///
/// ```
/// # use tidegate_core::Rule;
/// let rule: Rule = "100/s burst 20".parse()?;
/// let terms = rule.lease_terms().expect("twenty are enough");
/// assert_eq!((terms.rule.to_string().as_str(), terms.leased_max), ("100/s burst 10", 10));
/// # Ok::<(), tidegate_core::RuleError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeaseTerms {
    /// What whoever lends goes by.
    pub rule: Rule,
    /// How much may be lent and unused.
    pub leased_max: u64,
    /// Whether what is lent ends with its window.
    pub ends_with_window: bool,
}

/// With less than this there is nothing to lend.
const LENT_MIN: u64 = 4;

impl Rule {
    /// How this rule is lent out: half of it at the most. `None` for rules that are too small for it, and for those
    /// whose requests wait, are weighed by when they came, or are in flight.
    ///
    /// ```
    /// # use tidegate_core::Rule;
    /// assert!("100/min fixed".parse::<Rule>()?.lease_terms().is_some());
    /// assert!("2/s".parse::<Rule>()?.lease_terms().is_none());
    /// assert!("100/min sliding-log".parse::<Rule>()?.lease_terms().is_none());
    /// # Ok::<(), tidegate_core::RuleError>(())
    /// ```
    pub fn lease_terms(&self) -> Option<LeaseTerms> {
        let mut rule = self.clone();
        let (leased_max, ends_with_window) = match &mut rule.kind {
            RuleKind::TokenBucket { burst: room, .. } | RuleKind::Leaky { capacity: room, .. } => {
                let most = *room / 2;
                *room -= most;
                (most, false)
            }
            RuleKind::Fixed { rate, .. } => (rate.count / 2, true),
            RuleKind::Calendar { count, .. } => (*count / 2, true),
            RuleKind::Nothing
            | RuleKind::SlidingLog { .. }
            | RuleKind::Sliding { .. }
            | RuleKind::Queue { .. }
            | RuleKind::Smooth { .. }
            | RuleKind::Warmup { .. }
            | RuleKind::Concurrency { .. }
            | RuleKind::Nginx { .. } => return None,
        };
        (leased_max >= LENT_MIN / 2).then_some(LeaseTerms { rule, leased_max, ends_with_window })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn what_is_lent_and_what_is_left_are_the_rule() {
        let lent = |text: &str| {
            let terms = text.parse::<Rule>().expect("it is a rule").lease_terms();
            terms.map(|terms| (terms.rule.to_string(), terms.leased_max, terms.ends_with_window))
        };
        assert_eq!(lent("10/s burst 5"), Some(("10/s burst 3".to_owned(), 2, false)));
        assert_eq!(
            lent("10/s leaky capacity 9"),
            Some(("10/s leaky capacity 5".to_owned(), 4, false))
        );
        assert_eq!(lent("9/min fixed"), Some(("9/min fixed".to_owned(), 4, true)));
        assert_eq!(lent("1/day calendar"), None);
        assert_eq!(lent("10/s paced"), None);
        assert_eq!(lent("concurrency 100"), None);
    }

    use alloc::borrow::ToOwned;
}

//! Rules of which a part can be leased ahead of use, without admitting more than the rule.
//!
//! Always   At most `leased_max` is leased and unused at any time, and the lender enforces a rule whose capacity is smaller
//!          by that amount. So in any interval, what was leased before it and what is leased in it stay within the
//!          rule's bound. A window has no capacity to reserve: a lease is counted in its window, and ends with it.

use super::{ParsedRule, RuleKind};

/// The terms under which parts of a rule are leased; made by [`ParsedRule::lease_terms`].
///
/// ```
/// # use tidegate_core::ParsedRule;
/// let rule: ParsedRule = "100/s burst 20".parse()?;
/// let terms = rule.lease_terms().expect("a burst of 20 is large enough");
/// assert_eq!((terms.rule.to_string().as_str(), terms.leased_max), ("100/s burst 10", 10));
/// # Ok::<(), tidegate_core::RuleError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeaseTerms {
    /// The rule that the lender enforces.
    pub rule: ParsedRule,
    /// The largest amount that is leased and unused.
    pub leased_max: u64,
    /// Whether a lease ends with its window.
    pub ends_with_window: bool,
}

/// Rules with a smaller capacity are not leased.
const CAPACITY_MIN: u64 = 4;

impl ParsedRule {
    /// Returns the terms for leasing parts of this rule, at most half of it. `None` for rules that are too small, and for
    /// algorithms whose admissions cannot be granted in advance: those that delay requests, weigh them by their time, or count
    /// requests in flight.
    pub fn lease_terms(&self) -> Option<LeaseTerms> {
        let mut rule = self.clone();
        let (leased_max, ends_with_window) = match &mut rule.kind {
            RuleKind::TokenBucket { burst: capacity, .. } | RuleKind::Leaky { capacity, .. } => {
                let leased_max = *capacity / 2;
                *capacity -= leased_max;
                (leased_max, false)
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
        (leased_max >= CAPACITY_MIN / 2).then_some(LeaseTerms {
            rule,
            leased_max,
            ends_with_window,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::borrow::ToOwned;
    use alloc::string::ToString;

    #[test]
    fn the_leased_and_the_lenders_parts_add_up_to_the_rule() {
        let terms = |text: &str| {
            let terms = text.parse::<ParsedRule>().expect("it is a rule").lease_terms();
            terms.map(|terms| (terms.rule.to_string(), terms.leased_max, terms.ends_with_window))
        };
        assert_eq!(terms("10/s burst 5"), Some(("10/s burst 3".to_owned(), 2, false)));
        assert_eq!(
            terms("10/s leaky capacity 9"),
            Some(("10/s leaky capacity 5".to_owned(), 4, false))
        );
        assert_eq!(terms("9/min fixed"), Some(("9/min fixed".to_owned(), 4, true)));
        assert_eq!(terms("1/day calendar"), None);
        assert_eq!(terms("10/s paced"), None);
        assert_eq!(terms("concurrency 100"), None);
    }
}

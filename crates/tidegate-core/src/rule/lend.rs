//! A rule of which a part is lent out ahead of use, without admitting more than the rule.
//!
//! Always   At most `most` is lent and unused at any time, and what lends it runs with so much less room: in any
//!          interval, what was lent before it and what is lent in it add up to the rule's own bound. A window has no
//!          room to reserve: what is lent in it is counted in it, and ends with it.

use super::{Kind, Rule};

/// How a rule is lent out; made by [`Rule::lend`].
///
/// ```
/// # use tidegate_core::Rule;
/// let rule: Rule = "100/s burst 20".parse()?;
/// let lending = rule.lend().expect("twenty are enough");
/// assert_eq!((lending.rule.to_string().as_str(), lending.most), ("100/s burst 10", 10));
/// # Ok::<(), tidegate_core::RuleError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Lending {
    /// What whoever lends goes by.
    pub rule: Rule,
    /// How much may be lent and unused.
    pub most: u64,
    /// Whether what is lent ends with its window.
    pub is_windowed: bool,
}

/// With less than this there is nothing to lend.
const LENT_MIN: u64 = 4;

impl Rule {
    /// How this rule is lent out: half of it at the most. `None` for rules that are too small for it, and for those
    /// whose requests wait, are weighed by when they came, or are in flight.
    ///
    /// ```
    /// # use tidegate_core::Rule;
    /// assert!("100/min fixed".parse::<Rule>()?.lend().is_some());
    /// assert!("2/s".parse::<Rule>()?.lend().is_none());
    /// assert!("100/min sliding-log".parse::<Rule>()?.lend().is_none());
    /// # Ok::<(), tidegate_core::RuleError>(())
    /// ```
    pub fn lend(&self) -> Option<Lending> {
        let mut rule = self.clone();
        let (most, is_windowed) = match &mut rule.kind {
            Kind::TokenBucket { burst: room, .. } | Kind::Leaky { capacity: room, .. } => {
                let most = *room / 2;
                *room -= most;
                (most, false)
            }
            Kind::Fixed { rate, .. } => (rate.count / 2, true),
            Kind::Calendar { count, .. } => (*count / 2, true),
            Kind::Nothing
            | Kind::SlidingLog { .. }
            | Kind::Sliding { .. }
            | Kind::Queue { .. }
            | Kind::Smooth { .. }
            | Kind::Warmup { .. }
            | Kind::Concurrency { .. }
            | Kind::Nginx { .. } => return None,
        };
        (most >= LENT_MIN / 2).then_some(Lending { rule, most, is_windowed })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn what_is_lent_and_what_is_left_are_the_rule() {
        let lent = |text: &str| {
            let lending = text.parse::<Rule>().expect("it is a rule").lend();
            lending.map(|lending| (lending.rule.to_string(), lending.most, lending.is_windowed))
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

//! A rule's share for one of several nodes that enforce it without communicating.
//!
//! Always   Together the nodes admit no more than the rule: rates and capacities are divided and rounded down. A share
//!          is at least 1, so a count below `nodes` admits up to `nodes`.

use super::{ParsedRule, RuleKind};
use crate::rate::{PERIOD_MAX, Rate};
use crate::time::Span;

impl ParsedRule {
    /// Returns this rule's share for one of `nodes` nodes that enforce it without communicating.
    ///
    /// ```
    /// # use tidegate_core::ParsedRule;
    /// let rule: ParsedRule = "100/s burst 20".parse()?;
    /// assert_eq!(rule.share(3).to_string(), "100/3s burst 6");
    /// assert_eq!(rule.share(1), rule);
    /// # Ok::<(), tidegate_core::RuleError>(())
    /// ```
    #[must_use]
    pub fn share(&self, nodes: u64) -> Self {
        let nodes = nodes.max(1);
        let part = |count: u64| (count / nodes).max(1);
        // One request passes without waiting, and `capacity` more wait behind it.
        let queue = |capacity: u64| ((capacity + 1) / nodes).max(1) - 1;
        let mut kind = self.kind.clone();
        match &mut kind {
            RuleKind::TokenBucket { rate, burst, .. } => {
                *rate = slower(*rate, nodes);
                *burst = part(*burst);
            }
            RuleKind::Leaky { rate, capacity } => {
                *rate = slower(*rate, nodes);
                *capacity = part(*capacity);
            }
            RuleKind::Queue { rate, capacity, .. } => {
                *rate = slower(*rate, nodes);
                *capacity = queue(*capacity).max(1);
            }
            RuleKind::Smooth { rate, burst } => {
                // Without a burst, one second's worth shrinks with the rate.
                *rate = slower(*rate, nodes);
                *burst = burst.map(part);
            }
            RuleKind::Warmup { rate, .. } => *rate = slower(*rate, nodes),
            RuleKind::Fixed { rate, .. }
            | RuleKind::SlidingLog { rate }
            | RuleKind::Sliding { rate } => {
                rate.count = part(rate.count);
            }
            RuleKind::Calendar { count, .. } => *count = part(*count),
            RuleKind::Nginx { count, burst, .. } => {
                *count = part(*count);
                *burst = queue(*burst);
            }
            RuleKind::Concurrency { max, .. } => *max = part(*max),
            RuleKind::Nothing => {}
        }
        Self { kind }
    }
}

/// Returns a rate `nodes` times slower: a longer period, or beyond a hundred years a smaller count.
fn slower(rate: Rate, nodes: u64) -> Rate {
    let period_us = rate.period.as_micros().saturating_mul(nodes);
    if period_us <= PERIOD_MAX.as_micros() {
        return Rate { period: Span::from_micros(period_us), ..rate };
    }
    Rate { count: (rate.count / nodes).max(1), ..rate }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn shares_are_valid_rules() {
        let shares = [
            ("10/s burst 1", "10/4s burst 1"),
            ("10/s queue capacity 9", "10/4s queue capacity 1"),
            ("10/s queue capacity 1", "10/4s queue capacity 1"),
            ("10/min fixed", "2/min fixed"),
            ("1/day calendar", "1/day calendar"),
            ("10/min sliding", "2/min sliding"),
            ("10/min sliding-log", "2/min sliding-log"),
            ("10/s leaky capacity 8", "10/4s leaky capacity 2"),
            ("8/s smooth burst 8", "8/4s smooth burst 2"),
            ("8/s warmup 1s", "8/4s warmup 1s"),
            ("concurrency 9", "concurrency 2"),
            ("10r/s burst=20 nodelay", "2r/s burst=4 nodelay"),
        ];
        for (text, expected) in shares {
            let rule: ParsedRule = text.parse().unwrap_or_else(|error| panic!("{error}"));
            let expected: ParsedRule = expected.parse().unwrap_or_else(|error| panic!("{error}"));
            let share = rule.share(4);
            assert_eq!(share.to_string(), expected.to_string(), "{text}");
            assert_eq!(share.to_string().parse::<ParsedRule>().as_ref(), Ok(&share), "{text}");
        }
    }

    #[test]
    fn a_period_never_exceeds_a_century() {
        let rule: ParsedRule = "100/5200week".parse().expect("about a hundred years");
        assert_eq!(rule.share(10).to_string(), "10/5200week");
    }
}

//! What is not mended yet: how many violations of a new rule are still tolerated.
//!
//! Always   Numbers only go down. A row that reaches zero is removed, and the rule is then strict.

use std::collections::BTreeMap;

use super::Violation;

/// The rule, and how many violations of it the whole repository may still have.
const ALLOWED: &[(&str, usize)] = &[("cycle", 131), ("retired name", 179), ("wording", 2_162)];

pub(super) struct Split {
    /// Violations of rules without an allowance.
    pub(super) failing: Vec<Violation>,
    /// Violations of rules with an allowance.
    pub(super) tolerated: Vec<Violation>,
    /// One sentence for each allowance that is exceeded; then the run fails too.
    pub(super) exceeded: Vec<String>,
}

pub(super) fn split(violations: Vec<Violation>) -> Split {
    split_by(violations, ALLOWED)
}

fn split_by(violations: Vec<Violation>, allowed: &[(&str, usize)]) -> Split {
    let has_allowance = |found: &Violation| allowed.iter().any(|(rule, _)| *rule == found.rule);
    let (tolerated, failing): (Vec<Violation>, _) = violations.into_iter().partition(has_allowance);
    let count = |rule: &str| tolerated.iter().filter(|found| found.rule == rule).count();
    let exceeded = allowed.iter().filter(|(rule, max)| count(rule) > *max).map(|(rule, max)| {
        format!(
            "{rule}: {} found, and only {max} are tolerated; mend as many as you added",
            count(rule)
        )
    });
    let exceeded = exceeded.collect();
    Split { failing, tolerated, exceeded }
}

/// One line for each rule: `wording: 12 left (7 in crates/tidegate, 5 in docs)`.
pub(super) fn summary(tolerated: &[Violation]) -> Vec<String> {
    let mut rules: BTreeMap<&str, BTreeMap<String, usize>> = BTreeMap::new();
    for violation in tolerated {
        *rules.entry(violation.rule).or_default().entry(area(&violation.path)).or_default() += 1;
    }
    let line = |(rule, areas): (&str, BTreeMap<String, usize>)| {
        let total: usize = areas.values().sum();
        let parts: Vec<String> =
            areas.iter().map(|(area, count)| format!("{count} in {area}")).collect();
        format!("{rule}: {total} left ({})", parts.join(", "))
    };
    rules.into_iter().map(line).collect()
}

/// The crate, or the first folder of the path.
fn area(path: &str) -> String {
    let depth = if path.starts_with("crates/") || path.starts_with("examples/") { 2 } else { 1 };
    path.split('/').take(depth).collect::<Vec<&str>>().join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn violations(paths: &[&str]) -> Vec<Violation> {
        let of = |path: &&str| Violation {
            path: (*path).to_owned(),
            line: 1,
            rule: "a",
            what: String::new(),
        };
        paths.iter().map(of).collect()
    }

    #[test]
    fn one_violation_too_many_fails() {
        let split = |allowed: &[(&str, usize)]| split_by(violations(&["b", "c"]), allowed);
        assert_eq!(split(&[("a", 2)]).failing.len(), 0);
        assert_eq!(split(&[("a", 2)]).exceeded.len(), 0);
        assert_eq!(split(&[("a", 1)]).exceeded.len(), 1);
        assert_eq!(split(&[("a", 1)]).tolerated.len(), 2);
        assert_eq!(split(&[("b", 9)]).failing.len(), 2);
    }

    #[test]
    fn the_summary_counts_by_crate() {
        let found = violations(&["crates/x/src/a.rs", "crates/x/src/b.rs", "docs/a.md"]);
        assert_eq!(summary(&found), ["a: 3 left (2 in crates/x, 1 in docs)"]);
    }
}

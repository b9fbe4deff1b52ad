//! The explanation of a rule for clients of the server.

use tidegate::Rule;

/// Explains a rule in a sentence, and adds where a server behaves differently from the library.
pub fn describe_rule(rule: &Rule) -> String {
    let explanation = rule.explain();
    if rule.limit().permit_wait().is_none() {
        return explanation;
    }
    // A client may disconnect while it waits for a permit, and would hold the permit until its lease ends.
    format!(
        "{explanation}; the server does not wait: a request without a free permit is denied at once"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_server_does_not_wait_for_permits() {
        let describe = |rule: &str| describe_rule(&rule.parse().unwrap());
        let waiting = "admits 5 in flight at a time; waits up to 500ms for a turn; the server does not wait: a request \
                       without a free permit is denied at once";
        assert_eq!(describe("concurrency 5 wait 500ms"), waiting);
        assert_eq!(describe("concurrency 5"), "admits 5 in flight at a time");
        let queue = "10/s queue capacity 5 wait 1s";
        let explanation = queue.parse::<Rule>().unwrap().explain();
        assert_eq!(describe(queue), explanation, "the server waits for rates");
    }
}

//! What a rule means where it is asked over a wire.

use tidegate::Rule;

/// The rule in a sentence, with what of it a server does otherwise than a program that holds its places itself.
pub fn means(rule: &Rule) -> String {
    let means = rule.explain();
    if rule.limit().permit_wait().is_none() {
        return means;
    }
    // Who waits may be gone when its turn comes, and would hold a place until the lease ends.
    format!(
        "{means}; a server does not wait: who finds no place is denied at once, and may ask again"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_reads_of_a_wait_reads_that_a_server_has_none() {
        let means = |rule: &str| means(&rule.parse().unwrap());
        let waiting = "admits 5 in flight at a time; waits up to 500ms for a turn; a server does not wait: who finds no place is \
                       denied at once, and may ask again";
        assert_eq!(means("concurrency 5 wait 500ms"), waiting);
        assert_eq!(means("concurrency 5"), "admits 5 in flight at a time");
        let queue = "10/s queue capacity 5 wait 1s";
        assert_eq!(
            means(queue),
            queue.parse::<Rule>().unwrap().explain(),
            "a queue's waits are honoured"
        );
    }
}

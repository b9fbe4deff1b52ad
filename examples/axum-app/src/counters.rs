//! Counts of decisions, for Prometheus.
//!
//! Bound    One line for each limit and verdict: labels come from the program, never from requests.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::{Mutex, PoisonError};
use tidegate_tower::Event;

#[derive(Debug, Default)]
pub(crate) struct Counters {
    decisions: Mutex<BTreeMap<(String, &'static str), u64>>,
}

impl Counters {
    pub(crate) fn count(&self, event: &Event<'_>) {
        let mut decisions = self.decisions.lock().unwrap_or_else(PoisonError::into_inner);
        *decisions.entry((event.limit.to_owned(), event.verdict())).or_default() += 1;
    }

    pub(crate) fn text(&self) -> String {
        let decisions = self.decisions.lock().unwrap_or_else(PoisonError::into_inner);
        let mut text = "# HELP limit_decisions_total Decisions of the limits.\n\
                        # TYPE limit_decisions_total counter\n"
            .to_owned();
        for ((limit, verdict), count) in &*decisions {
            let line = format_args!("{{limit=\"{limit}\",verdict=\"{verdict}\"}} {count}");
            // Writing to a string cannot fail.
            let _ = writeln!(text, "limit_decisions_total{line}");
        }
        text
    }
}

//! Counters and histograms of a run.
//!
//! Always   Every request that was due counts as exactly one of allowed, denied, other, `errors`, `lost` and
//!          `unsent`.
//! Always   A request without a reply is in the latencies as if its reply had come at the end of the run. Without
//!          it, a server that answers half of its requests would look fast.

use super::target::Target;
use anyhow::anyhow;
use hdrhistogram::Histogram;
use tidegate_server::escape::Escaped;

/// One hour; longer latencies are recorded as an hour.
const LATENCY_US_MAX: u64 = 3_600_000_000;
const DIGITS: u8 = 3;

/// The reply to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Reply {
    Allow,
    Deny,
    /// A reply that is not a decision.
    Other,
    /// An error, with the server's message as it came.
    Error(String),
}

/// Returns the error that ends a run whose test request failed.
pub(super) fn error_reply(target: &Target, message: &str) -> anyhow::Error {
    anyhow!("{target} answers with an error: {}", Escaped::new(message.as_bytes()))
}

/// The statistics of one connection, or of several added up.
#[derive(Clone, Debug)]
pub(super) struct LoadStats {
    pub(super) sent: u64,
    pub(super) answered: u64,
    pub(super) allowed: u64,
    pub(super) denied: u64,
    /// Replies that are errors.
    pub(super) errors: u64,
    /// Requests that were sent and not answered.
    pub(super) lost: u64,
    /// Requests that were due and not sent.
    pub(super) unsent: u64,
    /// The first error reply or connection error.
    pub(super) first_error: Option<String>,
    pub(super) last_answer_us: u64,
    /// Microseconds from the time a request was due to its reply.
    pub(super) latency_us: Histogram<u64>,
    /// Microseconds by which the generator itself sent requests late, although the pipeline had a free slot.
    pub(super) late_us: Histogram<u64>,
}

impl LoadStats {
    pub(super) fn new() -> Self {
        let histogram =
            || Histogram::new_with_max(LATENCY_US_MAX, DIGITS).expect("the bounds are valid");
        Self {
            sent: 0,
            answered: 0,
            allowed: 0,
            denied: 0,
            errors: 0,
            lost: 0,
            unsent: 0,
            first_error: None,
            last_answer_us: 0,
            latency_us: histogram(),
            late_us: histogram(),
        }
    }

    pub(super) fn record_sent(&mut self, late_us: u64) {
        self.sent += 1;
        self.late_us.saturating_record(late_us);
    }

    pub(super) fn record_reply(&mut self, reply: Reply, due_us: u64, now_us: u64) {
        self.answered += 1;
        self.last_answer_us = now_us;
        match reply {
            Reply::Allow => self.allowed += 1,
            Reply::Deny => self.denied += 1,
            Reply::Other => {}
            Reply::Error(why) => {
                self.errors += 1;
                self.record_error(why);
                // Errors are not in the latencies: a server that fails fast is not a fast server.
                return;
            }
        }
        self.latency_us.saturating_record(now_us.saturating_sub(due_us));
    }

    /// Records a request whose connection broke, with the latency of waiting until the end of the run: a
    /// connection that breaks fast is not a fast reply.
    pub(super) fn record_lost(&mut self, due_us: u64, never_us: u64) {
        self.lost += 1;
        self.latency_us.saturating_record(never_us.saturating_sub(due_us));
    }

    pub(super) fn record_unsent(&mut self, due_us: u64, now_us: u64) {
        self.unsent += 1;
        self.latency_us.saturating_record(now_us.saturating_sub(due_us));
    }

    pub(super) fn record_error(&mut self, why: String) {
        self.first_error.get_or_insert(why);
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.sent += other.sent;
        self.answered += other.answered;
        self.allowed += other.allowed;
        self.denied += other.denied;
        self.errors += other.errors;
        self.lost += other.lost;
        self.unsent += other.unsent;
        self.last_answer_us = self.last_answer_us.max(other.last_answer_us);
        if let Some(why) = &other.first_error {
            self.record_error(why.clone());
        }
        self.latency_us.add(&other.latency_us).expect("the bounds are the same");
        self.late_us.add(&other.late_us).expect("the bounds are the same");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_request_is_counted_once() {
        let mut stats = LoadStats::new();
        for reply in [Reply::Allow, Reply::Deny, Reply::Other, Reply::Error("no".into())] {
            stats.record_sent(0);
            stats.record_reply(reply, 10, 30);
        }
        stats.record_sent(5);
        stats.record_lost(10, 1_000);
        stats.record_unsent(20, 1_000);
        let mut all = LoadStats::new();
        all.add(&stats);
        all.add(&stats);
        assert_eq!((all.sent, all.answered, all.lost, all.unsent), (10, 8, 2, 2));
        assert_eq!((all.allowed, all.denied, all.errors), (2, 2, 2));
        assert_eq!(all.first_error.as_deref(), Some("no"));
        assert_eq!(all.latency_us.len(), 10, "all but the errors");
        assert_eq!(all.latency_us.max(), 990);
    }
}

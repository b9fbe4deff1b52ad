//! What is counted while the load goes on.
//!
//! Always   Every request that was due is in exactly one of `allowed`, `denied`, `other`, `refused`, `lost` and
//!          `unsent`.
//! Always   Who got no answer is in the latencies as if it had been waited for until the end: left out, a
//!          server that answers half of its requests would look like one that answers fast.

use hdrhistogram::Histogram;

/// An hour; what takes longer is an hour.
const LATENCY_US_MAX: u64 = 3_600_000_000;
const DIGITS: u8 = 3;

/// What a server said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Allow,
    Deny,
    /// An answer that decides nothing.
    Other,
    /// An error, in the server's words.
    Refused(String),
}

/// What one connection has seen, or all of them.
#[derive(Clone, Debug)]
pub(super) struct Tally {
    pub(super) sent: u64,
    pub(super) answered: u64,
    pub(super) allowed: u64,
    pub(super) denied: u64,
    /// Answers that are errors.
    pub(super) refused: u64,
    /// Sent, and never answered.
    pub(super) lost: u64,
    /// Due, and never sent.
    pub(super) unsent: u64,
    /// The first error, and the first thing that went wrong with a connection.
    pub(super) complaint: Option<String>,
    pub(super) last_answer_us: u64,
    /// Microseconds from when a request was due to its answer.
    pub(super) latency_us: Histogram<u64>,
    /// Microseconds by which requests were sent late although there was room for them: our own fault.
    pub(super) late_us: Histogram<u64>,
}

impl Tally {
    pub(super) fn new() -> Self {
        let histogram =
            || Histogram::new_with_max(LATENCY_US_MAX, DIGITS).expect("the bounds are good ones");
        Self {
            sent: 0,
            answered: 0,
            allowed: 0,
            denied: 0,
            refused: 0,
            lost: 0,
            unsent: 0,
            complaint: None,
            last_answer_us: 0,
            latency_us: histogram(),
            late_us: histogram(),
        }
    }

    pub(super) fn send(&mut self, late_us: u64) {
        self.sent += 1;
        self.late_us.saturating_record(late_us);
    }

    pub(super) fn answer(&mut self, answer: Answer, due_us: u64, now_us: u64) {
        self.answered += 1;
        self.last_answer_us = now_us;
        match answer {
            Answer::Allow => self.allowed += 1,
            Answer::Deny => self.denied += 1,
            Answer::Other => {}
            Answer::Refused(why) => {
                self.refused += 1;
                self.complain(why);
                // An error may be fast. It is not what was asked for.
                return;
            }
        }
        self.latency_us.saturating_record(now_us.saturating_sub(due_us));
    }

    /// A request whose connection broke is never answered, and takes as long as anybody would have waited: to
    /// break fast is not to answer fast.
    pub(super) fn lose(&mut self, due_us: u64, never_us: u64) {
        self.lost += 1;
        self.latency_us.saturating_record(never_us.saturating_sub(due_us));
    }

    pub(super) fn leave_unsent(&mut self, due_us: u64, now_us: u64) {
        self.unsent += 1;
        self.latency_us.saturating_record(now_us.saturating_sub(due_us));
    }

    pub(super) fn complain(&mut self, why: String) {
        self.complaint.get_or_insert(why);
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.sent += other.sent;
        self.answered += other.answered;
        self.allowed += other.allowed;
        self.denied += other.denied;
        self.refused += other.refused;
        self.lost += other.lost;
        self.unsent += other.unsent;
        self.last_answer_us = self.last_answer_us.max(other.last_answer_us);
        if let Some(why) = &other.complaint {
            self.complain(why.clone());
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
        let mut tally = Tally::new();
        for answer in [Answer::Allow, Answer::Deny, Answer::Other, Answer::Refused("no".into())] {
            tally.send(0);
            tally.answer(answer, 10, 30);
        }
        tally.send(5);
        tally.lose(10, 1_000);
        tally.leave_unsent(20, 1_000);
        let mut all = Tally::new();
        all.add(&tally);
        all.add(&tally);
        assert_eq!((all.sent, all.answered, all.lost, all.unsent), (10, 8, 2, 2));
        assert_eq!((all.allowed, all.denied, all.refused), (2, 2, 2));
        assert_eq!(all.complaint.as_deref(), Some("no"));
        assert_eq!(all.latency_us.len(), 10, "all but the errors");
        assert_eq!(all.latency_us.max(), 990);
    }
}

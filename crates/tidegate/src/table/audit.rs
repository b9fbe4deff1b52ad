//! The auditor: keeps the exact history of some keys and counts every breach of the published bound.
//!
//! Always   It shares no arithmetic with the algorithms: it asks [`Limit::permits`] about every
//!          stretch of the history that ends with the newest admission. What makes the bound speak of
//!          something else — a refund, a change of rule, a step of the clock — starts a new history.

use super::fingerprint::Fingerprint;
use std::collections::{HashMap, VecDeque};
use tidegate_core::{Decision, Limit, Span, Timestamp, Verdict};

/// What the auditor has found; see [`Builder::audit`](crate::Builder::audit).
///
/// ```
/// use tidegate::{Limiter, ManualClock};
///
/// let limiter = Limiter::builder("10/s".parse()?).audit(1).with_clock(ManualClock::new());
/// for _ in 0..100 {
///     limiter.check("alice");
/// }
/// let audit = limiter.audit().expect("it was switched on");
/// assert_eq!((audit.keys, audit.admissions, audit.violations), (1, 10, 0));
/// # Ok::<(), tidegate::RuleError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Audit {
    /// How many keys are watched.
    pub keys: u64,
    /// How many admissions were looked at.
    pub admissions: u64,
    /// How many of them broke the bound. Anything but zero is a defect of ours.
    pub violations: u64,
    /// The first breach, in words.
    pub first: Option<String>,
}

/// The longest history that is kept of a key.
const HISTORY_MAX: usize = 2_048;
/// The most keys that are watched in a shard.
const KEYS_MAX: usize = 4_096;

#[derive(Clone, Debug)]
pub(super) struct Auditor {
    /// One key in so many.
    sample: u64,
    histories: HashMap<Fingerprint, History>,
    found: Audit,
}

#[derive(Clone, Debug, Default)]
struct History {
    /// What passed, when, and how much.
    passed: VecDeque<(Timestamp, u64)>,
    asked: Timestamp,
}

impl Auditor {
    pub(super) fn new(sample: u64) -> Self {
        Self { sample: sample.max(1), histories: HashMap::new(), found: Audit::default() }
    }

    #[inline]
    pub(super) fn watches(&self, key: Fingerprint) -> bool {
        // Not the bits that choose the shard.
        key.high.is_multiple_of(self.sample)
    }

    /// Hears of a decision about a key that it watches.
    pub(super) fn hear(
        &mut self,
        limit: &Limit,
        key: Fingerprint,
        (now, cost): (Timestamp, u64),
        decision: &Decision,
    ) {
        let wait = match decision.verdict {
            Verdict::Allow => Span::ZERO,
            Verdict::Wait(wait) => wait,
            Verdict::Deny(_) => return,
        };
        if cost == 0 {
            return;
        }
        if self.histories.len() >= KEYS_MAX && !self.histories.contains_key(&key) {
            // Keys come and go: it starts anew rather than watch the first ones only.
            self.histories.clear();
        }
        let history = self.histories.entry(key).or_default();
        if now < history.asked {
            // The bound holds between steps of the clock.
            history.passed.clear();
        }
        history.asked = now;
        history.passed.push_back((limit.passes_at(now, wait), cost));
        if history.passed.len() > HISTORY_MAX {
            history.passed.pop_front();
        }
        self.found.admissions += 1;
        if let Some(breach) = history.breach(limit) {
            self.found.violations += 1;
            self.found.first.get_or_insert(breach);
        }
    }

    /// Starts a new history: something happened that the bound does not speak of.
    pub(super) fn forget(&mut self, key: Fingerprint) {
        self.histories.remove(&key);
    }

    pub(super) fn forget_all(&mut self) {
        self.histories.clear();
    }

    pub(super) fn add_to(&self, audit: &mut Audit) {
        audit.keys += self.histories.len() as u64;
        audit.admissions += self.found.admissions;
        audit.violations += self.found.violations;
        if audit.first.is_none() {
            audit.first.clone_from(&self.found.first);
        }
    }
}

impl History {
    /// A stretch that ends with the newest admission and holds more than may pass in its length.
    fn breach(&self, limit: &Limit) -> Option<String> {
        let (last_at, last) = *self.passed.back()?;
        let mut total = 0_u64;
        for (at, cost) in self.passed.iter().rev() {
            total = total.saturating_add(*cost);
            let interval = last_at.since(*at);
            if !limit.permits(total, last, interval) {
                return Some(format!("`{limit}` let {total} pass within {interval}"));
            }
        }
        None
    }
}

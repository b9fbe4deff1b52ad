//! The auditor: records the exact history of some keys, and counts violations of the published bound.
//!
//! Always   It shares no arithmetic with the algorithms: it compares every interval of the history that ends with the newest
//!          admission with [`Limit::permits`]. An event that the bound does not cover (a refund, a change of the rule, a
//!          step of the clock) starts a new history.

use super::fingerprint::Fingerprint;
use std::collections::{HashMap, VecDeque};
use tidegate_core::{Decision, Limit, Span, Timestamp, Verdict};

/// The findings of the auditor; see [`Builder::audit`](crate::limiter::Builder::audit).
///
/// ```
/// use tidegate::{Limiter, ManualClock};
///
/// let limiter = Limiter::builder("10/s".parse()?).audit(1).with_clock(ManualClock::new());
/// for _ in 0..100 {
///     let _ = limiter.check("alice");
/// }
/// let audit = limiter.audit().expect("the builder has an auditor");
/// assert_eq!((audit.keys, audit.admissions, audit.violations), (1, 10, 0));
/// # Ok::<(), tidegate::RuleError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Audit {
    /// The number of recorded keys.
    pub keys: u64,
    /// The number of recorded admissions.
    pub admissions: u64,
    /// The number of admissions that violated the bound. Anything but zero is a defect of Tidegate.
    pub violations: u64,
    /// A description of the first violation.
    pub first: Option<String>,
}

/// The longest history of a key.
const HISTORY_MAX: usize = 2_048;
/// The maximum number of recorded keys in all shards together, and the minimum in each.
const KEYS_MAX: usize = 8_192;
const KEYS_MIN: usize = 16;
/// When the maximum is reached, a key without admissions for this time is replaced by another.
const INACTIVE_AFTER: Span = Span::from_secs(60);
/// The minimum time between two searches for inactive keys.
const SEARCH_INTERVAL: Span = Span::from_secs(1);

#[derive(Clone, Debug)]
pub(in crate::store) struct Auditor {
    /// One key in this many is recorded.
    sample: u64,
    keys_max: usize,
    /// The time of the last search for inactive keys.
    last_search: Timestamp,
    histories: HashMap<Fingerprint, History>,
    found: Audit,
}

#[derive(Clone, Debug, Default)]
struct History {
    /// The time and the cost of each admission.
    admissions: VecDeque<(Timestamp, u64)>,
    /// The time of the request that was admitted last, which may have been delayed.
    last_request: Timestamp,
}

impl Auditor {
    /// Creates the auditor of one of `shards` shards.
    pub(in crate::store) fn new(sample: u64, shards: usize) -> Self {
        let keys_max = KEYS_MIN.max(KEYS_MAX / shards);
        let (histories, found) = (HashMap::new(), Audit::default());
        let last_search = Timestamp::EPOCH;
        Self { sample: sample.max(1), keys_max, last_search, histories, found }
    }

    #[inline]
    pub(in crate::store) fn samples(&self, key: Fingerprint) -> bool {
        // The high word chooses the shard, so this uses the other one.
        key.low.is_multiple_of(self.sample)
    }

    /// Records a decision, if its key is in the sample.
    pub(in crate::store) fn record(
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
        if self.histories.len() >= self.keys_max && !self.histories.contains_key(&key) {
            // Recorded keys stay until they have had no admission for a while.
            self.drop_inactive(now);
            if self.histories.len() >= self.keys_max {
                return;
            }
        }
        let history = self.histories.entry(key).or_default();
        if now < history.last_request {
            // The bound holds only between steps of the clock.
            history.admissions.clear();
        }
        history.last_request = now;
        history.admissions.push_back((limit.passes_at(now, wait), cost));
        if history.admissions.len() > HISTORY_MAX {
            history.admissions.pop_front();
        }
        self.found.admissions += 1;
        if let Some(violation) = history.violation(limit) {
            self.found.violations += 1;
            self.found.first.get_or_insert(violation);
        }
    }

    /// Removes inactive keys, at most once per [`SEARCH_INTERVAL`].
    fn drop_inactive(&mut self, now: Timestamp) {
        if now < self.last_search || now.since(self.last_search) >= SEARCH_INTERVAL {
            self.last_search = now;
            self.histories.retain(|_, history| now.since(history.last_request) < INACTIVE_AFTER);
        }
    }

    /// Starts a new history, after an event that the bound does not cover.
    pub(in crate::store) fn forget(&mut self, key: Fingerprint) {
        self.histories.remove(&key);
    }

    pub(in crate::store) fn forget_all(&mut self) {
        self.histories.clear();
    }

    pub(in crate::store) fn add_to(&self, audit: &mut Audit) {
        audit.keys += self.histories.len() as u64;
        audit.admissions += self.found.admissions;
        audit.violations += self.found.violations;
        if audit.first.is_none() {
            audit.first.clone_from(&self.found.first);
        }
    }
}

impl History {
    /// Returns an interval that ends with the newest admission and contains more than the bound allows.
    fn violation(&self, limit: &Limit) -> Option<String> {
        let (last_at, last) = *self.admissions.back()?;
        let mut total = 0_u64;
        for (at, cost) in self.admissions.iter().rev() {
            let Some(sum) = total.checked_add(*cost) else {
                // The bound exceeds the range of numbers: the rule never denies.
                return None;
            };
            total = sum;
            let interval = last_at.since(*at);
            if !limit.permits(total, last, interval) {
                return Some(format!("`{limit}` let {total} pass within {interval}"));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: Fingerprint = Fingerprint { high: 1, low: 0 };
    const START: Timestamp = Timestamp::from_micros(1_700_000_000_000_000);

    /// Rules of every kind, each with its bound for one instant.
    const MOST_AT_ONCE: [(&str, u64); 17] = [
        ("100/s burst 20", 20),
        ("3/s paced", 1),
        ("30/s start empty", 30),
        ("7/min leaky capacity 30", 30),
        ("40/s fixed", 40),
        ("40/s fixed from first", 40),
        ("40/h fixed from 2024-01-01T00:17:00+08:00", 40),
        ("25/day calendar", 25),
        ("64/s sliding-log", 64),
        ("61/s sliding", 121),
        ("10r/s burst=15 nodelay", 16),
        ("10r/s burst=15", 16),
        ("10r/s burst=15 delay=5", 16),
        ("10/s queue capacity 12", 1),
        ("3/s queue capacity 12 wait 2s", 1),
        ("5/s smooth", 7),
        ("5/s warmup 1s", 2),
    ];

    fn record(auditor: &mut Auditor, limit: &Limit, now: Timestamp, cost: u64) -> u64 {
        auditor.record(limit, KEY, (now, cost), &Decision::UNLIMITED);
        auditor.found.violations
    }

    #[test]
    fn one_admission_too_many_is_a_violation_of_every_rule() {
        for (rule, most) in MOST_AT_ONCE {
            let limit: Limit = rule.parse().unwrap();
            let mut auditor = Auditor::new(1, 1);
            for n in 1..=most {
                assert_eq!(record(&mut auditor, &limit, START, 1), 0, "{rule}: {n} may pass");
            }
            assert_eq!(record(&mut auditor, &limit, START, 1), 1, "{rule}: {most} and not more");
            let first = auditor.found.first.clone().unwrap();
            assert_eq!(first, format!("`{limit}` let {} pass within 0s", most + 1));
        }
    }

    #[test]
    fn too_much_over_a_long_time_is_a_violation_too() {
        let limit: Limit = "10/s burst 20".parse().unwrap();
        let mut auditor = Auditor::new(1, 1);
        for n in 0..1_000 {
            let now = START + Span::from_millis(100 * n);
            assert_eq!(record(&mut auditor, &limit, now, 1), 0, "one every 100 ms");
        }
        let mut now = START + Span::from_secs(100);
        assert_eq!(record(&mut auditor, &limit, now, 20), 0, "the burst was never used");
        now = now + Span::from_millis(99);
        assert_eq!(
            record(&mut auditor, &limit, now, 1),
            1,
            "one more comes a millisecond too early"
        );
    }

    #[test]
    fn an_event_that_the_bound_does_not_cover_is_no_violation() {
        let limit: Limit = "1/h".parse().unwrap();
        let mut auditor = Auditor::new(1, 1);
        assert_eq!(record(&mut auditor, &limit, START, 1), 0);
        assert_eq!(record(&mut auditor, &limit, START, 0), 0, "a cost of zero");
        auditor.forget(KEY);
        assert_eq!(record(&mut auditor, &limit, START, 1), 0, "after a refund");
        auditor.forget_all();
        assert_eq!(record(&mut auditor, &limit, START, 1), 0, "after a change of rule");
        let earlier = START - Span::from_secs(1);
        assert_eq!(record(&mut auditor, &limit, earlier, 1), 0, "after a step of the clock");
        assert_eq!(record(&mut auditor, &limit, earlier, 1), 1, "and then it goes on");
    }

    #[test]
    fn a_sample_of_the_keys_is_recorded_up_to_a_maximum() {
        let mut auditor = Auditor::new(4, 64);
        let key = |low| Fingerprint { high: 1, low };
        assert_eq!((1..=100).filter(|low| auditor.samples(key(*low))).count(), 25);
        let limit: Limit = "1/h".parse().unwrap();
        for low in 1..=192 {
            auditor.record(&limit, key(low), (START, 1), &Decision::UNLIMITED);
            assert!(auditor.histories.len() <= 128);
        }
        assert_eq!(auditor.found.admissions, 128, "the first keys are recorded");
        let later = START + INACTIVE_AFTER;
        auditor.record(&limit, key(5), (later, 1), &Decision::UNLIMITED);
        auditor.record(&limit, key(200), (later, 1), &Decision::UNLIMITED);
        assert_eq!(auditor.histories.len(), 2, "keys without recent admissions are replaced");
        assert_eq!(
            (auditor.found.admissions, auditor.found.violations),
            (130, 1),
            "5 has its history"
        );
    }
}

//! The table of ad-hoc rules, and which of them can be evicted.

use super::{EVICTION_SCAN_MAX, RULES_MAX, UNUSED_MAX};
use crate::engine::Limit;
use crate::store::RedisCounters;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tidegate::store::ClientId;
use tidegate::store::Stats;
use tidegate::{Rule, Span, Timestamp};

/// The maximum number of texts that differ from the canonical text of their rule.
const ALIASES_MAX: usize = 4 * RULES_MAX;

#[derive(Debug, Default)]
pub(super) struct RuleTable {
    /// By canonical text.
    rules: HashMap<String, AdHocRule>,
    /// The canonical texts of each client's rules, in the order of the eviction scan.
    by_owner: HashMap<ClientId, VecDeque<String>>,
    /// The clients with rules, in the order of the eviction scan.
    owners: VecDeque<ClientId>,
    /// Other texts of rules, some of which may have been evicted. The table can forget aliases at any time.
    aliases: HashMap<String, String>,
    /// Decisions under rules that were evicted: a sum that decreases looks like a restart.
    pub(super) evicted: EvictedCounts,
}

/// The counts of rules that were evicted.
#[derive(Clone, Debug, Default)]
pub struct EvictedCounts {
    /// Decisions.
    pub stats: Stats,
    /// How often Redis failed to decide, by kind of failure; empty with limits in memory.
    pub failures: Vec<(&'static str, u64)>,
}

#[derive(Debug)]
pub(super) struct AdHocRule {
    pub(super) limit: Arc<Limit>,
    /// The client whose share the rule counts against: the first that used it.
    pub(super) owner: ClientId,
    /// By the calendar, so that a snapshot can store it.
    last_used_us: AtomicU64,
}

impl AdHocRule {
    pub(super) fn new(limit: Limit, owner: ClientId, used: Timestamp) -> Self {
        Self { limit: Arc::new(limit), owner, last_used_us: AtomicU64::new(used.as_micros()) }
    }

    /// Records a use, once a second: all threads read this cache line.
    pub(super) fn mark_used(&self, now: Timestamp) {
        if now.since(self.last_used()) >= Span::from_secs(1) {
            self.last_used_us.store(now.as_micros(), Ordering::Relaxed);
        }
    }

    pub(super) fn last_used(&self) -> Timestamp {
        Timestamp::from_micros(self.last_used_us.load(Ordering::Relaxed))
    }

    pub(super) fn is_unused(&self, now: Timestamp) -> bool {
        now.since(self.last_used()) >= UNUSED_MAX
    }
}

impl RuleTable {
    pub(super) fn rules(&self) -> impl Iterator<Item = (&String, &AdHocRule)> {
        self.rules.iter()
    }

    pub(super) fn contains(&self, canonical: &str) -> bool {
        self.rules.contains_key(canonical)
    }

    pub(super) fn get(&self, text: &str) -> Option<&AdHocRule> {
        let by_alias = || self.aliases.get(text).and_then(|text| self.rules.get(text));
        self.rules.get(text).or_else(by_alias)
    }

    pub(super) fn insert(&mut self, text: String, rule: AdHocRule) -> Arc<Limit> {
        let limit = Arc::clone(&rule.limit);
        let texts = self.by_owner.entry(rule.owner).or_default();
        if texts.is_empty() {
            self.owners.push_back(rule.owner);
        }
        texts.push_back(text.clone());
        self.rules.insert(text, rule);
        limit
    }

    pub(super) fn remove(&mut self, text: &str) -> Option<AdHocRule> {
        let rule = self.rules.remove(text)?;
        self.evicted.add(&rule.limit);
        let texts = self.by_owner.get_mut(&rule.owner).expect("an owner of a rule has texts");
        texts.retain(|other| other != text);
        if texts.is_empty() {
            self.by_owner.remove(&rule.owner);
            self.owners.retain(|other| *other != rule.owner);
        }
        Some(rule)
    }

    /// Remembers another text of a rule. Many texts of one rule take no memory from other rules.
    pub(super) fn add_alias(&mut self, text: &str, canonical: String) {
        if self.aliases.len() >= ALIASES_MAX {
            self.aliases.clear();
        }
        self.aliases.insert(text.to_owned(), canonical);
    }

    pub(super) fn clear_aliases(&mut self) {
        self.aliases.clear();
    }

    fn count(&self, owner: ClientId) -> usize {
        self.by_owner.get(&owner).map_or(0, VecDeque::len)
    }

    /// Returns a rule that can be evicted for this client. No request uses it at the moment; and either its keys are idle and it
    /// is the client's own or of a client with more rules, or it was not used for a day and the client's share admits one more.
    /// Scans the client's own rules first, then others, from where the last scan ended.
    pub(super) fn find_evictable(
        &mut self,
        client: ClientId,
        has_share: bool,
        now: Timestamp,
    ) -> Option<String> {
        let count = self.count(client);
        let mut starts_empty_too = None;
        for step in 0..EVICTION_SCAN_MAX {
            let is_own = step < count.min(EVICTION_SCAN_MAX / 2);
            let owner = if is_own { client } else { self.next_owner()? };
            let may_evict = owner == client || self.count(owner) > count;
            let text = self.next_of(owner)?;
            let rule = self.rules.get_mut(&text)?;
            let is_unused = rule.is_unused(now) && Arc::get_mut(&mut rule.limit).is_some();
            if (may_evict || has_share) && is_unused {
                return Some(text);
            }
            if may_evict && is_idle(&mut rule.limit) {
                if !starts_empty(&text) {
                    return Some(text);
                }
                starts_empty_too.get_or_insert(text);
            }
        }
        starts_empty_too
    }

    fn next_owner(&mut self) -> Option<ClientId> {
        let owner = self.owners.pop_front()?;
        self.owners.push_back(owner);
        Some(owner)
    }

    fn next_of(&mut self, owner: ClientId) -> Option<String> {
        let texts = self.by_owner.get_mut(&owner)?;
        let text = texts.pop_front()?;
        texts.push_back(text.clone());
        Some(text)
    }
}

/// Returns whether no request uses the limit at the moment and all its keys are idle.
pub(super) fn is_idle(limit: &mut Arc<Limit>) -> bool {
    Arc::get_mut(limit).is_some_and(|limit| limit.counters().is_idle())
}

/// Returns whether a new key of the rule starts below its capacity: after an eviction, the keys would admit less for a while.
fn starts_empty(text: &str) -> bool {
    let now = Timestamp::from_micros(0);
    let starts_full = |rule: Rule| {
        let limit = rule.limit();
        limit.peek(&limit.fresh(now), now, 0).reset_after.is_zero()
    };
    !text.parse().is_ok_and(starts_full)
}

impl EvictedCounts {
    fn add(&mut self, limit: &Limit) {
        let (sum, stats) = (&mut self.stats, limit.counters().stats());
        sum.allowed += stats.allowed;
        sum.denied += stats.denied;
        sum.waited += stats.waited;
        sum.overflowed += stats.overflowed;
        sum.evicted += stats.evicted;
        let failures = limit.counters().shared().map(RedisCounters::failures).unwrap_or_default();
        if self.failures.is_empty() {
            self.failures = failures;
            return;
        }
        // The kinds and their order are always the same.
        for ((_, sum), (_, number)) in self.failures.iter_mut().zip(failures) {
            *sum += number;
        }
    }
}

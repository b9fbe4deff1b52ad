//! Ad-hoc rules: limits without a name, which requests give as rule text. They outlive a reload.
//!
//! Bound    At most [`RULES_MAX`] rules, of which each client gets a [share](Shares): a client can send any text. To open a rule
//!          beyond that, the server evicts another one, and looks at [`EVICTION_SCAN_MAX`] candidates at most.
//! Always   A rule is evicted while all its keys are idle (which no client can tell, except from rules that start empty: those go
//!          last), and only for its own client or for one that has fewer rules; or if no request used it for a day. A rule that a
//!          request is using is never evicted. A rule that was not used for a day is not in a snapshot either.
//! Always   Only a request that is accepted counts as use: neither a restart nor a refused request does. A refused request changes
//!          nothing but where the next scan starts.

mod no_such_limit;
mod table;
#[cfg(test)]
mod tests;

use super::Limit;
use super::lease::Leases;
use super::snapshot_codec::{self, Reader};
use crate::clock::ServerClock;
use crate::config::{LimitConfig, ServerConfig};
use crate::store::Backend;
use crate::sync::{read, write};
pub use no_such_limit::NoSuchLimit;
pub(crate) use no_such_limit::at;
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, RwLock};
use table::{AdHocRule, RuleTable, is_idle};

pub use table::EvictedCounts;
use tidegate::snapshot::{Attached, Snapshot};
use tidegate::store::{ClientId, Shares, StorePermit};
use tidegate::{Clock, Rule, Span, Timestamp};

/// The maximum length of a limit's name or rule text.
pub(super) const NAME_BYTES_MAX: usize = 256;
/// The maximum number of ad-hoc rules.
pub(crate) const RULES_MAX: usize = 1_024;
/// How many rules are looked at to find one to evict.
pub(super) const EVICTION_SCAN_MAX: usize = 16;
/// A rule that was not used for this long can be evicted, whatever its keys have used.
const UNUSED_MAX: Span = Span::from_secs(86_400);
/// The name of the owners and times of use in a snapshot.
const ATTACHED_NAME: &str = "rules without a name";

/// Permits that are released when they are dropped.
type Permits = Vec<Box<dyn StorePermit>>;

/// The ad-hoc rules.
#[derive(Debug)]
pub(super) struct Rules {
    table: RwLock<RuleTable>,
    shares: Shares,
    /// Leases under these rules end when the rule goes.
    leases: Arc<Leases>,
    clock: ServerClock,
    /// Whether requests may give rules.
    is_open: AtomicBool,
    /// The maximum number of keys of each rule.
    max_keys: usize,
}

impl Rules {
    pub(super) fn new(config: &ServerConfig, clock: ServerClock) -> Self {
        Self {
            table: RwLock::default(),
            shares: Shares::new(RULES_MAX),
            leases: Arc::default(),
            clock,
            is_open: AtomicBool::new(config.has_ad_hoc_rules),
            max_keys: config.rule_max_keys,
        }
    }

    pub(super) fn leases(&self) -> &Arc<Leases> {
        &self.leases
    }

    pub(super) fn is_open(&self) -> bool {
        self.is_open.load(Ordering::Relaxed)
    }

    pub(super) fn set_open(&self, is_open: bool) {
        self.is_open.store(is_open, Ordering::Relaxed);
    }

    /// Opens the rules of a snapshot, which stores their state under their text.
    pub(super) fn restore(
        &self,
        is_named: impl Fn(&str) -> bool,
        store: &dyn Backend,
        restored: &Snapshot,
    ) {
        let uses = restored.attached(ATTACHED_NAME).and_then(decode).unwrap_or_default();
        let now = self.clock.calendar_now();
        for name in restored.names().filter(|name| !is_named(name)) {
            let last_use = uses.get(name).copied().unwrap_or((ClientId::OWN, now));
            let Ok(rule) = name.parse::<Rule>() else { continue };
            let is_recent = now.since(last_use.1) < UNUSED_MAX;
            if is_recent && !self.restore_rule(rule, last_use, store, restored) {
                tracing::error!(
                    "too many rules to restore the state of `{name}` from the snapshot"
                );
            }
        }
    }

    fn restore_rule(
        &self,
        rule: Rule,
        (owner, used): (ClientId, Timestamp),
        store: &dyn Backend,
        restored: &Snapshot,
    ) -> bool {
        let text = rule.to_string();
        let mut table = write(&self.table);
        if table.contains(&text) || !self.shares.take_again(owner) {
            return false;
        }
        let Ok(limit) = Limit::open_ad_hoc(self.config(&text, rule), store, restored) else {
            self.shares.give_back(owner);
            return false;
        };
        table.insert(text, AdHocRule::new(limit, owner, used));
        true
    }

    /// Returns all rules, and the counts of those that were evicted.
    pub(super) fn all_and_evicted(&self) -> (Vec<Arc<Limit>>, EvictedCounts) {
        let table = read(&self.table);
        (table.rules().map(|(_, rule)| Arc::clone(&rule.limit)).collect(), table.evicted.clone())
    }

    /// Returns the rules whose state belongs in a snapshot.
    pub(super) fn recently_used(&self) -> Vec<Arc<Limit>> {
        let now = self.clock.calendar_now();
        let table = read(&self.table);
        let used = table.rules().filter(|(_, rule)| !rule.is_unused(now));
        used.map(|(_, rule)| Arc::clone(&rule.limit)).collect()
    }

    /// Encodes the owner and the last use of each rule.
    pub(super) fn attached(&self) -> Attached {
        let mut bytes = Vec::new();
        for (text, rule) in read(&self.table).rules() {
            snapshot_codec::write_text(&mut bytes, text);
            let words = [rule.owner.get(), rule.last_used().as_micros()];
            snapshot_codec::write_words(&mut bytes, &words);
        }
        (ATTACHED_NAME.to_owned(), bytes)
    }

    /// Returns the rule of this text, and counts that as use.
    pub(super) fn get(&self, text: &str) -> Option<Arc<Limit>> {
        let table = read(&self.table);
        let rule = table.get(text)?;
        rule.mark_used(self.clock.calendar_now());
        Some(Arc::clone(&rule.limit))
    }

    /// Returns the rule of this text, without counting that as use.
    pub(super) fn existing(&self, text: &str) -> Option<Arc<Limit>> {
        read(&self.table).get(text).map(|rule| Arc::clone(&rule.limit))
    }

    /// Returns the limit of this rule, and opens it if it is new. Different texts of one rule are one limit.
    pub(super) fn get_or_open(
        &self,
        text: &str,
        rule: Rule,
        client: ClientId,
        store: &dyn Backend,
    ) -> Result<Arc<Limit>, NoSuchLimit> {
        let canonical = rule.to_string();
        let now = self.clock.calendar_now();
        let mut table = write(&self.table);
        let (limit, released) = if let Some(rule) = table.get(&canonical) {
            rule.mark_used(now);
            (Arc::clone(&rule.limit), Vec::new())
        } else {
            self.open(&mut table, (canonical.clone(), rule), (client, now), store)?
        };
        if text != canonical {
            table.add_alias(text, canonical);
        }
        drop(table);
        // Dropped without the lock: a released permit may wake a waiter.
        drop(released);
        Ok(limit)
    }

    /// Opens a rule, and evicts another one if necessary. Returns the permits of the evicted rule, too.
    fn open(
        &self,
        table: &mut RuleTable,
        (text, rule): (String, Rule),
        (client, now): (ClientId, Timestamp),
        store: &dyn Backend,
    ) -> Result<(Arc<Limit>, Permits), NoSuchLimit> {
        let evicted = if self.shares.take(client) {
            None
        } else {
            let has_share = self.shares.has_share_of_freed(client);
            let evicted = table.find_evictable(client, has_share, now);
            Some(evicted.ok_or(NoSuchLimit::TooManyRules)?)
        };
        let limit = Limit::open_ad_hoc(self.config(&text, rule), store, &Snapshot::default());
        let limit = limit.inspect_err(|_| {
            if evicted.is_none() {
                self.shares.give_back(client);
            }
        })?;
        // Only now: no rule is evicted for one that cannot be opened.
        let permits = evicted.map_or_else(Vec::new, |text| self.evict(table, &text, client));
        Ok((table.insert(text, AdHocRule::new(limit, client, now)), permits))
    }

    fn config(&self, canonical: &str, rule: Rule) -> LimitConfig {
        let mut config = LimitConfig::new(canonical, rule);
        config.max_keys = Some(self.max_keys);
        config
    }

    /// Removes a rule and counts its slot for this client. Returns the permits that are held under the rule.
    #[must_use = "a permit that is dropped may wake a waiter: not while locks are held"]
    fn evict(&self, table: &mut RuleTable, text: &str, client: ClientId) -> Permits {
        let mut rule = table.remove(text).expect("it was found under the same lock");
        self.shares.hand_over(rule.owner, client);
        // No permit is held where all keys are idle, and the search for permits takes long.
        if !rule.limit.rule().is_concurrency() || is_idle(&mut rule.limit) {
            return Vec::new();
        }
        self.leases.remove_rules(&HashSet::from([text]))
    }

    /// Removes the rule of this text, or all rules, with their permits. Returns the number of rules.
    pub(super) fn clear(&self, text: Option<&str>) -> usize {
        let mut table = write(&self.table);
        let canonical =
            |text: &str| text.parse().map_or(text.to_owned(), |rule: Rule| rule.to_string());
        let texts: HashSet<String> = match text {
            Some(text) => HashSet::from([canonical(text)]),
            None => table.rules().map(|(text, _)| text.clone()).collect(),
        };
        let permits = self.leases.remove_rules(&texts.iter().map(String::as_str).collect());
        let removed: Vec<AdHocRule> = texts.iter().filter_map(|text| table.remove(text)).collect();
        for rule in &removed {
            self.shares.give_back(rule.owner);
        }
        table.clear_aliases();
        drop(table);
        drop(permits);
        removed.len()
    }
}

/// Decodes the owner and the last use of each rule from a snapshot.
fn decode(bytes: &[u8]) -> Option<HashMap<&str, (ClientId, Timestamp)>> {
    let (mut reader, mut uses) = (Reader(bytes), HashMap::new());
    while !reader.is_at_end() {
        let (text, [owner, used_us]) = (reader.text()?, reader.words()?);
        uses.insert(text, (ClientId::from_u64(owner), Timestamp::from_micros(used_us)));
    }
    Some(uses)
}

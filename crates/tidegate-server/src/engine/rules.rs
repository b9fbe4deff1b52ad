//! Rules without a name: limits that somebody asks for by the text of their rule.
//!
//! Always   There are at most [`RULES_MAX`]: whoever may ask may bring any text, and must not fill the memory with it. A peer
//!          takes its [share](Shares) of them. Where it has that, or there is no room, a rule goes under which nobody owes anything:
//!          nobody can tell, because a key at rest is no key (but for rules that start empty, which go last). It is one of the
//!          peer's own, or of a peer that has more: who brings many rules drives out nobody who brings few.
//! Always   Debts are never dropped, nor is a rule that somebody has found and may be about to ask, as long as somebody asks for
//!          the rule once a day. One that nobody has asked for longer can go, and is not written to a snapshot: a debt of
//!          a hundred years takes its place for a day. Only who asks for a rule asks: neither a restart nor a refused request does.
//! Always   What makes room for a rule looks at no more than [`RULES_LOOKED_AT`] others, however many there are; a refused peer
//!          changes nothing but where the next one looks.

use super::Limit;
use super::attached::{self, Reader};
use super::lease::Leases;
use super::limits::NoSuchLimit;
use crate::clock::ServerClock;
use crate::config::{LimitConfig, ServerConfig};
use crate::store::{Permit, Store};
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, RwLock};
use tidegate::snapshot::{Attached, Snapshot};
use tidegate::store::Stats;
use tidegate::store::{ClientId, Shares};
use tidegate::{Clock, Limiter, Rule, Span, Timestamp};
use tidegate_redis::Unsuited;

#[cfg(test)]
mod tests;

/// So many different rules may be asked for by their text.
pub(crate) const RULES_MAX: usize = 1_024;
/// Of so many, one is looked for that can go.
pub(super) const RULES_LOOKED_AT: usize = 16;
/// So many texts that are not as the rule itself would be written are remembered.
const ALIASES_MAX: usize = 4 * RULES_MAX;
/// What nobody has asked for so long can go.
const UNASKED_MAX: Span = Span::from_secs(86_400);
/// What these rules are called in a snapshot.
const ATTACHED_NAME: &str = "rules without a name";

/// Limits without a name, by the text that they were asked for with. They outlive a reload.
#[derive(Debug)]
pub(super) struct Rules {
    made: RwLock<Made>,
    shares: Shares,
    /// Places are held under these rules too, and go with them.
    leases: Arc<Leases>,
    clock: ServerClock,
    /// Whether rules are taken from those who ask.
    is_open: AtomicBool,
    /// Of each of them.
    max_keys: usize,
}

#[derive(Debug, Default)]
struct Made {
    /// Each once, by the text that the rule itself is written as.
    limits: HashMap<String, AdHocRule>,
    /// The same texts, by who has a place less for them, in the order in which they are looked at when one has to go.
    by_owner: HashMap<ClientId, VecDeque<String>>,
    /// Those who have some, in the order in which one of theirs is looked at.
    owners: VecDeque<ClientId>,
    /// Other texts of the same rules, or of rules that have gone: a text is always of one rule. Nothing is lost when they are
    /// forgotten.
    aliases: HashMap<String, String>,
    /// What was decided under rules that have gone.
    gone: Stats,
}

/// A rule that was made of text.
#[derive(Debug)]
struct AdHocRule {
    limit: Arc<Limit>,
    /// Who asked for it first, and has a place less for it.
    owner: ClientId,
    /// When somebody asked for it last, by the calendar: so that it is known after a restart.
    asked_us: AtomicU64,
}

impl Rules {
    pub(super) fn new(config: &ServerConfig, clock: ServerClock) -> Self {
        Self {
            made: RwLock::default(),
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

    /// Makes those that a snapshot knows: it is by their text that it knows them.
    pub(super) fn restore(
        &self,
        is_named: impl Fn(&str) -> bool,
        store: &Store,
        restored: &Snapshot,
    ) {
        let asked = restored.attached(ATTACHED_NAME).and_then(read);
        let asked = asked.unwrap_or_default();
        let now = self.clock.calendar_now();
        for name in restored.names().filter(|name| !is_named(name)) {
            let (owner, at) = asked.get(name).copied().unwrap_or((ClientId::OWN, now));
            let Ok(rule) = name.parse::<Rule>() else { continue };
            if now.since(at) < UNASKED_MAX && !self.take_back(rule, (owner, at), store, restored) {
                tracing::error!("no room for what the snapshot knows of `{name}`");
            }
        }
    }

    fn take_back(
        &self,
        rule: Rule,
        (owner, at): (ClientId, Timestamp),
        store: &Store,
        restored: &Snapshot,
    ) -> bool {
        let text = rule.to_string();
        let mut made = self.made.write().expect("nobody panics with it");
        if made.limits.contains_key(&text) || !self.shares.take_again(owner) {
            return false;
        }
        let limit = Limit::ad_hoc(self.config(&text, rule), store, restored);
        let Ok(limit) = limit else {
            self.shares.give_back(owner);
            return false;
        };
        made.insert(text, AdHocRule::new(limit, owner, at));
        true
    }

    /// How many there are.
    #[cfg(test)]
    fn taken(&self) -> usize {
        self.shares.taken()
    }

    pub(super) fn all(&self) -> Vec<Arc<Limit>> {
        self.all_and_gone().0
    }

    pub(super) fn all_and_gone(&self) -> (Vec<Arc<Limit>>, Stats) {
        let made = self.made.read().expect("nobody panics with it");
        (made.limits.values().map(|made| Arc::clone(&made.limit)).collect(), made.gone)
    }

    pub(super) fn to_keep(&self) -> Vec<Arc<Limit>> {
        let now = self.clock.calendar_now();
        let made = self.made.read().expect("nobody panics with it");
        let asked = made.limits.values().filter(|made| !made.is_unasked(now));
        asked.map(|made| Arc::clone(&made.limit)).collect()
    }

    pub(super) fn attached(&self) -> Attached {
        let mut bytes = Vec::new();
        let made = self.made.read().expect("nobody panics with it");
        for (text, made) in &made.limits {
            attached::write_text(&mut bytes, text);
            let asked_us = made.asked_us.load(Ordering::Relaxed);
            attached::write_words(&mut bytes, &[made.owner.get(), asked_us]);
        }
        (ATTACHED_NAME.to_owned(), bytes)
    }

    /// The rule of this text, which somebody asks for.
    pub(super) fn get(&self, text: &str) -> Option<Arc<Limit>> {
        let made = self.made.read().expect("nobody panics with it");
        let rule = made.get(text)?;
        rule.is_asked(self.clock.calendar_now());
        Some(Arc::clone(&rule.limit))
    }

    /// The same, which nobody asks for: it is only looked up.
    pub(super) fn known(&self, text: &str) -> Option<Arc<Limit>> {
        let made = self.made.read().expect("nobody panics with it");
        made.get(text).map(|rule| Arc::clone(&rule.limit))
    }

    /// Two texts of one rule are one limit.
    pub(super) fn make(
        &self,
        text: &str,
        rule: Rule,
        peer: ClientId,
        store: &Store,
    ) -> Result<Arc<Limit>, NoSuchLimit> {
        let canonical = rule.to_string();
        let now = self.clock.calendar_now();
        let mut made = self.made.write().expect("nobody panics with it");
        let (limit, given_back) = if let Some(known) = made.limits.get(&canonical) {
            known.is_asked(now);
            (Arc::clone(&known.limit), Vec::new())
        } else {
            self.make_anew(&mut made, rule, (peer, now), store)?
        };
        if text != canonical {
            made.remember(text, &canonical);
        }
        drop(made);
        // Dropped without the lock: others may be woken by it.
        drop(given_back);
        Ok(limit)
    }

    /// The permits are those of a rule that went for this one.
    fn make_anew(
        &self,
        made: &mut Made,
        rule: Rule,
        (peer, now): (ClientId, Timestamp),
        store: &Store,
    ) -> Result<(Arc<Limit>, Vec<Permit>), NoSuchLimit> {
        let replaced = if self.shares.take(peer) {
            None
        } else {
            let has_share = self.shares.has_share_of_freed(peer);
            let replaced = made.replaceable(peer, has_share, now);
            Some(replaced.ok_or(NoSuchLimit::TooManyRules)?)
        };
        let canonical = rule.to_string();
        let limit = Limit::ad_hoc(self.config(&canonical, rule), store, &Snapshot::default());
        let give_back = |_: &Unsuited| {
            if replaced.is_none() {
                self.shares.give_back(peer);
            }
        };
        let limit = limit.inspect_err(give_back)?;
        // Not before the new one is there: nobody's rule goes for one that cannot be made.
        let permits = replaced.map_or_else(Vec::new, |text| self.replace(made, &text, peer));
        Ok((made.insert(canonical, AdHocRule::new(limit, peer, now)), permits))
    }

    fn config(&self, canonical: &str, rule: Rule) -> LimitConfig {
        let mut config = LimitConfig::new(canonical, rule);
        config.max_keys = Some(self.max_keys);
        config
    }

    /// Puts nothing in the place of this rule, and counts the place for this peer. What was held under it is given back when it is
    /// dropped.
    #[must_use = "dropping permits wakes others: not while locks are held"]
    fn replace(&self, made: &mut Made, text: &str, peer: ClientId) -> Vec<Permit> {
        let mut gone = made.remove(text).expect("it was looked at under the same lock");
        self.shares.hand_over(gone.owner, peer);
        // Nobody holds a place where all keys are at rest, and to look for places takes long.
        if !gone.limit.rule().is_concurrency() || is_idle(&mut gone.limit) {
            return Vec::new();
        }
        self.leases.forget_rules(&HashSet::from([text]))
    }

    /// Tells whether it was there.
    fn drop_rule(&self, made: &mut Made, text: &str) -> bool {
        let gone = made.remove(text);
        gone.inspect(|gone| self.shares.give_back(gone.owner)).is_some()
    }

    /// Forgets the rule of this text, or all of them, and gives back the places that are held under them.
    pub(super) fn clear(&self, text: Option<&str>) -> usize {
        let mut made = self.made.write().expect("nobody panics with it");
        let canonical =
            |text: &str| text.parse().map_or(text.to_owned(), |rule: Rule| rule.to_string());
        let texts: Vec<String> = match text {
            Some(text) => vec![canonical(text)],
            None => made.limits.keys().cloned().collect(),
        };
        made.aliases.clear();
        let texts: HashSet<&str> = texts.iter().map(String::as_str).collect();
        let permits = self.leases.forget_rules(&texts);
        let cleared = texts.iter().filter(|text| self.drop_rule(&mut made, text)).count();
        drop(made);
        drop(permits);
        cleared
    }
}

/// What was attached to a snapshot: who asked for each rule, and when.
fn read(bytes: &[u8]) -> Option<HashMap<&str, (ClientId, Timestamp)>> {
    let (mut reader, mut asked) = (Reader(bytes), HashMap::new());
    while !reader.is_at_end() {
        let (text, [owner, asked_us]) = (reader.text()?, reader.words()?);
        asked.insert(text, (ClientId::from_u64(owner), Timestamp::from_micros(asked_us)));
    }
    Some(asked)
}

impl AdHocRule {
    fn new(limit: Limit, owner: ClientId, asked: Timestamp) -> Self {
        Self { limit: Arc::new(limit), owner, asked_us: AtomicU64::new(asked.as_micros()) }
    }

    /// Somebody asks for it. Said once a second: the line of memory is one that all who ask read.
    fn is_asked(&self, now: Timestamp) {
        let asked = Timestamp::from_micros(self.asked_us.load(Ordering::Relaxed));
        if now.since(asked) >= Span::from_secs(1) {
            self.asked_us.store(now.as_micros(), Ordering::Relaxed);
        }
    }

    /// Nobody can get hold of it while this one can be changed.
    fn is_at_hand_of_nobody(&mut self) -> bool {
        Arc::get_mut(&mut self.limit).is_some()
    }

    fn is_unasked(&self, now: Timestamp) -> bool {
        let asked = Timestamp::from_micros(self.asked_us.load(Ordering::Relaxed));
        now.since(asked) >= UNASKED_MAX
    }
}

impl Made {
    fn insert(&mut self, text: String, made: AdHocRule) -> Arc<Limit> {
        let (limit, owner) = (Arc::clone(&made.limit), made.owner);
        let texts = self.by_owner.entry(owner).or_default();
        if texts.is_empty() {
            self.owners.push_back(owner);
        }
        texts.push_back(text.clone());
        self.limits.insert(text, made);
        limit
    }

    fn get(&self, text: &str) -> Option<&AdHocRule> {
        let alias = || self.aliases.get(text).and_then(|text| self.limits.get(text));
        self.limits.get(text).or_else(alias)
    }

    fn remove(&mut self, text: &str) -> Option<AdHocRule> {
        let gone = self.limits.remove(text)?;
        add(&mut self.gone, &gone.limit.counters().stats());
        let texts = self.by_owner.get_mut(&gone.owner).expect("who has a rule has texts");
        texts.retain(|other| other != text);
        if texts.is_empty() {
            self.by_owner.remove(&gone.owner);
            self.owners.retain(|other| *other != gone.owner);
        }
        Some(gone)
    }

    /// How many this peer has.
    fn count(&self, owner: ClientId) -> usize {
        self.by_owner.get(&owner).map_or(0, VecDeque::len)
    }

    /// A rule whose place this peer may take. It is one that nobody has at hand, and under which nobody owes anything (the peer's
    /// own, or of a peer that has more) or that nobody has asked for a day (anybody's, if the peer's share has room for it).
    /// Looks at a few, where the last look ended, and at the peer's own first.
    fn replaceable(&mut self, peer: ClientId, has_share: bool, now: Timestamp) -> Option<String> {
        let count = self.count(peer);
        let mut starts_empty_too = None;
        for turn in 0..RULES_LOOKED_AT {
            let is_own_turn = turn < count.min(RULES_LOOKED_AT / 2);
            let owner = if is_own_turn { peer } else { self.next_owner()? };
            let may_replace = owner == peer || self.count(owner) > count;
            let text = self.next_of(owner)?;
            let made = self.limits.get_mut(&text)?;
            if (may_replace || has_share) && made.is_unasked(now) && made.is_at_hand_of_nobody() {
                return Some(text);
            }
            if may_replace && is_idle(&mut made.limit) {
                if !starts_empty(&text) {
                    return Some(text);
                }
                starts_empty_too.get_or_insert(text);
            }
        }
        starts_empty_too
    }

    /// The next of those who have rules.
    fn next_owner(&mut self) -> Option<ClientId> {
        let owner = self.owners.pop_front()?;
        self.owners.push_back(owner);
        Some(owner)
    }

    /// The next rule of this one.
    fn next_of(&mut self, owner: ClientId) -> Option<String> {
        let texts = self.by_owner.get_mut(&owner)?;
        let text = texts.pop_front()?;
        texts.push_back(text.clone());
        Some(text)
    }

    /// Whoever writes one rule in ever new ways takes no room from others.
    fn remember(&mut self, text: &str, canonical: &str) {
        if self.aliases.len() >= ALIASES_MAX {
            self.aliases.clear();
        }
        self.aliases.insert(text.to_owned(), canonical.to_owned());
    }
}

/// Whether nobody has it at hand, which nobody can change while it is looked at, and nobody owes anything.
fn is_idle(limit: &mut Arc<Limit>) -> bool {
    let limit = Arc::get_mut(limit);
    limit.is_some_and(|limit| limit.counters().limiter().is_some_and(Limiter::is_idle))
}

/// Whether a rule begins with less than it comes to: made anew it would do so again, and admit less for a while. It goes
/// if no other can.
fn starts_empty(text: &str) -> bool {
    let now = Timestamp::from_micros(0);
    let starts_full = |rule: Rule| {
        let limit = rule.limit();
        limit.peek(&limit.fresh(now), now, 0).reset_after.is_zero()
    };
    !text.parse().is_ok_and(starts_full)
}

/// Counters of what has gone go on being counted: a sum that falls looks like a restart.
fn add(sum: &mut Stats, stats: &Stats) {
    sum.allowed += stats.allowed;
    sum.denied += stats.denied;
    sum.waited += stats.waited;
    sum.overflowed += stats.overflowed;
    sum.evicted += stats.evicted;
}

//! All limits that are in place, and those that were made of rule text.
//!
//! Always   There are at most [`RULES_MAX`] rules without a name: whoever may ask may bring any text, and must
//!          not fill the memory with it. Where one more is asked for, one goes under which nobody owes anything:
//!          nobody can tell, because a key at rest is no key (but for rules that start empty, which go last). Debts
//!          are never dropped, nor is a rule that somebody has found and may be about to ask. In Redis all stay:
//!          what a server knows of its own, it may yet need.

use super::Limit;
use crate::config::{Config, LimitConfig};
use crate::matching::Descriptors;
use crate::store::Store;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, RwLock};
use tidegate::{Limiter, Rule, RuleError, Snapshot, Stats, Timestamp};
use tidegate_redis::Unsuited;

/// So many different rules may be asked for by their text.
pub(super) const RULES_MAX: usize = 1_024;
/// Of so many, one is looked for that can go.
const RULES_LOOKED_AT: usize = 16;
/// So many texts that are not as the rule itself would be written are remembered.
const ALIASES_MAX: usize = 4 * RULES_MAX;
/// A name or a rule is no longer than this.
pub(super) const NAME_BYTES_MAX: usize = 256;
/// A text longer than this resembles no name, and finding that out takes long.
const RESEMBLING_BYTES_MAX: usize = 64;

/// The limits in place.
#[derive(Debug)]
pub struct Limits {
    named: HashMap<String, Arc<Limit>>,
    /// In the order of the configuration.
    order: Vec<Arc<Limit>>,
    descriptors: Descriptors,
    rules: Arc<Rules>,
}

/// Limits without a name, by the text that they were asked for with. They outlive a reload.
#[derive(Debug)]
struct Rules {
    made: RwLock<Made>,
    /// Of each of them.
    max_keys: usize,
}

#[derive(Debug, Default)]
struct Made {
    /// Each once, by the text that the rule itself is written as.
    limits: HashMap<String, Arc<Limit>>,
    /// The same texts, in the order in which they are looked at when one has to go.
    turns: VecDeque<String>,
    /// Other texts of the same rules. Nothing is lost when they are forgotten.
    aliases: HashMap<String, Arc<Limit>>,
    /// What was decided under rules that have gone.
    gone: Stats,
}

/// Why there is no such limit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoSuchLimit {
    /// It is neither a name nor a rule.
    #[error("no limit is named `{name}`, and it is not a rule: {}{}", at(.error, .name), hint(.near.as_deref()))]
    Neither {
        /// What was asked for.
        name: String,
        /// What is wrong with it as a rule.
        error: Box<RuleError>,
        /// The name that looks most like it.
        near: Option<String>,
    },
    /// There are too many rules without a name.
    #[error(
        "{RULES_MAX} different rules have been asked for by their text, and none that could go was found among \
         {RULES_LOOKED_AT} of them: give the limit a name in the configuration"
    )]
    TooManyRules,
    /// The store cannot count so far.
    #[error("{0}: {cause}", cause = .0.source)]
    Unsuited(#[from] Unsuited),
    /// It is longer than any name or rule.
    #[error("a limit's name or rule has at most {NAME_BYTES_MAX} bytes")]
    TooLong,
}

/// What is wrong with a text as a rule, and at which of its characters: in one line, as wires need it.
pub(crate) fn at(error: &RuleError, text: &str) -> String {
    let before = text.get(..error.span().start).unwrap_or(text);
    format!("{}, at character {}", error.message(), before.chars().count() + 1)
}

fn hint(near: Option<&str>) -> String {
    near.map(|near| format!("; did you mean the limit `{near}`?")).unwrap_or_default()
}

impl Limits {
    pub(super) fn new(config: &Config, store: &Store, restored: &Snapshot) -> Self {
        let make = |config: &LimitConfig| Arc::new(configured(config, store, restored));
        let order: Vec<Arc<Limit>> = config.limits.iter().map(make).collect();
        let rules = Rules { made: RwLock::default(), max_keys: config.server.rule_max_keys };
        rules.restore(&order, store, restored);
        Self::of(order, Arc::new(rules))
    }

    fn of(order: Vec<Arc<Limit>>, rules: Arc<Rules>) -> Self {
        let named =
            order.iter().map(|limit| (limit.name().to_owned(), Arc::clone(limit))).collect();
        let descriptors = Descriptors::new(order.iter().map(|limit| limit.config()));
        Self { named, order, descriptors, rules }
    }

    /// These limits instead; those that were there go on with their counters.
    pub(super) fn changed(&self, configs: &[LimitConfig], store: &Store) -> Self {
        let change = |config: &LimitConfig| match self.named.get(&config.name) {
            Some(limit) => Arc::new(limit.changed(config.clone())),
            None => Arc::new(configured(config, store, &Snapshot::default())),
        };
        Self::of(configs.iter().map(change).collect(), Arc::clone(&self.rules))
    }

    /// Those with a name, in the order of the configuration.
    pub fn named(&self) -> &[Arc<Limit>] {
        &self.order
    }

    /// Which of [`named`](Self::named) count which Envoy descriptors.
    pub fn descriptors(&self) -> &Descriptors {
        &self.descriptors
    }

    /// The one of this name.
    pub fn get(&self, name: &str) -> Option<&Arc<Limit>> {
        self.named.get(name)
    }

    /// Those that were made of rule text.
    pub fn unnamed(&self) -> Vec<Arc<Limit>> {
        self.rules.all()
    }

    /// Those that were made of rule text, and what was decided under others that have gone since.
    pub fn unnamed_and_gone(&self) -> (Vec<Arc<Limit>>, Stats) {
        self.rules.all_and_gone()
    }

    pub(super) fn find(&self, text: &str, store: &Store) -> Result<Arc<Limit>, NoSuchLimit> {
        if let Some(limit) = self.named.get(text) {
            return Ok(Arc::clone(limit));
        }
        if text.len() > NAME_BYTES_MAX {
            return Err(NoSuchLimit::TooLong);
        }
        if let Some(limit) = self.rules.get(text) {
            return Ok(limit);
        }
        let rule: Rule = text.parse().map_err(|error| self.neither(text, error))?;
        self.rules.make(text, rule, store, &Snapshot::default())
    }

    fn neither(&self, text: &str, error: RuleError) -> NoSuchLimit {
        let names = self.order.iter().map(|limit| limit.name());
        let names = names.filter(|_| text.len() <= RESEMBLING_BYTES_MAX);
        let near = crate::config::near(text, names);
        let error = Box::new(error);
        NoSuchLimit::Neither { name: text.to_owned(), error, near: near.map(str::to_owned) }
    }
}

fn configured(config: &LimitConfig, store: &Store, restored: &Snapshot) -> Limit {
    let made = Limit::new(config.clone(), store, restored);
    made.expect("a configuration has no rule that its store cannot keep")
}

impl Rules {
    /// Makes those that a snapshot knows: it is by their text that it knows them.
    fn restore(&self, named: &[Arc<Limit>], store: &Store, restored: &Snapshot) {
        for name in restored.names().filter(|name| named.iter().all(|limit| limit.name() != *name))
        {
            if let Ok(rule) = name.parse()
                && self.make(name, rule, store, restored).is_err()
            {
                tracing::error!("no room for what the snapshot knows of `{name}`");
            }
        }
    }

    fn all(&self) -> Vec<Arc<Limit>> {
        let made = self.made.read().expect("nobody panics with it");
        made.limits.values().cloned().collect()
    }

    fn all_and_gone(&self) -> (Vec<Arc<Limit>>, Stats) {
        let made = self.made.read().expect("nobody panics with it");
        (made.limits.values().cloned().collect(), made.gone)
    }

    fn get(&self, text: &str) -> Option<Arc<Limit>> {
        let made = self.made.read().expect("nobody panics with it");
        made.limits.get(text).or_else(|| made.aliases.get(text)).cloned()
    }

    /// Two texts of one rule are one limit.
    fn make(
        &self,
        text: &str,
        rule: Rule,
        store: &Store,
        restored: &Snapshot,
    ) -> Result<Arc<Limit>, NoSuchLimit> {
        let canonical = rule.to_string();
        let mut made = self.made.write().expect("nobody panics with it");
        let limit = match made.limits.get(&canonical).cloned() {
            Some(limit) => limit,
            None if made.limits.len() >= RULES_MAX && (store.is_shared() || !made.drop_one()) => {
                return Err(NoSuchLimit::TooManyRules);
            }
            None => {
                let mut config = LimitConfig::new(canonical.clone(), rule);
                config.max_keys = Some(self.max_keys);
                let limit = Arc::new(Limit::new(config, store, restored)?);
                made.limits.insert(canonical.clone(), Arc::clone(&limit));
                made.turns.push_back(canonical.clone());
                limit
            }
        };
        if text != canonical {
            made.remember(text, &limit);
        }
        Ok(limit)
    }
}

impl Made {
    /// Forgets a rule under which nobody owes anything and which nobody has at hand. Looks at a few, where the last look
    /// ended; `false` if none of them can go.
    fn drop_one(&mut self) -> bool {
        // They have their rules at hand.
        self.aliases.clear();
        let looked_at: Vec<String> = self.turns.iter().take(RULES_LOOKED_AT).cloned().collect();
        self.turns.rotate_left(looked_at.len());
        let limits = &mut self.limits;
        let mut idle = looked_at.iter().filter(|text| limits.get_mut(*text).is_some_and(is_idle));
        let Some(first) = idle.next() else { return false };
        let text = if starts_empty(first) { idle.find(|text| !starts_empty(text)) } else { None };
        let text = text.unwrap_or(first);
        let gone = self.limits.remove(text).map(|limit| limit.counters().stats());
        add(&mut self.gone, &gone.unwrap_or_default());
        self.turns.retain(|other| other != text);
        true
    }

    /// Whoever writes one rule in ever new ways takes no room from others.
    fn remember(&mut self, text: &str, limit: &Arc<Limit>) {
        if self.aliases.len() >= ALIASES_MAX {
            self.aliases.clear();
        }
        self.aliases.insert(text.to_owned(), Arc::clone(limit));
    }
}

/// Whether nobody has it at hand, which nobody can change while it is looked at, and nobody owes anything.
fn is_idle(limit: &mut Arc<Limit>) -> bool {
    let limit = Arc::get_mut(limit);
    limit.is_some_and(|limit| limit.counters().limiter().is_some_and(Limiter::is_at_rest))
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
    sum.forgotten += stats.forgotten;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::ServerClock;
    use crate::store::Key;
    use tidegate::{ManualClock, Span};

    fn limits(max_keys: usize) -> (Limits, Store, ManualClock) {
        let clock = ManualClock::new();
        let server_clock = ServerClock::Manual(clock.clone());
        let store = Store::memory(server_clock, 16, &Snapshot::default());
        let mut config = Config::default();
        config.server.rule_max_keys = max_keys;
        (Limits::new(&config, &store, &Snapshot::default()), store, clock)
    }

    /// Takes one under this rule, and says how many are left.
    fn take(limits: &Limits, store: &Store, text: &str) -> Result<u64, NoSuchLimit> {
        let limit = limits.find(text, store)?;
        let limiter = limit.counters().limiter().expect("it is in memory");
        Ok(limiter.check(&Key(b"alice")).remaining)
    }

    #[test]
    fn so_many_rules_may_be_in_use_and_no_more() {
        let (limits, store, _) = limits(77);
        for rate in 1..=RULES_MAX {
            take(&limits, &store, &format!("{rate}/h")).expect("there is room");
        }
        for round in 0..2 * RULES_MAX / RULES_LOOKED_AT {
            let beyond = take(&limits, &store, &format!("{}/h", RULES_MAX + 1 + round));
            assert_eq!(beyond.err(), Some(NoSuchLimit::TooManyRules));
        }
        for rate in 1..=RULES_MAX as u64 {
            let left = take(&limits, &store, &format!("{rate}/h")).expect("it is there");
            assert_eq!(left, rate.saturating_sub(2), "its debt is too");
        }
        assert_eq!(limits.unnamed().len(), RULES_MAX);
    }

    #[test]
    fn a_rule_under_which_nobody_owes_makes_room_for_another() {
        let (limits, store, clock) = limits(50_000);
        take(&limits, &store, "9/week").expect("there is room");
        take(&limits, &store, "7/s smooth").expect("there is room");
        let held = limits.find("8/h", &store).expect("there is room");
        for rate in 4..=RULES_MAX {
            take(&limits, &store, &format!("{rate}/s")).expect("there is room");
        }
        assert_eq!(take(&limits, &store, "1/min").err(), Some(NoSuchLimit::TooManyRules));
        clock.advance(Span::from_secs(2));
        for rate in 1..=3 * RULES_MAX {
            take(&limits, &store, &format!("{rate}/2s")).expect("others are at rest");
            clock.advance(Span::from_secs(4));
        }
        assert_eq!(limits.unnamed().len(), RULES_MAX);
        assert_eq!(take(&limits, &store, "9/week"), Ok(7), "a debt is never dropped");
        let same = limits.find("8/h", &store).expect("it is there");
        assert!(Arc::ptr_eq(&held, &same), "nor is what somebody may be about to ask");
        let smooth = limits.find("7/s smooth", &store).expect("it is there");
        let stats = smooth.counters().stats();
        assert_eq!(stats.allowed + stats.waited, 1, "nor, while others can go, what starts empty");
        let counted: u64 =
            limits.unnamed().iter().map(|limit| limit.counters().stats().allowed).sum();
        let asked = 2 + (RULES_MAX - 3) + 3 * RULES_MAX + 1;
        assert_eq!(
            counted + limits.unnamed_and_gone().1.allowed,
            asked as u64,
            "what has gone is still counted"
        );
    }

    #[test]
    fn one_rule_written_in_many_ways_takes_one_place() {
        let (limits, store, _) = limits(77);
        let first = limits.find("7/s", &store).expect("there is room");
        for spaces in 0..NAME_BYTES_MAX / 2 {
            for after in 0..NAME_BYTES_MAX / 2 - 3 {
                let text = format!("{}7/s{}", " ".repeat(spaces), " ".repeat(after));
                let same = limits.find(&text, &store).expect("there is room");
                assert!(Arc::ptr_eq(&first, &same));
            }
        }
        limits.find("8/s", &store).expect("there is room for others");
        assert_eq!(limits.unnamed().len(), 2);
    }

    #[test]
    fn a_rule_without_a_name_has_no_more_keys_than_it_may() {
        let (limits, store, _) = limits(77);
        let limit = limits.find("7/s", &store).expect("there is room");
        assert_eq!(limit.counters().stats().max_keys, 77);
    }
}

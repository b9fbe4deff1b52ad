//! All limits that are in place, and those that were made of rule text.
//!
//! Always   There are at most [`RULES_MAX`] rules without a name: whoever may ask may bring any text, and must
//!          not fill the memory with it.

use super::Limit;
use crate::config::{Config, LimitConfig};
use crate::matching::Descriptors;
use crate::store::Store;
use std::collections::HashMap;
use std::sync::{Arc, RwLock};
use tidegate::{Rule, RuleError, Snapshot};
use tidegate_redis::Unsuited;

/// So many different rules may be asked for by their text.
pub(super) const RULES_MAX: usize = 1_024;
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
    /// Other texts of the same rules. Nothing is lost when they are forgotten.
    aliases: HashMap<String, Arc<Limit>>,
}

/// Why there is no such limit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoSuchLimit {
    /// It is neither a name nor a rule.
    #[error("no limit is named `{name}`, and it is not a rule: {error}{}", hint(.near.as_deref()))]
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
        "{RULES_MAX} different rules have been asked for by their text, and there is room for no more: \
         give the limit a name in the configuration"
    )]
    TooManyRules,
    /// The store cannot count so far.
    #[error("{0}: {cause}", cause = .0.source)]
    Unsuited(#[from] Unsuited),
    /// It is longer than any name or rule.
    #[error("a limit's name or rule has at most {NAME_BYTES_MAX} bytes")]
    TooLong,
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
        let limit = match made.limits.get(&canonical) {
            Some(limit) => Arc::clone(limit),
            None if made.limits.len() >= RULES_MAX => return Err(NoSuchLimit::TooManyRules),
            None => {
                let mut config = LimitConfig::new(canonical.clone(), rule);
                config.max_keys = Some(self.max_keys);
                let limit = Arc::new(Limit::new(config, store, restored)?);
                made.limits.insert(canonical.clone(), Arc::clone(&limit));
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
    /// Whoever writes one rule in ever new ways takes no room from others.
    fn remember(&mut self, text: &str, limit: &Arc<Limit>) {
        if self.aliases.len() >= ALIASES_MAX {
            self.aliases.clear();
        }
        self.aliases.insert(text.to_owned(), Arc::clone(limit));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::ServerClock;

    fn limits() -> (Limits, Store) {
        let store = Store::memory(ServerClock::system(), 16, &Snapshot::default());
        let mut config = Config::default();
        config.server.rule_max_keys = 77;
        (Limits::new(&config, &store, &Snapshot::default()), store)
    }

    #[test]
    fn so_many_rules_may_be_asked_for_and_no_more() {
        let (limits, store) = limits();
        for rate in 1..=RULES_MAX {
            limits.find(&format!("{rate}/s"), &store).expect("there is room");
        }
        let beyond = limits.find(&format!("{}/s", RULES_MAX + 1), &store);
        assert_eq!(beyond.err(), Some(NoSuchLimit::TooManyRules));
        limits.find("1/s", &store).expect("who was there before is not sent away");
        assert_eq!(limits.unnamed().len(), RULES_MAX);
    }

    #[test]
    fn one_rule_written_in_many_ways_takes_one_place() {
        let (limits, store) = limits();
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
        let (limits, store) = limits();
        let limit = limits.find("7/s", &store).expect("there is room");
        assert_eq!(limit.counters().stats().max_keys, 77);
    }
}

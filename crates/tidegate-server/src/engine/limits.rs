//! The limits in force: those with a name, and [ad-hoc rules](super::rules).

use super::Limit;
use super::rules::{EvictedCounts, NAME_BYTES_MAX, NoSuchLimit, Rules};
use crate::clock::ServerClock;
use crate::config::matching::Descriptors;
use crate::config::{self, Config, LimitConfig};
use crate::store::Backend;
use std::collections::HashMap;
use std::sync::Arc;
use tidegate::snapshot::Snapshot;
use tidegate::store::ClientId;
use tidegate::{Rule, RuleError};

/// The maximum length of a text that is compared with all names for a suggestion: the edit distance takes long.
const SUGGESTION_BYTES_MAX: usize = 64;

/// The limits in force.
#[derive(Debug)]
pub struct Limits {
    by_name: HashMap<String, Arc<Limit>>,
    /// In the order of the configuration.
    named: Vec<Arc<Limit>>,
    descriptors: Descriptors,
    pub(super) rules: Arc<Rules>,
}

impl Limits {
    pub(super) fn new(
        config: &Config,
        store: &dyn Backend,
        clock: &ServerClock,
        restored: &Snapshot,
    ) -> Self {
        let open = |config: &LimitConfig| Arc::new(open_named(config, store, restored));
        let named: Vec<Arc<Limit>> = config.limits.iter().map(open).collect();
        let rules = Rules::new(&config.server, clock.clone());
        if config.server.has_ad_hoc_rules {
            rules.restore(|name| named.iter().any(|limit| limit.name() == name), store, restored);
        }
        Self::of(named, Arc::new(rules))
    }

    fn of(named: Vec<Arc<Limit>>, rules: Arc<Rules>) -> Self {
        let by_name =
            named.iter().map(|limit| (limit.name().to_owned(), Arc::clone(limit))).collect();
        let descriptors = Descriptors::new(named.iter().map(|limit| limit.config()));
        Self { by_name, named, descriptors, rules }
    }

    /// Returns the limits of another configuration; those with a name that is in force already keep their counters.
    pub(super) fn reconfigured(&self, configs: &[LimitConfig], store: &dyn Backend) -> Self {
        let change = |config: &LimitConfig| match self.by_name.get(&config.name) {
            Some(limit) => Arc::new(limit.reconfigured(config.clone())),
            None => Arc::new(open_named(config, store, &Snapshot::default())),
        };
        Self::of(configs.iter().map(change).collect(), Arc::clone(&self.rules))
    }

    /// Returns the limits with a name, in the order of the configuration.
    pub fn named(&self) -> &[Arc<Limit>] {
        &self.named
    }

    /// Returns which of the [`named`](Self::named) limits count which Envoy descriptors.
    pub fn descriptors(&self) -> &Descriptors {
        &self.descriptors
    }

    /// Returns the limit of this name.
    pub fn get(&self, name: &str) -> Option<&Arc<Limit>> {
        self.by_name.get(name)
    }

    /// Returns the limits that were made of rule text.
    pub fn unnamed(&self) -> Vec<Arc<Limit>> {
        self.unnamed_and_gone().0
    }

    /// Returns the limits that were made of rule text, and the counts of those that were evicted.
    pub fn unnamed_and_gone(&self) -> (Vec<Arc<Limit>>, EvictedCounts) {
        self.rules.all_and_evicted()
    }

    /// Returns the limit of this name or rule text, if it is in force.
    pub(super) fn existing(&self, name: &str) -> Option<Arc<Limit>> {
        self.by_name.get(name).cloned().or_else(|| self.rules.existing(name))
    }

    pub(super) fn find(
        &self,
        text: &str,
        client: ClientId,
        store: &dyn Backend,
    ) -> Result<Arc<Limit>, NoSuchLimit> {
        if let Some(limit) = self.by_name.get(text) {
            return Ok(Arc::clone(limit));
        }
        if text.len() > NAME_BYTES_MAX {
            return Err(NoSuchLimit::TooLong);
        }
        if self.rules.is_open()
            && let Some(limit) = self.rules.get(text)
        {
            return Ok(limit);
        }
        let rule: Rule = text.parse().map_err(|error| self.neither(text, error))?;
        if !self.rules.is_open() {
            return Err(NoSuchLimit::NoAdHocRules(text.to_owned()));
        }
        self.rules.get_or_open(text, rule, client, store)
    }

    fn neither(&self, text: &str, error: RuleError) -> NoSuchLimit {
        let names = self.named.iter().map(|limit| limit.name());
        let near = config::near(text, names.filter(|_| text.len() <= SUGGESTION_BYTES_MAX));
        let (name, near) = (text.to_owned(), near.map(str::to_owned));
        NoSuchLimit::Neither { name, error: Box::new(error), near }
    }
}

fn open_named(config: &LimitConfig, store: &dyn Backend, restored: &Snapshot) -> Limit {
    let opened = Limit::open(config.clone(), store, restored);
    opened.expect("the configuration was checked against what its store can represent")
}

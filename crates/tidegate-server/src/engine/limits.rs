//! All limits that are in place: those with a name, and [rules](super::rules) that were made of text.

use super::Limit;
use super::lease::Leases;
use super::rules::{RULES_LOOKED_AT, RULES_MAX, Rules};
use crate::clock::ServerClock;
use crate::config::{Config, LimitConfig};
use crate::matching::Descriptors;
use crate::store::Store;
use std::collections::HashMap;
use std::sync::Arc;
use tidegate::snapshot::{Attached, Snapshot};
use tidegate::store::ClientId;
use tidegate::store::Stats;
use tidegate::{Rule, RuleError};
use tidegate_redis::Unsuited;

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
    pub(super) rules: Arc<Rules>,
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
        "there is room for {RULES_MAX} different rules that are asked for by their text, of which one peer gets three \
         quarters at most, and none that could go was found among {RULES_LOOKED_AT}: give the limit a name in the configuration"
    )]
    TooManyRules,
    /// It is a rule, and the configuration takes none.
    #[error(
        "no limit is named `{0}`, and this server takes no rules from those who ask (`ad_hoc_rules = false` in [server]): ask for a \
         limit by its name"
    )]
    NoAdHocRules(String),
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
    pub(super) fn new(
        config: &Config,
        store: &Store,
        clock: &ServerClock,
        restored: &Snapshot,
    ) -> Self {
        let make = |config: &LimitConfig| Arc::new(configured(config, store, restored));
        let order: Vec<Arc<Limit>> = config.limits.iter().map(make).collect();
        let rules = Rules::new(&config.server, clock.clone());
        if config.server.has_ad_hoc_rules {
            rules.restore(|name| order.iter().any(|limit| limit.name() == name), store, restored);
        }
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

    /// Those that were made of rule text and that somebody has asked for within a day.
    pub(super) fn unnamed_to_keep(&self) -> Vec<Arc<Limit>> {
        self.rules.to_keep()
    }

    /// For a snapshot: who asked for these last, and when.
    pub(super) fn attached(&self) -> Attached {
        self.rules.attached()
    }

    /// The places that are held under all of these limits.
    pub(super) fn leases(&self) -> &Arc<Leases> {
        self.rules.leases()
    }

    /// Whether rules are taken from those who ask, from now on.
    pub(super) fn take_ad_hoc_rules(&self, are_taken: bool) {
        self.rules.set_open(are_taken);
    }

    /// Forgets the rule of this text, or all that were made of rule text, with what is owed and held under them. Tells how many.
    pub(super) fn clear_unnamed(&self, text: Option<&str>) -> usize {
        self.rules.clear(text)
    }

    /// The one of this name or text, if it is in place.
    pub(super) fn known(&self, name: &str) -> Option<Arc<Limit>> {
        self.named.get(name).cloned().or_else(|| self.rules.known(name))
    }

    pub(super) fn find(
        &self,
        text: &str,
        peer: ClientId,
        store: &Store,
    ) -> Result<Arc<Limit>, NoSuchLimit> {
        if let Some(limit) = self.named.get(text) {
            return Ok(Arc::clone(limit));
        }
        if text.len() > NAME_BYTES_MAX {
            return Err(NoSuchLimit::TooLong);
        }
        let is_open = self.rules.is_open();
        if is_open && let Some(limit) = self.rules.get(text) {
            return Ok(limit);
        }
        let rule: Rule = text.parse().map_err(|error| self.neither(text, error))?;
        if !is_open {
            return Err(NoSuchLimit::NoAdHocRules(text.to_owned()));
        }
        self.rules.make(text, rule, peer, store)
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

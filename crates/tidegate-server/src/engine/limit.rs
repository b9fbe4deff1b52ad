//! A limit as the server keeps it: its counters, and how it is obeyed.

use super::Answer;
use crate::config::{LimitConfig, Mode};
use crate::store::{Counters, Store};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tidegate::snapshot::Snapshot;
use tidegate::{Decision, Rule, Span};
use tidegate_http::LimitStatus;
use tidegate_redis::Unsuited;

/// A limit, by name or by rule text.
#[derive(Debug)]
pub struct Limit {
    config: LimitConfig,
    name: Arc<str>,
    /// Whether it was made of rule text.
    is_ad_hoc: bool,
    counters: Counters,
    /// Stays with the counters.
    shadowed: Arc<Shadowed>,
}

/// A limit that no check may ask: it counts who is in flight, and a check does not say when it is over.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("limit `{limit}` counts who is in flight, and a check does not say when it is over")]
pub struct InFlight {
    /// Its name, or its rule.
    pub limit: String,
}

/// How many passed only because the limit is in the shadow.
#[derive(Debug, Default)]
struct Shadowed {
    all: AtomicU64,
    /// Of these, who would have been denied.
    denied: AtomicU64,
    /// The most that [`Limit::denied`] has ever said.
    denied_max: AtomicU64,
}

impl Limit {
    pub(super) fn new(
        config: LimitConfig,
        store: &Store,
        restored: &Snapshot,
    ) -> Result<Self, Unsuited> {
        let counters = store.open(&config, restored)?;
        counters.change(config.rule.clone());
        let name = config.name.as_str().into();
        Ok(Self { config, name, is_ad_hoc: false, counters, shadowed: Arc::default() })
    }

    /// A limit without a name, which somebody asks for by the text of its rule.
    pub(super) fn ad_hoc(
        config: LimitConfig,
        store: &Store,
        restored: &Snapshot,
    ) -> Result<Self, Unsuited> {
        Ok(Self { is_ad_hoc: true, ..Self::new(config, store, restored)? })
    }

    /// The same counters, told otherwise.
    pub(super) fn changed(&self, config: LimitConfig) -> Self {
        // What another server has made of it since stays, unless this one is told otherwise.
        if self.config.rule != config.rule {
            self.counters.change(config.rule.clone());
        }
        let (counters, shadowed) = (self.counters.clone(), Arc::clone(&self.shadowed));
        Self { config, name: Arc::clone(&self.name), is_ad_hoc: false, counters, shadowed }
    }

    /// What it is called: its name, or its rule.
    pub fn name(&self) -> &str {
        &self.config.name
    }

    /// The same, for who keeps it.
    pub(super) fn shared_name(&self) -> Arc<str> {
        Arc::clone(&self.name)
    }

    /// Whether it has no name, and somebody asked for it by the text of its rule.
    pub fn is_ad_hoc(&self) -> bool {
        self.is_ad_hoc
    }

    /// What it admits.
    pub fn rule(&self) -> &Rule {
        &self.config.rule
    }

    /// Whether it is obeyed.
    pub fn mode(&self) -> Mode {
        self.config.mode
    }

    /// All that was said about it.
    pub fn config(&self) -> &LimitConfig {
        &self.config
    }

    /// A check may ask it, unless its places have to be given back. Whatever its mode is: one that is off today
    /// is asked tomorrow.
    pub fn refuse_in_flight(&self) -> Result<(), InFlight> {
        if self.config.rule.is_concurrency() {
            return Err(InFlight { limit: self.name().to_owned() });
        }
        Ok(())
    }

    /// How long a place is held at the most, under a concurrency limit that says so.
    pub fn lease(&self) -> Option<Span> {
        self.config.rule.lease()
    }

    /// Where it counts.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// How many passed only because the limit is in the shadow.
    pub fn shadowed(&self) -> u64 {
        self.shadowed.all.load(Ordering::Relaxed)
    }

    /// How many of them would have been denied.
    pub fn shadow_denied(&self) -> u64 {
        self.shadowed.denied.load(Ordering::Relaxed)
    }

    /// How many were denied indeed. Never goes down, though it is the difference of two counters that
    /// are read one after the other: who collects it would take that for a restart.
    pub fn denied(&self) -> u64 {
        let denied = self.counters.stats().denied.saturating_sub(self.shadow_denied());
        denied.max(self.shadowed.denied_max.fetch_max(denied, Ordering::Relaxed))
    }

    /// What the caller is told about a decision that counts.
    pub(crate) fn answer(&self, decision: Decision) -> Answer {
        let answer = self.seen(decision);
        if answer.is_shadowed {
            self.shadowed.all.fetch_add(1, Ordering::Relaxed);
            let is_denied = u64::from(decision.is_deny());
            self.shadowed.denied.fetch_add(is_denied, Ordering::Relaxed);
        }
        answer
    }

    /// What the fields of an answer tell a client: of a limit that is in the shadow or off, nothing.
    pub(crate) fn told(&self, answer: Answer) -> Option<LimitStatus<'_>> {
        self.mode().status(self.name(), self.rule(), answer.decision)
    }

    /// What the caller is told about a decision that was only looked at.
    pub(crate) fn seen(&self, decision: Decision) -> Answer {
        self.mode().apply(decision)
    }
}

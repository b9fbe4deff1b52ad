//! A limit as the server enforces it: its counters, its mode, and how many requests it admitted in shadow mode only.

use super::EffectiveDecision;
use crate::config::{LimitConfig, Mode};
use crate::store::{Backend, Counters};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tidegate::snapshot::Snapshot;
use tidegate::store::LimitStore;
use tidegate::{Decision, Rule, Span};
use tidegate_http::LimitStatus;
use tidegate_redis::UnsupportedRule;

/// A limit, with a name or made of rule text.
#[derive(Debug)]
pub struct Limit {
    config: LimitConfig,
    name: Arc<str>,
    is_ad_hoc: bool,
    counters: Arc<dyn Counters>,
    shadow: Arc<ShadowCounts>,
}

/// A check named a concurrency limit. Its permits have to be released, and a check has no way to do that.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("limit `{limit}` is a concurrency limit, and a check cannot release its permits")]
pub struct NotCheckable {
    /// The limit's name, or its rule.
    pub limit: String,
}

/// Requests that passed because the limit was in shadow mode.
#[derive(Debug, Default)]
struct ShadowCounts {
    all: AtomicU64,
    denied: AtomicU64,
    /// The highest value that [`Limit::denied`] has returned.
    denied_max: AtomicU64,
}

impl Limit {
    pub(super) fn open(
        config: LimitConfig,
        store: &dyn Backend,
        restored: &Snapshot,
    ) -> Result<Self, UnsupportedRule> {
        let counters = store.open(&config, restored)?;
        counters.set_rule(config.rule.clone());
        let name = config.name.as_str().into();
        Ok(Self { config, name, is_ad_hoc: false, counters, shadow: Arc::default() })
    }

    /// Opens a limit without a name, which a request gave as rule text.
    pub(super) fn open_ad_hoc(
        config: LimitConfig,
        store: &dyn Backend,
        restored: &Snapshot,
    ) -> Result<Self, UnsupportedRule> {
        Ok(Self { is_ad_hoc: true, ..Self::open(config, store, restored)? })
    }

    /// Returns this limit with another configuration and the same counters.
    pub(super) fn reconfigured(&self, config: LimitConfig) -> Self {
        // A rule that another server has published since stays, unless this server's configuration of the rule changed.
        if self.config.rule != config.rule {
            self.counters.set_rule(config.rule.clone());
        }
        let (counters, shadow) = (Arc::clone(&self.counters), Arc::clone(&self.shadow));
        Self { config, name: Arc::clone(&self.name), is_ad_hoc: false, counters, shadow }
    }

    /// Returns the limit's name, or its rule.
    pub fn name(&self) -> &str {
        &self.config.name
    }

    /// Returns the name without copying it.
    pub(super) fn shared_name(&self) -> Arc<str> {
        Arc::clone(&self.name)
    }

    /// Returns whether the limit has no name and was made of rule text.
    pub fn is_ad_hoc(&self) -> bool {
        self.is_ad_hoc
    }

    /// Returns the configured rule.
    pub fn rule(&self) -> &Rule {
        &self.config.rule
    }

    /// Returns whether the limit is enforced, in shadow mode, or off.
    pub fn mode(&self) -> Mode {
        self.config.mode
    }

    /// Returns the limit's configuration.
    pub fn config(&self) -> &LimitConfig {
        &self.config
    }

    /// Returns an error if this is a concurrency limit, in whichever mode: a check cannot release a permit.
    pub fn ensure_checkable(&self) -> Result<(), NotCheckable> {
        if self.config.rule.is_concurrency() {
            return Err(NotCheckable { limit: self.name().to_owned() });
        }
        Ok(())
    }

    /// Returns the maximum time that a permit is held, for concurrency rules with a lease.
    pub fn lease(&self) -> Option<Span> {
        self.config.rule.lease()
    }

    /// Returns the limit's state in the store.
    pub fn counters(&self) -> &dyn Counters {
        &*self.counters
    }

    #[inline]
    pub(super) fn store(&self) -> &dyn LimitStore {
        self.counters.store()
    }

    /// Returns how many requests passed because the limit was in shadow mode.
    pub fn shadowed(&self) -> u64 {
        self.shadow.all.load(Ordering::Relaxed)
    }

    /// Returns how many requests would have been denied, had the limit not been in shadow mode.
    pub fn shadow_denied(&self) -> u64 {
        self.shadow.denied.load(Ordering::Relaxed)
    }

    /// Returns how many requests were denied. The number never decreases, though it is the difference of two counters that are
    /// read one after the other: a metrics collector would take a decrease for a restart.
    pub fn denied(&self) -> u64 {
        let denied = self.counters.stats().denied.saturating_sub(self.shadow_denied());
        denied.max(self.shadow.denied_max.fetch_max(denied, Ordering::Relaxed))
    }

    /// Returns the decision as the mode enforces it, and counts it if the limit is in shadow mode.
    pub(super) fn enforce(&self, decision: Decision) -> EffectiveDecision {
        let answer = self.preview(decision);
        if answer.is_shadowed {
            self.shadow.all.fetch_add(1, Ordering::Relaxed);
            let is_denied = u64::from(decision.is_deny());
            self.shadow.denied.fetch_add(is_denied, Ordering::Relaxed);
        }
        answer
    }

    /// Returns the decision as the mode would enforce it, without counting it.
    pub(super) fn preview(&self, decision: Decision) -> EffectiveDecision {
        self.mode().apply(decision)
    }

    /// Returns what the response headers show of this limit; `None` for a limit that is in shadow mode or off.
    pub(crate) fn status(&self, answer: EffectiveDecision) -> Option<LimitStatus<'_>> {
        self.mode().status(self.name(), self.rule(), answer.decision)
    }
}

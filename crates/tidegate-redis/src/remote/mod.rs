//! One limit in Redis: its rule, and the operations on its keys, each one script and one round trip.
//!
//! Invariant  When a request learns of a new rule, the whole limiter adopts it ([`RuleObserver`]): the fallback share, leases
//!            and caches never belong to another rule than the decisions.

mod operations;
pub(crate) mod rule_registry;

use crate::connection::{Deadline, RedisStoreError, ScriptRunner};
use crate::script;
use crate::script::codec::Malformed;
use crate::script::key_name;
use crate::script::stored_value;
use arc_swap::{ArcSwap, ArcSwapOption, Guard};
use redis::Value;
use rule_registry::{CurrentRule, PublishedRule, RegistryRequest};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;
use tidegate::{Decision, Rule};
use tidegate_core::{Limit, Timestamp, Verdict};

/// How often an operation starts over because the rule changed meanwhile.
pub(crate) const ATTEMPTS_MAX: usize = 8;

/// A limit in Redis.
#[derive(Debug)]
pub(crate) struct RemoteLimit {
    runner: Arc<ScriptRunner>,
    name: String,
    /// The rule that this node was configured with.
    configured: ArcSwap<Rule>,
    /// The rule in Redis, once it is known.
    current: ArcSwapOption<CurrentRule>,
    /// The version of that rule; 0 while it is unknown.
    version: AtomicU64,
    /// Held while Redis is asked for the rule: other requests wait for the same answer.
    updating: tokio::sync::Mutex<()>,
    observer: OnceLock<Weak<dyn RuleObserver>>,
    deadline: Duration,
    has_leases: bool,
}

/// Adopts a new rule.
pub(crate) trait RuleObserver: fmt::Debug + Send + Sync {
    fn rule_changed(&self, current: &CurrentRule);
}

impl RemoteLimit {
    pub(crate) fn new(
        runner: Arc<ScriptRunner>,
        name: String,
        rule: Rule,
        deadline: Duration,
        has_leases: bool,
    ) -> Self {
        Self {
            runner,
            name,
            configured: ArcSwap::from_pointee(rule),
            current: ArcSwapOption::empty(),
            version: AtomicU64::new(0),
            updating: tokio::sync::Mutex::default(),
            observer: OnceLock::new(),
            deadline,
            has_leases,
        }
    }

    /// Sets the observer of rule changes, once.
    pub(crate) fn observe(&self, observer: Weak<dyn RuleObserver>) {
        self.observer.set(observer).expect("a limit has one observer");
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the rule in Redis, or the configured one while that is unknown.
    pub(crate) fn rule(&self) -> Rule {
        match &*self.current.load() {
            Some(current) => current.rule.clone(),
            None => Rule::clone(&self.configured.load()),
        }
    }

    /// Returns the decision about a key whose state is unknown, and that is not denied.
    pub(crate) fn unknown_state(&self) -> Decision {
        self.rule().limit().without_state(Verdict::Allow)
    }

    /// Returns the decision of a rule that admits nothing (`0/s`), which needs no state and so no Redis; `None` for every other
    /// rule. Every method that decides calls this first.
    pub(crate) fn zero_rule_decision(&self, cost: u64) -> Option<Decision> {
        let current = self.current.load();
        let configured = current.is_none().then(|| self.configured.load());
        let rule = match (&*current, &configured) {
            (Some(current), _) => &current.rule,
            (None, configured) => &***configured.as_ref()?,
        };
        let (limit, now) = (rule.limit(), Timestamp::EPOCH);
        rule.admits_nothing().then(|| limit.peek(&limit.fresh(now), now, cost))
    }

    /// Returns a guard of the rule in Redis, if it is known.
    pub(crate) fn loaded_rule_guard(&self) -> Guard<Option<Arc<CurrentRule>>> {
        self.current.load()
    }

    /// Returns the rule in Redis, if it is known.
    pub(crate) fn loaded_rule(&self) -> Option<Arc<CurrentRule>> {
        self.current.load_full()
    }

    /// Returns the version of the rule in Redis; 0 while it is unknown.
    pub(crate) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// Returns whether denials may be cached: not for permits, which may be released at any time.
    pub(crate) fn is_denial_lasting(&self) -> bool {
        self.current.load().as_ref().is_some_and(|current| !current.rule.is_concurrency())
    }

    /// Returns the rule in Redis. The first call publishes the configured rule, which is newer than the one in Redis.
    pub(crate) async fn current_rule(
        &self,
        deadline: Deadline,
    ) -> Result<Arc<CurrentRule>, RedisStoreError> {
        if let Some(current) = self.current.load_full() {
            return Ok(current);
        }
        let updating = deadline.bound(self.updating.lock()).await;
        let _updating = updating.ok_or_else(|| self.timed_out())?;
        match self.current.load_full() {
            Some(current) => Ok(current),
            None => self.update_rule(deadline, RegistryRequest::Publish).await,
        }
    }

    /// Reads the rule from Redis, or publishes the configured rule.
    async fn update_rule(
        &self,
        deadline: Deadline,
        request: RegistryRequest,
    ) -> Result<Arc<CurrentRule>, RedisStoreError> {
        let known = self.current.load_full();
        let version = known.as_ref().map_or(0, |known| known.version);
        // A version must be sent with its own text, even if another rule was configured since.
        let (rule, has_leases) = match known.filter(|_| request == RegistryRequest::Read) {
            Some(known) => (known.rule.clone(), known.lending.is_some()),
            None => (Rule::clone(&self.configured.load()), self.has_leases),
        };
        let published = PublishedRule { rule: &rule, has_leases, version };
        let received =
            rule_registry::request(&self.runner, &self.name, &published, request, deadline);
        let received = Arc::new(received.await?);
        // Of concurrent answers the newest stays.
        let _before = self.current.rcu(|known| match known {
            Some(known) if known.version >= received.version => Arc::clone(known),
            _ => Arc::clone(&received),
        });
        let current = self.current.load_full().unwrap_or(received);
        self.version.fetch_max(current.version, Ordering::AcqRel);
        if let Some(observer) = self.observer.get().and_then(Weak::upgrade) {
            observer.rule_changed(&current);
        }
        Ok(current)
    }

    /// Reads the rule from Redis again.
    pub(crate) async fn refresh_rule(&self) -> Result<Arc<CurrentRule>, RedisStoreError> {
        self.update_rule(self.start_deadline(), RegistryRequest::Read).await
    }

    /// Publishes a rule for all nodes.
    pub(crate) async fn publish(&self, rule: &Rule) -> Result<(), RedisStoreError> {
        self.configured.store(Arc::new(rule.clone()));
        if self.current.load().is_some() {
            // If Redis has lost the rule under which its states were written, this restores that rule first.
            self.refresh_rule().await?;
        }
        self.update_rule(self.start_deadline(), RegistryRequest::Publish).await.map(drop)
    }

    /// Handles a state of another version: reads the newer rule from Redis, or converts the state to the current rule.
    pub(crate) async fn reconcile(
        &self,
        deadline: Deadline,
        key: &[u8],
        seen: &[u8],
        current: &CurrentRule,
    ) -> Result<(), RedisStoreError> {
        let Some(version) = stored_value::version(seen) else {
            return Err(self.malformed(format!("the value {seen:?}, which no script has written")));
        };
        if version > current.version {
            let received = self.update_rule(deadline, RegistryRequest::Read).await?;
            if received.version < version {
                // Redis has lost the newer rule, so the current one is the newest again.
                return self.convert(deadline, key, seen, None, current).await;
            }
            return Ok(());
        }
        let old = current.before.get(&version);
        self.convert(deadline, key, seen, old, current).await
    }

    /// Converts the state of a key from an old rule to the current one.
    async fn convert(
        &self,
        deadline: Deadline,
        key: &[u8],
        seen: &[u8],
        old: Option<&Rule>,
        current: &CurrentRule,
    ) -> Result<(), RedisStoreError> {
        let keys = vec![key.to_vec()];
        let now = self.runner.run(&script::TIME, keys.clone(), Vec::new(), deadline).await?;
        let Value::Int(now) = now else {
            return Err(self.malformed(format!("{now:?} for the time")));
        };
        let now = Timestamp::from_micros(now.unsigned_abs());
        let limit: &Limit = current.codec.limit();
        let before =
            old.and_then(|old| Some((old.limit(), stored_value::read(old.limit(), seen)?)));
        let state = match &before {
            // The new rule applies from when it was published, or from the last write under the old rule.
            Some((old, state)) => {
                let published = Timestamp::from_micros(current.version);
                let since = stored_value::written(old, seen)
                    .map_or(published, |written| written.max(published));
                limit.take_over(old, state, since.min(now))
            }
            // The old rule is unknown. Rows of permits can be read without it; any other key counts as exhausted.
            None if current.rule.is_concurrency() => {
                stored_value::read(limit, seen).unwrap_or_else(|| limit.exhausted(now))
            }
            None => limit.exhausted(now),
        };
        let written = stored_value::write(limit, current.version, &state, now);
        let written = written.map_err(|error| self.malformed(error.to_string()))?;
        let (new, lives) = written.unwrap_or_default();
        let lives_ms = lives.as_micros().div_ceil(1_000).to_string().into_bytes();
        let args = vec![seen.to_vec(), new, lives_ms];
        // If another node was faster, nothing is written, and the next attempt reads its state.
        self.runner.run(&script::SWAP, keys, args, deadline).await.map(drop)
    }

    /// Returns whether requests about this subject are sent to Redis now.
    pub(crate) fn is_up(&self, subject: &[u8]) -> bool {
        self.runner.servers.is_up(&self.key(subject))
    }

    /// Returns the key in Redis of a subject.
    pub(crate) fn key(&self, subject: &[u8]) -> Vec<u8> {
        key_name::of(&self.runner.settings.prefix, &self.name, subject)
    }

    pub(crate) fn runner(&self) -> &Arc<ScriptRunner> {
        &self.runner
    }

    pub(crate) fn deadline(&self) -> Duration {
        self.deadline
    }

    /// Starts the deadline of a request: one for everything that is done for it.
    pub(crate) fn start_deadline(&self) -> Deadline {
        Deadline::from(self.deadline)
    }

    /// Returns the error for a request without an answer within the deadline.
    pub(crate) fn timed_out(&self) -> RedisStoreError {
        RedisStoreError::TimedOut { address: self.runner.address(), waited: self.deadline }
    }

    pub(crate) fn unexpected(&self, malformed: &Malformed) -> RedisStoreError {
        self.malformed(malformed.to_string())
    }

    pub(crate) fn malformed(&self, what: String) -> RedisStoreError {
        self.runner.malformed(what)
    }

    /// Returns the error for a rule that changed in every attempt.
    pub(crate) fn changes_too_often(&self) -> RedisStoreError {
        self.malformed(format!("a new version of the rule in each of {ATTEMPTS_MAX} attempts"))
    }
}

//! The engine: every protocol finds limits and decides requests here.
//!
//! Always   A limit is found by its name, or made of rule text. Its mode is applied here and nowhere else: a limit in shadow mode
//!          decides and counts, and the request passes. A reload replaces all limits in one step; counters stay with their name.
//! Always   A check of a concurrency limit is refused before a store is asked: no client would release the permit.
//! Fast     Requests of limits in memory are decided without a boxed future: see [`Reply`](tidegate::store::Reply).

mod lease;
mod limit;
mod limits;
mod publish;
mod rules;
mod snapshot_codec;
#[cfg(test)]
mod tests;

pub use lease::{InvalidLeaseId, Lease, LeaseId, TooManyLeases};
pub use limit::{Limit, NotCheckable};
pub use limits::Limits;
pub use rules::{EvictedCounts, NoSuchLimit};
pub(crate) use rules::{RULES_MAX, at};
pub use tidegate_http::EffectiveDecision;

use crate::clock::ServerClock;
use crate::config::matching::counts_credentials;
use crate::config::{Config, LimitConfig, Mode};
use crate::store::{
    Backend, IdempotencyKey, MemoryBackend, RedisBackend, StoreError, THROTTLES_NAME,
};
use crate::sync::lock;
use arc_swap::ArcSwap;
use lease::Leases;
use std::net::IpAddr;
use std::ops::Deref;
use std::sync::{Arc, Mutex};
use tidegate::snapshot::{Attached, Snapshot};
use tidegate::store::{CheckRequest, ClientId, Joint};
use tidegate::throttle::{Throttle, ThrottleBatch, Throttled};
use tidegate::{Clock as _, Decision, Limiter, Span};
use tidegate_http::ShadowAction;
use tidegate_redis::{Latencies, RedisStore};

/// Finds limits and decides requests.
#[derive(Debug)]
pub struct Engine {
    store: Box<dyn Backend>,
    limits: ArcSwap<Limits>,
    leases: Arc<Leases>,
    clock: ServerClock,
    /// Held while limits are replaced, so that two reloads do not mix.
    reload_lock: Mutex<()>,
    decision_times: Latencies,
}

/// A request to one limit: the key to charge, and the cost.
#[derive(Clone, Copy, Debug)]
pub struct LimitRequest<'a> {
    /// The limit.
    pub limit: &'a Limit,
    /// The key, any bytes.
    pub key: &'a [u8],
    /// The cost.
    pub cost: u64,
}

/// Why a check was not decided.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// The limit is a concurrency limit.
    #[error(transparent)]
    NotCheckable(#[from] NotCheckable),
    /// The store could not decide.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The answer to several requests that were decided together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EffectiveJoint {
    /// The answer to all of them.
    pub all: EffectiveDecision,
    /// The answer to each of them, in the order of the requests.
    pub each: Vec<EffectiveDecision>,
}

impl Engine {
    /// Creates an engine with limits in memory, and restores the snapshot.
    pub fn new(config: &Config, clock: ServerClock, restored: &Snapshot) -> Self {
        let max_keys = config.server.throttle_max_keys;
        let store = MemoryBackend::new(clock.clone(), max_keys, restored);
        Self::over(Box::new(store), config, clock, restored)
    }

    /// Creates an engine with limits in Redis. Its background work runs in the runtime that this is called in.
    pub fn shared(config: &Config, clock: ServerClock, redis: RedisStore) -> Self {
        let store = RedisBackend::new(redis, config, clock.clone());
        Self::over(Box::new(store), config, clock, &Snapshot::default())
    }

    fn over(
        store: Box<dyn Backend>,
        config: &Config,
        clock: ServerClock,
        restored: &Snapshot,
    ) -> Self {
        let limits = Limits::new(config, &*store, &clock, restored);
        let leases = Arc::clone(limits.rules.leases());
        leases.restore(restored, |name| limits.existing(name), &clock);
        Self {
            store,
            limits: ArcSwap::from_pointee(limits),
            leases,
            clock,
            reload_lock: Mutex::new(()),
            decision_times: Latencies::default(),
        }
    }

    /// Returns the limits in force. A later reload does not change the returned ones.
    pub fn limits(&self) -> Arc<Limits> {
        self.limits.load_full()
    }

    /// Returns the limit of this name, or else of this rule text.
    ///
    /// # Errors
    /// If the text is neither, or no limit can be made of it.
    pub fn find(&self, name_or_rule: &str) -> Result<Arc<Limit>, NoSuchLimit> {
        self.by(ClientId::OWN).find(name_or_rule)
    }

    /// Returns the engine for requests of one client.
    pub fn by(&self, client: ClientId) -> ClientEngine<'_> {
        ClientEngine { engine: self, client }
    }

    /// Returns the id of a client with this address, and this token if it has shown a valid one.
    pub fn peer(&self, address: IpAddr, token: Option<&[u8]>) -> ClientId {
        let limiter = self.store.throttles().limiter();
        ClientId::new(|identity| limiter.fingerprint(identity), address, token)
    }

    /// Returns a key as text for people: with escapes, or the digest that stands for a key with a credential in it.
    pub(crate) fn shown_key(&self, limit: &Limit, key: &[u8]) -> String {
        let redacted = self.redacted_key(limit, self.fingerprints(limit).fingerprint(key));
        redacted.unwrap_or_else(|| key.escape_ascii().to_string())
    }

    /// Returns the digest that is shown for the key with this fingerprint, if the limit's keys have credentials in them: 64 bits
    /// under a secret of this server. The empty key of requests without a credential stays as it is.
    pub(crate) fn redacted_key(&self, limit: &Limit, fingerprint: u128) -> Option<String> {
        let is_empty = fingerprint == self.fingerprints(limit).fingerprint(&b""[..]);
        if is_empty || !counts_credentials(limit.config()) {
            return None;
        }
        // Hashed again, because the fingerprint itself says where the key store keeps the key.
        let digest = self.store.throttles().limiter().fingerprint(&fingerprint) >> 64;
        Some(format!("[redacted {digest:016x}]"))
    }

    /// Returns the limiter whose secret makes the fingerprints of a limit's keys.
    fn fingerprints<'a>(&'a self, limit: &'a Limit) -> &'a Limiter<ServerClock> {
        limit.counters().limiter().unwrap_or(self.store.throttles().limiter())
    }

    /// Removes the ad-hoc rule of this text, or all ad-hoc rules, with their state and their permits. Returns the number of rules.
    pub fn clear_ad_hoc_rules(&self, rule: Option<&str>) -> usize {
        self.limits.load().rules.clear(rule)
    }

    /// Sets whether requests may give rules as text.
    pub fn accept_ad_hoc_rules(&self, is_accepting: bool) {
        self.limits.load().rules.set_open(is_accepting);
    }

    /// Returns the server's clock.
    pub fn clock(&self) -> &ServerClock {
        &self.clock
    }

    /// Returns how long decisions took.
    pub fn decision_times(&self) -> &Latencies {
        &self.decision_times
    }

    /// Makes a decision, or several together, and records how long it took.
    #[inline]
    async fn timed<F: Future>(&self, decide: impl FnOnce() -> F) -> F::Output {
        let began = self.clock.now();
        let decided = decide().await;
        self.decision_times.record(self.clock.now().since(began), 1);
        decided
    }

    /// Returns the store of all limits.
    pub fn store(&self) -> &dyn Backend {
        &*self.store
    }

    /// Decides one `CL.THROTTLE`.
    pub async fn throttle(&self, key: &[u8], throttle: &Throttle) -> Throttled {
        self.timed(|| self.store.throttle(key, throttle)).await
    }

    /// Returns an empty batch of `CL.THROTTLE` requests, for a store in memory: decided together, they cost a fifth.
    pub(crate) fn throttle_batch(&self) -> ThrottleBatch<ServerClock> {
        self.store.throttles().batch()
    }

    /// Decides a batch of `CL.THROTTLE` requests, and empties it.
    #[inline]
    pub(crate) fn decide_throttles(
        &self,
        batch: &mut ThrottleBatch<ServerClock>,
        reply: impl FnMut(Throttled),
    ) {
        let (began, count) = (self.clock.now(), batch.len() as u64);
        batch.decide(reply);
        self.decision_times.record(self.clock.now().since(began), count);
    }

    /// Forgets what a `CL.THROTTLE` key has used. Returns whether it had used anything.
    pub async fn reset_throttle(&self, key: &[u8]) -> Result<bool, StoreError> {
        self.store.reset_throttle(key).await
    }

    /// Returns the limiters whose state belongs in a snapshot, with their names there.
    pub fn snapshot_limiters(&self) -> Vec<(String, Limiter<ServerClock>)> {
        let limits = self.limits();
        let unnamed = limits.rules.recently_used();
        let limits = limits.named().iter().chain(&unnamed);
        let limits = limits.filter_map(|limit| {
            let limiter = limit.counters().limiter()?;
            Some((limit.name().to_owned(), limiter.clone()))
        });
        let throttles = self.store.throttles().limiter().clone();
        limits.chain([(THROTTLES_NAME.to_owned(), throttles)]).collect()
    }

    /// Returns what belongs in a snapshot besides the [limiters](Self::snapshot_limiters).
    pub fn attached(&self) -> Vec<Attached> {
        vec![self.limits.load().rules.attached(), self.leases.attached()]
    }

    /// Replaces the limits; those with the same name keep their counters. Servers that share the limits get the rules when they
    /// are [published](Self::publish).
    pub fn reload(&self, limits: &[LimitConfig]) {
        let _reload = lock(&self.reload_lock);
        let limits = self.limits.load().reconfigured(limits, &*self.store);
        self.limits.store(Arc::new(limits));
    }

    /// Publishes the configured rules to the servers that share the limits, if any.
    pub async fn publish(&self) -> Result<(), StoreError> {
        publish::publish(&self.limits()).await
    }

    /// Publishes the configured rules in the background, with retries.
    pub fn publish_soon(&self) {
        if let Some(store) = self.store.shared() {
            store.runtime().spawn(publish::publish_with_retries(self.limits()));
        }
    }

    /// Decides a request, and charges it unless it is denied.
    pub async fn check(&self, request: &LimitRequest<'_>) -> Result<EffectiveDecision, CheckError> {
        let LimitRequest { limit, key, cost } = *request;
        limit.ensure_checkable()?;
        if limit.mode() == Mode::Off {
            return Ok(EffectiveDecision::UNLIMITED);
        }
        let decision = self.timed(|| limit.store().check(key, cost)).await;
        Ok(limit.enforce(decision))
    }

    /// Decides several requests as one: all are charged, or none. Limits that are off or in shadow mode deny no request; those in
    /// shadow mode are charged on their own, as [`ShadowAction`] says.
    #[expect(clippy::missing_panics_doc, reason = "a joint decision has one for each request")]
    pub async fn check_all(
        &self,
        requests: &[LimitRequest<'_>],
    ) -> Result<EffectiveJoint, CheckError> {
        requests.iter().try_for_each(|request| request.limit.ensure_checkable())?;
        let joint = self.timed(|| self.decide_enforced(requests)).await?;
        let mut decisions = joint.each.into_iter();
        let mut all = EffectiveDecision::enforced(joint.decision);
        let mut each = Vec::with_capacity(requests.len());
        for request in requests {
            each.push(match (request.limit.mode(), ShadowAction::after(&joint.decision)) {
                (Mode::Enforce, _) => EffectiveDecision::enforced(
                    decisions.next().expect("there is one for each request"),
                ),
                (Mode::Off, _) => EffectiveDecision::UNLIMITED,
                (Mode::Shadow, ShadowAction::Check) => {
                    let answer = self.check(request).await?;
                    all.is_shadowed |= answer.is_shadowed;
                    answer
                }
                // A peek may fail where a decision does not, and the denial stands without it.
                (Mode::Shadow, ShadowAction::Peek) => {
                    self.peek(request).await.unwrap_or(EffectiveDecision::UNLIMITED)
                }
            });
        }
        Ok(EffectiveJoint { all, each })
    }

    /// Decides the requests to enforced limits together.
    async fn decide_enforced(&self, requests: &[LimitRequest<'_>]) -> Result<Joint, StoreError> {
        let enforced = requests.iter().filter(|request| request.limit.mode() == Mode::Enforce);
        let enforced: Vec<CheckRequest<'_>> = enforced
            .map(|request| CheckRequest {
                limit: request.limit.store(),
                key: request.key,
                cost: request.cost,
                max_wait: Span::MAX,
            })
            .collect();
        match enforced.first() {
            Some(first) => first.limit.check_all(&enforced).await,
            None => Ok(Joint::of(Vec::new())),
        }
    }

    /// Returns what [`check`](Self::check) would decide, without charging.
    pub async fn peek(&self, request: &LimitRequest<'_>) -> Result<EffectiveDecision, StoreError> {
        if request.limit.mode() == Mode::Off {
            return Ok(EffectiveDecision::UNLIMITED);
        }
        Ok(request.limit.preview(self.peek_rule(request).await?))
    }

    /// Returns what the rule would decide in whichever mode the limit is, without charging.
    pub async fn peek_rule(&self, request: &LimitRequest<'_>) -> Result<Decision, StoreError> {
        request.limit.store().peek(request.key, request.cost).await
    }

    /// Returns what the limit's `on_error` would decide if the store did not answer.
    pub fn peek_without_store(&self, request: &LimitRequest<'_>) -> Decision {
        request.limit.store().peek_without_store(request.key, request.cost)
    }

    /// Forgets what a key has used, and the leases of its permits.
    pub async fn reset(&self, limit: &Limit, key: &[u8]) -> Result<(), StoreError> {
        let reset = self.leases.begin_reset(limit, key);
        limit.store().reset(key).await?;
        reset.commit();
        Ok(())
    }

    /// Gives back what was charged, and never more.
    pub async fn refund(&self, request: &LimitRequest<'_>) -> Result<(), StoreError> {
        request.limit.store().refund(request.key, request.cost).await
    }

    /// Releases a permit. Returns `false` if the lease has ended: it was released, has expired, or its key was reset.
    ///
    /// # Errors
    /// If the store did not answer; the release is repeated in the background.
    pub async fn release(&self, lease: LeaseId) -> Result<bool, StoreError> {
        match self.leases.remove(lease, &self.clock) {
            Some(permit) => permit.release().await,
            None => Ok(false),
        }
    }
}

/// The engine for requests of one client, which gets its own [share](tidegate::store::Shares) of what all clients share.
#[derive(Clone, Copy, Debug)]
pub struct ClientEngine<'a> {
    engine: &'a Engine,
    client: ClientId,
}

impl Deref for ClientEngine<'_> {
    type Target = Engine;

    fn deref(&self) -> &Engine {
        self.engine
    }
}

impl ClientEngine<'_> {
    /// Returns the limit of this name, or else of this rule text; see [`Engine::find`].
    pub fn find(&self, name_or_rule: &str) -> Result<Arc<Limit>, NoSuchLimit> {
        self.limits.load().find(name_or_rule, self.client, &*self.store)
    }

    /// Decides a request that its sender may repeat: it is charged once, and its repetitions get the same answer.
    pub async fn check_once(
        &self,
        request: &LimitRequest<'_>,
        id: IdempotencyKey<'_>,
    ) -> Result<EffectiveDecision, CheckError> {
        let LimitRequest { limit, key, cost } = *request;
        limit.ensure_checkable()?;
        if limit.mode() == Mode::Off {
            return Ok(EffectiveDecision::UNLIMITED);
        }
        let decide = || limit.store().check_once(key, cost, id, self.client);
        Ok(limit.enforce(self.timed(decide).await?))
    }

    /// Acquires a permit of a concurrency limit, which is held until it is released or its lease ends; or returns the denial.
    ///
    /// # Errors
    /// If there are too many leases.
    pub async fn acquire(
        &self,
        request: &LimitRequest<'_>,
    ) -> Result<Result<Lease, EffectiveDecision>, TooManyLeases> {
        let LimitRequest { limit, key, cost } = *request;
        let unlimited = || self.leases.without_permit(Decision::UNLIMITED);
        if limit.mode() == Mode::Off {
            return Ok(Ok(unlimited()));
        }
        self.leases.release_ended(&self.clock);
        let acquired = self.timed(|| limit.store().acquire(key, cost, Span::ZERO)).await;
        match acquired {
            Ok(permit) if cost == 0 => Ok(Ok(self.leases.without_permit(permit.decision()))),
            Ok(permit) => self.leases.add((limit, key), permit, self.client, &self.clock).map(Ok),
            Err(denied) => Ok(match limit.enforce(denied.decision) {
                answer if answer.is_shadowed => Ok(unlimited()),
                answer => Err(answer),
            }),
        }
    }
}

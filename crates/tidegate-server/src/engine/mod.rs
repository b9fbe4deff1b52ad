//! The one place that every wire asks.
//!
//! Always   A limit is found by its name, or made of rule text. Its mode is applied here and nowhere else: a
//!          limit in the shadow decides and counts, and the caller passes. A reload puts other limits in
//!          place in one step; counters stay with their name.
//! Always   A check never takes a place among those in flight: nobody would say when to give it back. Memory would
//!          give it back at once and Redis at the end of its lease, so it is refused here, before a store is asked.

mod attached;
mod lease;
mod limit;
mod limits;
mod publish;
mod rules;
#[cfg(test)]
mod tests;

pub use lease::{Lease, LeaseId, NoLease};
pub use limit::{InFlight, Limit};
pub(crate) use limits::at;
pub use limits::{Limits, NoSuchLimit};
pub(crate) use rules::RULES_MAX;
/// What a wire has to say.
pub use tidegate_http::EffectiveDecision as Answer;

use crate::clock::ServerClock;
use crate::config::{Config, LimitConfig, Mode};
use crate::matching::counts_credentials;
use crate::store::{self, IdempotencyKey, Key, Store, StoreError};
use arc_swap::ArcSwap;
use lease::Leases;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use tidegate::snapshot::{Attached, Snapshot};
use tidegate::store::ClientId;
use tidegate::throttle::{Throttle, Throttled, Throttles};
use tidegate::{Clock as _, Decision, Limiter};
use tidegate_http::ShadowAction;
use tidegate_redis::{Latencies, RedisStore};

/// What wires ask.
#[derive(Debug)]
pub struct Engine {
    store: Store,
    limits: ArcSwap<Limits>,
    leases: Arc<Leases>,
    clock: ServerClock,
    /// Held while limits are put in place, so that two reloads do not mix.
    changing: Mutex<()>,
    decision_times: Latencies,
}

/// One question: how much, for whom, under which limit.
#[derive(Clone, Copy, Debug)]
pub struct Ask<'a> {
    /// The limit.
    pub limit: &'a Limit,
    /// Whom it counts. Any bytes.
    pub key: Key<'a>,
    /// How much.
    pub cost: u64,
}

/// Why a check was not decided.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// It takes more than a check to ask this limit.
    #[error(transparent)]
    InFlight(#[from] InFlight),
    /// The store did not.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// What a wire has to say to several questions that were one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JointAnswer {
    /// All of them together.
    pub all: Answer,
    /// Each of them, in the order asked.
    pub each: Vec<Answer>,
}

impl Engine {
    /// An engine with these limits, in memory; what the snapshot knows comes back.
    pub fn new(config: &Config, clock: ServerClock, restored: &Snapshot) -> Self {
        let store = Store::memory(clock.clone(), config.server.throttle_max_keys, restored);
        Self::over(store, config, clock, restored)
    }

    /// The same with limits in Redis, which others share. What it does in the background, it does in the runtime
    /// that this is called in.
    pub fn shared(config: &Config, clock: ServerClock, redis: RedisStore) -> Self {
        let store = Store::redis(redis, config, clock.clone());
        Self::over(store, config, clock, &Snapshot::default())
    }

    fn over(store: Store, config: &Config, clock: ServerClock, restored: &Snapshot) -> Self {
        let limits = Limits::new(config, &store, &clock, restored);
        let leases = Arc::clone(limits.leases());
        leases.restore(restored, |name| limits.known(name), &clock);
        Self {
            store,
            limits: ArcSwap::from_pointee(limits),
            leases,
            clock,
            changing: Mutex::new(()),
            decision_times: Latencies::default(),
        }
    }

    /// The limits as they stand. A reload does not change what was handed out.
    pub fn limits(&self) -> Arc<Limits> {
        self.limits.load_full()
    }

    /// The limit of this name or, if there is none, of this rule text.
    pub fn find(&self, name_or_rule: &str) -> Result<Arc<Limit>, NoSuchLimit> {
        self.by(ClientId::OWN).find(name_or_rule)
    }

    /// The engine as this peer asks it.
    pub fn by(&self, peer: ClientId) -> PeerEngine<'_> {
        PeerEngine { engine: self, peer }
    }

    /// The id of a peer that comes from this address, and may have shown a token that is good.
    pub fn peer(&self, address: IpAddr, token: Option<&[u8]>) -> ClientId {
        ClientId::new(|identity| self.throttles().limiter().fingerprint(identity), address, token)
    }

    /// Returns a key as text for people: with escapes, or the digest that stands for a key with a credential in it.
    pub(crate) fn shown_key(&self, limit: &Limit, key: &[u8]) -> String {
        let redacted = self.redacted_key(limit, self.secret_of(limit).fingerprint(&Key(key)));
        redacted.unwrap_or_else(|| key.escape_ascii().to_string())
    }

    /// Returns the digest that is shown for the key with this fingerprint, if the limit's keys have credentials in them: 64 bits
    /// under a secret of this server. The empty key of requests without a credential stays as it is.
    pub(crate) fn redacted_key(&self, limit: &Limit, fingerprint: u128) -> Option<String> {
        let is_empty = fingerprint == self.secret_of(limit).fingerprint(&Key(b""));
        if is_empty || !counts_credentials(limit.config()) {
            return None;
        }
        // Hashed again, because the fingerprint itself says where the table keeps the key.
        let digest = self.throttles().limiter().fingerprint(&fingerprint) >> 64;
        Some(format!("[redacted {digest:016x}]"))
    }

    /// The limiter whose secret makes the fingerprints of a limit's keys.
    fn secret_of<'a>(&'a self, limit: &'a Limit) -> &'a Limiter<ServerClock> {
        limit.counters().limiter().unwrap_or(self.throttles().limiter())
    }

    /// Forgets the rule without a name that is written like this, or all of them, with what is owed under them and the places
    /// that are held under them. Tells how many.
    pub fn clear_ad_hoc_rules(&self, rule: Option<&str>) -> usize {
        self.limits.load().clear_unnamed(rule)
    }

    /// Whether rules without a name are taken from those who ask, from now on.
    pub fn take_ad_hoc_rules(&self, are_taken: bool) {
        self.limits.load().take_ad_hoc_rules(are_taken);
    }

    /// What a snapshot has besides what [is remembered](Self::remembered).
    pub fn attached(&self) -> Vec<Attached> {
        vec![self.limits.load().attached(), self.leases.attached()]
    }

    /// The server's clock.
    pub fn clock(&self) -> &ServerClock {
        &self.clock
    }

    /// How long decisions took, from the question to its answer.
    pub fn decision_times(&self) -> &Latencies {
        &self.decision_times
    }

    /// Makes a decision, or several together, and records how long it took.
    #[inline]
    async fn timed<T>(&self, deciding: impl Future<Output = T>) -> T {
        let began = self.clock.now();
        let decided = deciding.await;
        self.decision_times.record(self.clock.now().since(began), 1);
        decided
    }

    /// Where it counts.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Keys whose rate comes with each request, as far as they are in this process: `CL.THROTTLE`.
    pub fn throttles(&self) -> &Throttles<ServerClock> {
        self.store.throttles()
    }

    /// Decides about a key whose rate comes with the request.
    pub async fn throttle(&self, key: Key<'_>, throttle: &Throttle) -> Throttled {
        self.timed(self.store.throttle(key, throttle)).await
    }

    /// Forgets what such a key owes. Tells whether it owed anything.
    pub async fn forget_throttled(&self, key: Key<'_>) -> Result<bool, StoreError> {
        self.store.forget_throttled(key).await
    }

    /// All that has debts in this process, each with the name that a snapshot keeps it under.
    pub fn remembered(&self) -> Vec<(String, Limiter<ServerClock>)> {
        let limits = self.limits();
        let unnamed = limits.unnamed_to_keep();
        let limits = limits.named().iter().chain(&unnamed);
        let limits = limits.filter_map(|limit| {
            let limiter = limit.counters().limiter()?;
            Some((limit.name().to_owned(), limiter.clone()))
        });
        let throttles = (store::THROTTLES_NAME.to_owned(), self.throttles().limiter().clone());
        limits.chain([throttles]).collect()
    }

    /// Puts other limits in place: those of the same name keep their counters. Others who share them hear of it
    /// when it is [published](Self::publish).
    pub fn reload(&self, limits: &[LimitConfig]) {
        let _alone = self.alone();
        let changed = self.limits.load().changed(limits, &self.store);
        self.limits.store(Arc::new(changed));
    }

    /// Has all who share the limits go by the rules that this server was told. In memory there is nobody to tell.
    pub async fn publish(&self) -> Result<(), StoreError> {
        publish::publish(&self.limits()).await
    }

    /// The same in the background, as often as it takes.
    pub fn publish_soon(&self) {
        if let Some(background) = self.store.background() {
            background.spawn(publish::publish_in_the_end(self.limits()));
        }
    }

    fn alone(&self) -> MutexGuard<'_, ()> {
        self.changing.lock().expect("nobody panics while changing limits")
    }

    /// Decides, and charges unless it denies.
    pub async fn check(&self, ask: &Ask<'_>) -> Result<Answer, CheckError> {
        ask.limit.refuse_in_flight()?;
        if ask.limit.mode() == Mode::Off {
            return Ok(Answer::UNLIMITED);
        }
        let decision = self.timed(self.store.decide(&ask.stored())).await?;
        Ok(ask.limit.answer(decision))
    }

    /// The same for a request that may be sent twice: charged once, and told the same.
    pub async fn check_once(
        &self,
        ask: &Ask<'_>,
        id: IdempotencyKey<'_>,
    ) -> Result<Answer, CheckError> {
        self.by(ClientId::OWN).check_once(ask, id).await
    }

    async fn check_once_for(
        &self,
        peer: ClientId,
        ask: &Ask<'_>,
        id: IdempotencyKey<'_>,
    ) -> Result<Answer, CheckError> {
        ask.limit.refuse_in_flight()?;
        if ask.limit.mode() == Mode::Off {
            return Ok(Answer::UNLIMITED);
        }
        let decision = self.timed(self.store.decide_once(&ask.stored(), id, peer)).await?;
        Ok(ask.limit.answer(decision))
    }

    /// Decides all of them as one: all are charged, or none. Limits that are off or in the shadow stop
    /// nobody; those in the shadow are charged on their own, as [`ShadowAction`] says.
    pub async fn check_all(&self, asks: &[Ask<'_>]) -> Result<JointAnswer, CheckError> {
        asks.iter().try_for_each(|ask| ask.limit.refuse_in_flight())?;
        let of_mode = |mode| move |(_, ask): &(usize, &Ask<'_>)| ask.limit.mode() == mode;
        let mut each = vec![Answer::UNLIMITED; asks.len()];
        let (places, enforced): (Vec<usize>, Vec<store::Ask<'_>>) = asks
            .iter()
            .enumerate()
            .filter(of_mode(Mode::Enforce))
            .map(|(place, ask)| (place, ask.stored()))
            .unzip();
        let joint = self.timed(self.store.decide_all(&enforced)).await?;
        for (place, decision) in places.into_iter().zip(&joint.each) {
            each[place] = Answer::enforced(*decision);
        }
        let mut all = Answer::enforced(joint.decision);
        for (place, ask) in asks.iter().enumerate().filter(of_mode(Mode::Shadow)) {
            match ShadowAction::after(&joint.decision) {
                ShadowAction::Check => {
                    each[place] = self.check(ask).await?;
                    all.is_shadowed |= each[place].is_shadowed;
                }
                // A look may fail where a decision does not, and a denial stands without it.
                ShadowAction::Peek => {
                    each[place] = self.peek(ask).await.unwrap_or(Answer::UNLIMITED);
                }
            }
        }
        Ok(JointAnswer { all, each })
    }

    /// What [`check`](Self::check) would say, without charging.
    pub async fn peek(&self, ask: &Ask<'_>) -> Result<Answer, StoreError> {
        if ask.limit.mode() == Mode::Off {
            return Ok(Answer::UNLIMITED);
        }
        Ok(ask.limit.seen(self.look(ask).await?))
    }

    /// What the rule would say, whether the limit is obeyed or not, without charging.
    pub async fn look(&self, ask: &Ask<'_>) -> Result<Decision, StoreError> {
        self.store.peek(&ask.stored()).await
    }

    /// What the rule would say if the store did not answer, by the limit's `on_error`.
    pub fn look_without_store(&self, ask: &Ask<'_>) -> Decision {
        self.store.peek_without(&ask.stored())
    }

    /// Forgets what a key has used, and who holds its places.
    pub async fn reset(&self, limit: &Limit, key: Key<'_>) -> Result<(), StoreError> {
        let forgetting = self.leases.forget(limit, key);
        self.store.reset(limit.counters(), key).await?;
        forgetting.done();
        Ok(())
    }

    /// Gives back what was charged, and never more.
    pub async fn refund(&self, ask: &Ask<'_>) -> Result<(), StoreError> {
        self.store.refund(&ask.stored()).await
    }

    /// Takes a place under a concurrency limit, for as long as the lease.
    pub async fn acquire(&self, ask: &Ask<'_>) -> Result<Result<Lease, Answer>, StoreError> {
        self.by(ClientId::OWN).acquire(ask).await
    }

    async fn acquire_for(
        &self,
        peer: ClientId,
        ask: &Ask<'_>,
    ) -> Result<Result<Lease, Answer>, StoreError> {
        if ask.limit.mode() == Mode::Off {
            return Ok(Ok(self.leases.nothing()));
        }
        self.leases.end(&self.clock);
        let acquired = self.timed(self.store.acquire(&ask.stored())).await?;
        Ok(match acquired {
            Ok(permit) if ask.cost == 0 => Ok(self.leases.free(permit.decision())),
            Ok(permit) => {
                let lease = self.leases.keep((ask.limit, ask.key), permit, peer, &self.clock);
                Ok(lease.ok_or(StoreError::TooManyLeases { max: Leases::max(ask.limit) })?)
            }
            Err(decision) => match ask.limit.answer(decision) {
                answer if answer.is_shadowed => Ok(self.leases.nothing()),
                answer => Err(answer),
            },
        })
    }

    /// Gives a place back. `false` if nobody has it: it was given back before, the lease ran out, or it was reset. An error, if the
    /// store has yet to hear of it.
    pub async fn release(&self, lease: LeaseId) -> Result<bool, StoreError> {
        match self.leases.take(lease, &self.clock) {
            Some(permit) => permit.release().await,
            None => Ok(false),
        }
    }
}

/// The engine as one peer asks it: of what all peers share, it takes from its own [share](tidegate::store::Shares).
#[derive(Clone, Copy, Debug)]
pub struct PeerEngine<'a> {
    engine: &'a Engine,
    peer: ClientId,
}

impl std::ops::Deref for PeerEngine<'_> {
    type Target = Engine;

    fn deref(&self) -> &Engine {
        self.engine
    }
}

impl PeerEngine<'_> {
    /// See [`Engine::find`].
    pub fn find(&self, name_or_rule: &str) -> Result<Arc<Limit>, NoSuchLimit> {
        self.engine.limits.load().find(name_or_rule, self.peer, &self.engine.store)
    }

    /// See [`Engine::check_once`].
    pub async fn check_once(
        &self,
        ask: &Ask<'_>,
        id: IdempotencyKey<'_>,
    ) -> Result<Answer, CheckError> {
        self.engine.check_once_for(self.peer, ask, id).await
    }

    /// See [`Engine::acquire`].
    pub async fn acquire(&self, ask: &Ask<'_>) -> Result<Result<Lease, Answer>, StoreError> {
        self.engine.acquire_for(self.peer, ask).await
    }
}

impl Ask<'_> {
    fn stored(&self) -> store::Ask<'_> {
        store::Ask { counters: self.limit.counters(), key: self.key, cost: self.cost }
    }
}

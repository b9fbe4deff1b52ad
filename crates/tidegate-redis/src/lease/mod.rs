//! Leases (B2): a node reserves quota of a key in Redis, and then decides requests about that key in memory.
//!
//! Invariant  Zero over-admission. A lease is charged in Redis before it is used (`lua/driver/lend.lua`). Unused leases are at
//!            most half of the limit, and the rule in Redis has that much less burst (`tidegate_core::LeaseTerms`). A lease
//!            ends on the node before it ends in Redis (`balance.rs`), and at the end of its window. What a killed node has
//!            reserved stays charged.
//! Invariant  When a node starts, and when a primary was replaced or restarted, no lease is used until all leases that Redis
//!            may have forgotten have ended (`cooldown.rs`).
//! Invariant  Requests about a key that wait for the same lease share its outcome, also if it is a denial or an error. None
//!            waits longer than its deadline; the lease request itself continues for the others (`refill.rs`).
//! Invariant  While too much is leased, or a cluster slot is being moved, requests are decided in Redis, one round trip each.
//! Bound      Leases of at most half of the limit, for at most [`LEASE_TIME`]; [`KEYS_MAX`] keys of [`KEY_BYTES_MAX`] bytes.

mod balance;
mod codec;
mod cooldown;
#[cfg(test)]
mod failover_tests;
#[cfg(test)]
mod lend_script_tests;
mod refill;
#[cfg(test)]
mod script_model;
#[cfg(test)]
mod simulation_tests;

use crate::cache::{DenialCache, SentAt};
use crate::connection::{Deadline, RedisStoreError};
use crate::fallback::{Fallback, limit_of};
use crate::remote::RemoteLimit;
use crate::remote::rule_registry::CurrentRule;
use crate::script::codec::{Operation, ScriptDecision};
use crate::sync::Mutex;
use balance::{LeaseBalance, LeaseRequest, Micros};
use codec::LendTerms;
use cooldown::Cooldown;
use refill::{Refill, RefillResult};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tidegate::{Clock, Decision, SystemClock};
use tidegate_core::Span;
use tokio::sync::Notify;

/// How long a lease lasts: at most one second, since `lend.lua` keeps the list of leases that much longer than the last one.
pub(crate) const LEASE_TIME: Duration = Duration::from_secs(1);
/// The interval between two searches for leases that are not used.
pub(crate) const SWEEP_INTERVAL: Duration = Duration::from_millis(250);
/// Further keys, and longer ones, are decided in Redis.
const KEYS_MAX: usize = 1 << 16;
const KEY_BYTES_MAX: usize = 512;

/// The leases of one limit on this node.
#[derive(Debug)]
pub(crate) struct Leases {
    remote: Arc<RemoteLimit>,
    fallback: Arc<Fallback>,
    denial_cache: Arc<DenialCache>,
    /// The most that the rule admits at once.
    limit: AtomicU64,
    /// The version of the rule under which the leases were granted.
    version: AtomicU64,
    keys: Mutex<HashMap<Box<[u8]>, Arc<LeasedKey>>>,
    clock: SystemClock,
    cooldown: Mutex<Cooldown>,
    lent: AtomicU64,
    returned: AtomicU64,
}

/// The leases of one key.
#[derive(Debug)]
struct LeasedKey {
    balance: Mutex<LeaseBalance>,
    replied: Arc<Notify>,
    /// The reply to the last request for a lease, for the requests that wait for `replied`.
    reply: Mutex<LeaseReply>,
}

/// The reply to a request for a lease.
#[derive(Clone, Debug)]
enum LeaseReply {
    /// A lease was granted, or there was no reply: waiting requests try again.
    TryAgain,
    /// Nothing was granted, and this was the state of the key.
    NothingLent(VersionedDecision, SentAt),
    Failed(RedisStoreError),
}

/// The decision of a script, and the version of the rule under which it was made.
#[derive(Clone, Debug)]
pub(crate) struct VersionedDecision {
    pub(crate) decision: ScriptDecision,
    pub(crate) version: u64,
}

/// A cost that was spent from a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Spent {
    pub(crate) remaining: u64,
    /// Whether the caller should request the next lease.
    pub(crate) is_low: bool,
}

/// The decision about a request for which a lease was requested.
pub(crate) enum LeaseDecision {
    Admitted(Decision),
    /// Redis denies the request, by this answer.
    Denied(Decision, Option<VersionedDecision>),
    /// There is no lease now: Redis decides.
    AskRedis,
}

enum RefillStart {
    AskRedis,
    Spent(u64),
    /// Another request for a lease is in progress.
    Wait(Arc<LeasedKey>, tokio::sync::futures::OwnedNotified),
    Request(Arc<LeasedKey>, LeaseRequest),
}

impl Leases {
    pub(crate) fn new(
        remote: Arc<RemoteLimit>,
        fallback: Arc<Fallback>,
        denial_cache: Arc<DenialCache>,
    ) -> Self {
        let limit = AtomicU64::new(limit_of(&remote.rule()));
        Self {
            remote,
            fallback,
            denial_cache,
            limit,
            version: AtomicU64::new(0),
            keys: Mutex::default(),
            clock: SystemClock::new(),
            cooldown: Mutex::default(),
            lent: AtomicU64::new(0),
            returned: AtomicU64::new(0),
        }
    }

    /// Returns how much this node has reserved in leases, and how much of it the node has returned.
    pub(crate) fn lent(&self) -> (u64, u64) {
        (self.lent.load(Ordering::Relaxed), self.returned.load(Ordering::Relaxed))
    }

    fn now(&self) -> Micros {
        self.clock.now().as_micros()
    }

    /// Spends from a lease, if one suffices.
    pub(crate) fn spend(&self, key: &[u8], cost: u64) -> Option<Spent> {
        let leased = self.find(key)?;
        let now = self.now();
        let mut balance = leased.balance.lock();
        if !balance.spend(now, cost) {
            return None;
        }
        let remaining = balance.remaining(now);
        Some(Spent { remaining, is_low: balance.reports_low(remaining) })
    }

    fn find(&self, key: &[u8]) -> Option<Arc<LeasedKey>> {
        self.keys.lock().get(key).cloned()
    }

    /// Returns the decision about a request that was spent from a lease.
    pub(crate) fn admitted(&self, remaining: u64) -> Decision {
        let mut decision = Decision::UNLIMITED;
        (decision.limit, decision.remaining) = (self.limit.load(Ordering::Relaxed), remaining);
        decision.reset_after = Span::from(LEASE_TIME);
        decision
    }

    /// Requests a lease and spends from it, or waits for the reply to an earlier request.
    pub(crate) async fn refill(
        self: &Arc<Self>,
        key: &[u8],
        cost: u64,
        sent: SentAt,
        deadline: Deadline,
    ) -> Result<LeaseDecision, RedisStoreError> {
        if cost == 0 || key.len() > KEY_BYTES_MAX {
            return Ok(LeaseDecision::AskRedis);
        }
        let current = self.current_rule(deadline).await?;
        let leased_max = current.lending.as_ref().map_or(0, |lending| lending.leased_max);
        if cost > leased_max {
            return Ok(LeaseDecision::AskRedis);
        }
        loop {
            // Checked in every turn: the primary may have changed while this request waited.
            if self.is_cooling_down() {
                return Ok(LeaseDecision::AskRedis);
            }
            match self.start_refill(key, cost, leased_max) {
                RefillStart::AskRedis => return Ok(LeaseDecision::AskRedis),
                RefillStart::Spent(remaining) => {
                    return Ok(LeaseDecision::Admitted(self.admitted(remaining)));
                }
                RefillStart::Wait(leased, replied) => {
                    let replied = deadline.bound(replied).await;
                    replied.ok_or_else(|| self.remote.timed_out())?;
                    let reply = leased.reply.lock().clone();
                    if let Some(decision) = self.shared_reply(&current, reply, cost)? {
                        return Ok(decision);
                    }
                }
                RefillStart::Request(leased, request) => {
                    let refill = Refill::new(self, key, cost, leased, request, sent);
                    let mut refilled = Box::pin(refill.run());
                    let Some(result) = deadline.bound(&mut refilled).await else {
                        // Other requests still wait for the reply.
                        self.remote.runner().runtime.spawn(refilled);
                        return Err(self.remote.timed_out());
                    };
                    return Ok(self.decision(result?));
                }
            }
        }
    }

    /// Requests the next lease while the current one is still being spent.
    pub(crate) async fn prefetch(self: &Arc<Self>, key: &[u8]) {
        // A lease must not cover a debt that Redis does not know of: Redis and the share decide about this key.
        if self.is_cooling_down() || self.fallback.is_recovering(key) {
            return;
        }
        let deadline = self.remote.start_deadline();
        let Ok(current) = self.current_rule(deadline).await else { return };
        let Some(lending) = &current.lending else { return };
        let Some(leased) = self.find(key) else { return };
        let request = {
            let now = self.now();
            let mut balance = leased.balance.lock();
            if !balance.is_low(balance.remaining(now)) || balance.is_paused(now) {
                return;
            }
            balance.request(now, 1, size_max(lending.leased_max))
        };
        let refill = Refill::new(self, key, 0, leased, request, self.denial_cache.now());
        if let Err(error) = refill.run().await {
            tracing::debug!("the next lease was not requested: {error}");
        }
    }

    /// Returns the rule in Redis. Leases of another rule are dropped.
    async fn current_rule(&self, deadline: Deadline) -> Result<Arc<CurrentRule>, RedisStoreError> {
        let current = self.remote.current_rule(deadline).await?;
        if self.version.swap(current.version, Ordering::AcqRel) != current.version {
            self.limit.store(limit_of(&current.rule), Ordering::Relaxed);
            self.forget_all();
        }
        Ok(current)
    }

    fn start_refill(&self, key: &[u8], cost: u64, leased_max: u64) -> RefillStart {
        let now = self.now();
        let Some(leased) = self.find_or_insert(key, now) else { return RefillStart::AskRedis };
        let mut balance = leased.balance.lock();
        if balance.spend(now, cost) {
            return RefillStart::Spent(balance.remaining(now));
        }
        if balance.is_requested() {
            // Registered while the lock is held, so that the reply is not missed.
            balance.add_waiter(cost);
            let replied = Arc::clone(&leased.replied).notified_owned();
            drop(balance);
            return RefillStart::Wait(leased, replied);
        }
        if balance.is_paused(now) {
            return RefillStart::AskRedis;
        }
        let request = balance.request(now, cost, size_max(leased_max));
        drop(balance);
        RefillStart::Request(leased, request)
    }

    fn find_or_insert(&self, key: &[u8], now: Micros) -> Option<Arc<LeasedKey>> {
        let mut keys = self.keys.lock();
        if let Some(leased) = keys.get(key) {
            return Some(Arc::clone(leased));
        }
        if keys.len() >= KEYS_MAX {
            return None;
        }
        let balance = Mutex::new(LeaseBalance::new(now));
        let reply = Mutex::new(LeaseReply::TryAgain);
        let leased = Arc::new(LeasedKey { balance, replied: Arc::new(Notify::new()), reply });
        keys.insert(key.into(), Arc::clone(&leased));
        Some(leased)
    }

    fn decision(&self, result: RefillResult) -> LeaseDecision {
        match result {
            RefillResult::Spent(remaining) => LeaseDecision::Admitted(self.admitted(remaining)),
            RefillResult::Denied(decision, answer) if decision.is_deny() => {
                LeaseDecision::Denied(decision, answer)
            }
            // The key has quota remaining, but no lease was granted, or it must not be used.
            RefillResult::Denied(..) | RefillResult::NoLease => LeaseDecision::AskRedis,
        }
    }

    /// Returns the decision for a request that waited for the reply to another; `None` if it must try again.
    fn shared_reply(
        &self,
        current: &CurrentRule,
        reply: LeaseReply,
        cost: u64,
    ) -> Result<Option<LeaseDecision>, RedisStoreError> {
        let (answer, sent) = match reply {
            LeaseReply::TryAgain => return Ok(None),
            LeaseReply::Failed(error) => return Err(error),
            LeaseReply::NothingLent(answer, sent) => (answer, sent),
        };
        // The reply may be older than this request, and the key may have been refunded in between.
        if answer.version != current.version || self.denial_cache.has_forgotten_since(sent) {
            return Ok(Some(LeaseDecision::AskRedis));
        }
        let decision = current.codec.decision(&answer.decision, Operation::Peek, cost);
        let decision = decision.map_err(|malformed| self.remote.unexpected(&malformed))?;
        // The request that got the reply puts it into the cache.
        let denied = decision.is_deny().then_some(LeaseDecision::Denied(decision, None));
        Ok(Some(denied.unwrap_or(LeaseDecision::AskRedis)))
    }

    /// Returns whether leases may be in use of which Redis does not know.
    fn is_cooling_down(&self) -> bool {
        let changes = self.remote.runner().servers.changes();
        self.cooldown.lock().is_on(changes, self.now())
    }

    /// Returns leases that are not used, and removes keys whose leases have ended.
    pub(crate) async fn sweep(&self) {
        let (now, version) = (self.now(), self.remote.version());
        let idle = Span::from(SWEEP_INTERVAL).as_micros();
        let forgotten_after = 4 * Span::from(LEASE_TIME).as_micros();
        let mut requests: Vec<(Box<[u8]>, LeaseRequest)> = Vec::new();
        self.keys.lock().retain(|key, leased| {
            let mut balance = leased.balance.lock();
            let unused = now.saturating_sub(balance.last_spent());
            if !balance.is_requested() && unused >= idle {
                requests.extend(balance.return_all(now).map(|request| (key.clone(), request)));
            }
            !balance.is_expired(now) || unused < forgotten_after
        });
        for (key, request) in requests {
            if self.remote.version() != version {
                // A lease of an old rule was charged in other units: it is left to expire.
                return;
            }
            let unused: u64 = request.closed.iter().map(|closed| closed.unused).sum();
            let terms = LendTerms { number: 0, at_least: 0 };
            match self.remote.lend(&key, &terms, &request).await {
                Ok(_) => {
                    self.denial_cache.forget(&key);
                    self.returned.fetch_add(unused, Ordering::Relaxed);
                }
                // The lease expires in Redis.
                Err(error) => tracing::debug!("a lease is not returned: {error}"),
            }
        }
    }

    /// Returns whether there is no lease, and none is requested.
    pub(crate) fn is_empty(&self) -> bool {
        self.keys.lock().is_empty()
    }

    /// Drops all leases: the rule has changed.
    pub(crate) fn forget_all(&self) {
        self.keys.lock().clear();
    }

    /// Drops the leases of a key.
    pub(crate) fn forget(&self, key: &[u8]) {
        self.keys.lock().remove(key);
    }
}

/// Returns the largest lease of one node, which leaves something for others.
fn size_max(leased_max: u64) -> u64 {
    (leased_max / 2).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{RedisLimiter, RedisStore, Settings};
    use tidegate_testbed::RedisServer;
    use tokio::time::sleep;

    /// Returns a limiter with leases after the cooldown of a new node.
    async fn limiter_with_leases(server: &RedisServer, name: &str) -> RedisLimiter {
        let address = server.url().parse().expect("it is an address");
        let settings = Settings::default().deadline(Duration::from_secs(20));
        let store = RedisStore::connect_with(&address, settings).await;
        let rule = "100/h burst 100".parse().expect("it is a rule");
        let limiter = store.builder(name, rule).lease(true).build().expect("Redis can count it");
        for probe in 0_u64.. {
            let _ = limiter.check(probe.to_le_bytes()).await;
            if limiter.stats().lent > 0 {
                break;
            }
            sleep(Duration::from_millis(10)).await;
        }
        while limiter.stats().returned == 0 {
            sleep(Duration::from_millis(10)).await;
        }
        limiter
    }

    #[tokio::test]
    async fn a_request_that_was_denied_because_of_a_lease_is_admitted_once_the_lease_is_returned() {
        let server = RedisServer::start();
        for attempt in 0.. {
            let limiter = limiter_with_leases(&server, &attempt.to_string()).await;
            let _ = limiter.check("key").await;
            let has_returned = limiter.stats().returned;
            // Redis itself has 50, less the lease.
            if limiter.check_n("key", 45).await.is_allow() {
                continue; // On a busy machine the lease may have been returned already.
            }
            while limiter.stats().returned == has_returned {
                sleep(Duration::from_millis(10)).await;
            }
            assert!(limiter.check_n("key", 45).await.is_allow(), "the lease is returned");
            return;
        }
    }
}

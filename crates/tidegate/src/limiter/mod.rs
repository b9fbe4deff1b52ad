//! Limiters by key: a separate count for each user, address or API key.

mod builder;
mod limit_store;

pub use crate::store::memory::{Batch, Overflow};
pub use builder::Builder;

use crate::clock::{Clock, SystemClock};
use crate::request::Request;
use crate::rule::Rule;
use crate::store::Target;
use crate::store::memory::MemoryStore;
use crate::store::{
    Audit, ClientId, IdempotencyKey, IdempotentRequest, KeyName, PermitRecord, Stats, StoreError,
    Top,
};
use crate::sync::Arc;
use crate::wait::{Acquire, Permit, Reservation};
use std::fmt;
use std::hash::Hash;
use tidegate_core::{Decision, Denied, Span, Window};

/// A limiter by key: it counts each user, address or API key separately.
///
/// Every type that can be hashed can be a key; equal values of the same type are the same key. Keys are stored as 128-bit
/// fingerprints with a secret, so a long key takes no more memory than a short one, and clients cannot choose keys that
/// collide. Keys that have recovered are evicted.
///
/// Clones share their state.
///
/// ```
/// use tidegate::Limiter;
///
/// let limiter = Limiter::new("100/s burst 20".parse()?);
/// let decision = limiter.check("alice");
/// assert!(decision.is_allow());
/// assert_eq!(decision.remaining, 19);
/// assert_eq!(limiter.check("bob").remaining, 19, "each key has its own limit");
/// # Ok::<(), tidegate::RuleError>(())
/// ```
pub struct Limiter<C: Clock = SystemClock> {
    pub(crate) store: Arc<MemoryStore<C>>,
}

impl Limiter {
    /// Starts a limiter with more options than its rule, such as the number of keys.
    pub fn builder(rule: Rule) -> Builder {
        Builder::new(rule)
    }

    /// Creates a limiter that enforces `rule` and uses the machine's clock.
    pub fn new(rule: Rule) -> Self {
        Self::with_clock(rule, SystemClock::new())
    }
}

impl<C: Clock> Limiter<C> {
    /// Creates a limiter that enforces `rule` and uses `clock`.
    pub fn with_clock(rule: Rule, clock: C) -> Self {
        Builder::new(rule).with_clock(clock)
    }

    /// Decides a request of cost 1 for `key`, and charges it unless it is denied.
    ///
    /// ```
    /// # use std::net::IpAddr;
    /// # use tidegate::{Limiter, ManualClock};
    /// let limiter = Limiter::with_clock("1/s".parse()?, ManualClock::new());
    /// let client: IpAddr = "192.0.2.7".parse().unwrap();
    /// assert!(limiter.check(&client).is_allow());
    /// assert!(limiter.check(&client).is_deny());
    /// # Ok::<(), tidegate::RuleError>(())
    /// ```
    pub fn check<K: Hash + ?Sized>(&self, key: &K) -> Decision {
        self.check_n(key, 1)
    }

    /// Decides a request of this cost for `key`, and charges it unless it is denied.
    pub fn check_n<K: Hash + ?Sized>(&self, key: &K, cost: u64) -> Decision {
        self.store.check(key, cost)
    }

    /// Decides a request that its sender may repeat. Within [`IDEMPOTENCY_WINDOW`](crate::store::IDEMPOTENCY_WINDOW), an
    /// admitted request with the same key, cost and `id` is charged once, and its repetitions get the first decision again. A
    /// denied request is decided anew.
    ///
    /// # Errors
    /// Too many requests with an id are stored already. The request was not charged.
    ///
    /// ```
    /// # use tidegate::{Limiter, store::IdempotencyKey};
    /// let limiter = Limiter::new("5/day".parse()?);
    /// let id = IdempotencyKey::new("order 7")?;
    /// let first = limiter.check_once("alice", 1, id)?;
    /// assert_eq!(limiter.check_once("alice", 1, id)?, first, "charged once");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn check_once<K: Hash + ?Sized>(
        &self,
        key: &K,
        cost: u64,
        id: IdempotencyKey<'_>,
    ) -> Result<Decision, StoreError> {
        self.check_once_for(ClientId::OWN, key, cost, id)
    }

    fn check_once_for<K: Hash + ?Sized>(
        &self,
        client: ClientId,
        key: &K,
        cost: u64,
        id: IdempotencyKey<'_>,
    ) -> Result<Decision, StoreError> {
        let store = &*self.store;
        let cache = store.idempotency.get_or_init(Default::default);
        let key_number = store.secret.of(key).number();
        let request = IdempotentRequest { limit: store.number, key: key_number, cost, id };
        cache.decide((&request, client), || store.clock.now(), || self.check_n(key, cost))
    }

    /// Returns what [`check`](Self::check) would decide, without charging.
    pub fn peek<K: Hash + ?Sized>(&self, key: &K) -> Decision {
        self.target(key).peek(1, Span::MAX)
    }

    /// Returns `cost` of what was charged to `key`, and never more than is charged.
    pub fn refund<K: Hash + ?Sized>(&self, key: &K, cost: u64) {
        self.target(key).refund(cost);
    }

    /// Clears everything that was charged to `key`. Under a `concurrency` rule the requests in flight go on without being
    /// counted, and their permits release nothing.
    pub fn reset<K: Hash + ?Sized>(&self, key: &K) {
        self.target(key).reset();
    }

    /// Starts a request with a cost or a deadline, or one to be [decided together with others](crate::check_all).
    pub fn request<K: Hash + ?Sized>(&self, key: &K) -> Request<C> {
        Request::new(Target::Key(
            Arc::clone(&self.store),
            self.store.secret.of(key),
            self.name(key),
        ))
    }

    /// Waits until a request for `key` is admitted, first come, first served. Dropping the future gives up the turn and returns
    /// its cost.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// let limiter = tidegate::Limiter::new("1000/s burst 1".parse()?);
    /// let _permit = limiter.acquire("alice").await?;
    /// let _permit = limiter.acquire("alice").await?; // 1 ms later
    /// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
    /// ```
    pub fn acquire<K: Hash + ?Sized>(&self, key: &K) -> Acquire<C> {
        self.request(key).acquire()
    }

    /// Takes a permit for `key` without waiting. Under a concurrency limit, the permit is held until it is dropped; under other
    /// limits it holds nothing.
    ///
    /// # Errors
    /// The request was denied, or would have to wait.
    ///
    /// ```
    /// # use tidegate::Limiter;
    /// let limiter = Limiter::new("concurrency 1".parse()?);
    /// let permit = limiter.try_acquire("alice")?;
    /// assert!(limiter.try_acquire("alice").is_err());
    /// assert!(limiter.try_acquire("bob").is_ok());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn try_acquire<K: Hash + ?Sized>(&self, key: &K) -> Result<Permit<C>, Denied> {
        self.request(key).try_acquire()
    }

    /// Returns the permit that this record was made of, and the rest of its lease: for a limiter that was restored from a
    /// [snapshot](crate::snapshot), see [`PermitRecord`]. `None` if the permit has ended, or was held without a lease, which no
    /// snapshot contains. Of two permits reclaimed by one record, the one that is dropped later releases nothing.
    pub fn reclaim(&self, record: &PermitRecord) -> Option<(Permit<C>, Span)> {
        Permit::reclaim(record, &self.store)
    }

    /// Returns the fingerprint by which this limiter, and one restored from its [snapshot](crate::snapshot), identifies a key.
    /// It depends on a secret, so other limiters have other fingerprints.
    pub fn fingerprint<K: Hash + ?Sized>(&self, key: &K) -> u128 {
        self.store.secret.of(key).number()
    }

    /// Reserves the next turn of `key` and returns the time until it comes. Dropping the reservation before it is due returns
    /// its cost.
    ///
    /// # Errors
    /// The limit denies the request whenever it comes.
    ///
    /// ```
    /// # use tidegate::{Limiter, ManualClock, Span};
    /// let limiter = Limiter::with_clock("1/s".parse()?, ManualClock::new());
    /// let _ = limiter.check("alice");
    /// assert_eq!(limiter.reserve("alice")?.wait(), Span::from_secs(1));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn reserve<K: Hash + ?Sized>(&self, key: &K) -> Result<Reservation<C>, Denied> {
        self.request(key).reserve()
    }

    /// Returns the current window of `key`, for rules that have windows. Its end is the start of the next one.
    pub fn window<K: Hash + ?Sized>(&self, key: &K) -> Option<Window> {
        self.target(key).window()
    }

    /// Returns the rule in force.
    pub fn rule(&self) -> Rule {
        Rule { limit: self.store.rule() }
    }

    /// Returns the clock.
    pub fn clock(&self) -> &C {
        &self.store.clock
    }

    /// Changes the rule of all keys while requests are being decided (B8). Usage carries over, no key gets more than the new
    /// capacity, and no key is denied for longer than under the old rule. Waiters keep their turn or get an earlier one.
    ///
    /// ```
    /// # use tidegate::{Limiter, ManualClock};
    /// let limiter = Limiter::with_clock("10/s".parse()?, ManualClock::new());
    /// let _ = limiter.check_n("alice", 10);
    /// limiter.set_rule("20/s".parse()?);
    /// assert_eq!(limiter.check("alice").remaining, 9);
    /// # Ok::<(), tidegate::RuleError>(())
    /// ```
    pub fn set_rule(&self, rule: Rule) {
        self.store.change(rule.limit);
    }

    /// Returns the number of keys in memory: those in debt, and idle ones that will be evicted.
    pub fn keys(&self) -> usize {
        self.store.keys()
    }

    /// Returns counters of decisions, and how full the limiter is.
    pub fn stats(&self) -> Stats {
        self.store.stats()
    }

    /// Returns the `k` keys with the most requests, and the `k` with the most denials, if the limiter was built with
    /// [`top_keys`](Builder::top_keys). The counts are estimates: a [`TopKey`](crate::store::TopKey) says by how much it may be
    /// too high, and [`Top::window`] which time the counts cover.
    pub fn top(&self, k: usize) -> Top {
        self.store.top(k)
    }

    /// Returns what the auditor has found, if the limiter was built with [one](Builder::audit).
    pub fn audit(&self) -> Option<Audit> {
        self.store.audit()
    }

    /// Evicts all idle keys, and returns their number. It locks a few thousand keys at a time. Every decision evicts a few idle
    /// keys, so a sweep is only needed to free memory while there are no requests.
    pub fn sweep(&self) -> usize {
        self.store.sweep()
    }

    /// Returns whether no key is in debt, as far as this call has seen: then a new limiter would decide the same, except under
    /// a rule that starts empty. Each call looks at about a thousand keys, starting where the last one stopped, and evicts the
    /// idle ones, so a full table takes several calls.
    ///
    /// ```
    /// # use tidegate::{Limiter, ManualClock, Span};
    /// let clock = ManualClock::new();
    /// let limiter = Limiter::with_clock("1/s".parse()?, clock.clone());
    /// let _ = limiter.check("alice");
    /// assert!(!limiter.is_idle());
    /// clock.advance(Span::from_secs(2));
    /// assert!(limiter.is_idle());
    /// # Ok::<(), tidegate::RuleError>(())
    /// ```
    pub fn is_idle(&self) -> bool {
        self.store.is_idle()
    }

    /// Starts a batch: many requests that are decided in one call, each on its own.
    pub fn batch(&self) -> Batch<C> {
        Batch::new(Arc::clone(&self.store))
    }

    fn target<K: Hash + ?Sized>(&self, key: &K) -> Target<C> {
        Target::Key(Arc::clone(&self.store), self.store.secret.of(key), KeyName::default())
    }

    /// Returns the name of a key if busy keys are tracked; nothing else reads it.
    fn name<K: Hash + ?Sized>(&self, key: &K) -> KeyName {
        if self.store.has_top { KeyName::of(key) } else { KeyName::default() }
    }
}

impl<C: Clock> Clone for Limiter<C> {
    fn clone(&self) -> Self {
        Self { store: Arc::clone(&self.store) }
    }
}

impl<C: Clock> fmt::Debug for Limiter<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Limiter")
            .field("rule", &self.rule().to_string())
            .field("keys", &self.keys())
            .finish_non_exhaustive()
    }
}

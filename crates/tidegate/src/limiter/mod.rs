//! A limit for each key.

mod builder;
mod limit_store;

pub use builder::Builder;

use crate::clock::{Clock, SystemClock};
use crate::request::Request;
use crate::rule::Rule;
use crate::store::Target;
use crate::store::memory::{Batch, MemoryStore};
use crate::store::{Audit, KeyName, Stats, Top};
use crate::store::{ClientId, IdempotencyKey, IdempotentRequest, PermitRecord, StoreError};
use crate::sync::Arc;
use crate::wait::Acquire;
use crate::wait::Permit;
use crate::wait::Reservation;
use std::fmt;
use std::hash::Hash;
use tidegate_core::{Decision, Denied, Span, Window};

/// A limiter with keys: one limit for each user, address, API key or whatever you count by.
///
/// A key is anything that can be hashed; the same value of the same type is the same key. Keys are
/// kept as keyed 128-bit fingerprints, so their length costs nothing and attackers cannot make them
/// collide. A key at rest costs nothing either: it is forgotten.
///
/// Clones are the same limiter.
///
/// ```
/// use tidegate::Limiter;
///
/// let limiter = Limiter::new("100/s burst 20".parse()?);
/// let decision = limiter.check("alice");
/// assert!(decision.is_allow());
/// assert_eq!(decision.remaining, 19);
/// assert_eq!(limiter.check("bob").remaining, 19, "bob has his own");
/// # Ok::<(), tidegate::RuleError>(())
/// ```
pub struct Limiter<C: Clock = SystemClock> {
    pub(crate) store: Arc<MemoryStore<C>>,
}

impl Limiter {
    /// A limiter with more to say than its rule: how many keys, what when it is full, who watches.
    ///
    /// ```
    /// # use tidegate::Limiter;
    /// let limiter = Limiter::builder("100/s".parse()?).max_keys(50_000).build();
    /// assert!(limiter.check("alice").is_allow());
    /// # Ok::<(), tidegate::RuleError>(())
    /// ```
    pub fn builder(rule: Rule) -> Builder {
        Builder::new(rule)
    }

    /// A limiter that obeys `rule`, by the machine's clock. A [`Rule`] is made of text: by `parse`
    /// or [`Rule::try_from`], which tell what is wrong with a text that is none.
    ///
    /// ```
    /// # use tidegate::Limiter;
    /// let logins = Limiter::new("5/15min sliding-log".parse()?);
    /// assert!(logins.check("alice").is_allow());
    /// # Ok::<(), tidegate::RuleError>(())
    /// ```
    pub fn new(rule: Rule) -> Self {
        Self::with_clock(rule, SystemClock::new())
    }
}

impl<C: Clock> Limiter<C> {
    /// A limiter that obeys `rule`, by another clock.
    ///
    /// ```
    /// # use tidegate::{Limiter, ManualClock};
    /// let limiter = Limiter::with_clock("1/s".parse()?, ManualClock::new());
    /// assert!(limiter.check("alice").is_allow());
    /// # Ok::<(), tidegate::RuleError>(())
    /// ```
    pub fn with_clock(rule: Rule, clock: C) -> Self {
        Builder::new(rule).with_clock(clock)
    }

    /// May one pass for this key? If so, it has been charged.
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

    /// May something of this cost pass for this key? If so, it has been charged.
    ///
    /// ```
    /// # use tidegate::{Limiter, ManualClock};
    /// let bytes = Limiter::with_clock("1000000/s".parse()?, ManualClock::new());
    /// assert!(bytes.check_n("alice", 65_536).is_allow());
    /// # Ok::<(), tidegate::RuleError>(())
    /// ```
    pub fn check_n<K: Hash + ?Sized>(&self, key: &K, cost: u64) -> Decision {
        self.store.check(key, cost)
    }

    /// Decides a request that its sender may repeat: within [`IDEMPOTENCY_WINDOW`](crate::store::IDEMPOTENCY_WINDOW), an
    /// admitted request with the same key, cost and `id` is charged once, and its repetitions get the first decision again. A
    /// denied request is decided anew.
    ///
    /// # Errors
    /// Too many requests with an id are remembered. The request was not charged.
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

    /// What [`check`](Self::check) would say, without charging.
    ///
    /// ```
    /// # use tidegate::{Limiter, ManualClock};
    /// let limiter = Limiter::with_clock("1/s".parse()?, ManualClock::new());
    /// assert!(limiter.peek("alice").is_allow());
    /// assert!(limiter.peek("alice").is_allow());
    /// # Ok::<(), tidegate::RuleError>(())
    /// ```
    pub fn peek<K: Hash + ?Sized>(&self, key: &K) -> Decision {
        self.target(key).peek(1, Span::MAX)
    }

    /// Gives back `cost` of what was charged to this key, and never more than is charged.
    ///
    /// ```
    /// # use tidegate::{Limiter, ManualClock};
    /// let limiter = Limiter::with_clock("1/s".parse()?, ManualClock::new());
    /// limiter.check("alice");
    /// limiter.refund("alice", 1);
    /// assert!(limiter.check("alice").is_allow());
    /// # Ok::<(), tidegate::RuleError>(())
    /// ```
    pub fn refund<K: Hash + ?Sized>(&self, key: &K, cost: u64) {
        self.target(key).refund(cost);
    }

    /// Forgets all that was charged to this key. Under a `concurrency` rule that is who is in flight: they go on without being
    /// counted, and their permits give nothing back.
    ///
    /// ```
    /// # use tidegate::{Limiter, ManualClock};
    /// let limiter = Limiter::with_clock("1/day".parse()?, ManualClock::new());
    /// limiter.check("alice");
    /// limiter.reset("alice");
    /// assert!(limiter.check("alice").is_allow());
    /// # Ok::<(), tidegate::RuleError>(())
    /// ```
    pub fn reset<K: Hash + ?Sized>(&self, key: &K) {
        self.target(key).reset();
    }

    /// A request with a cost or a deadline, or one to be decided together with others.
    ///
    /// ```
    /// # use tidegate::{Limiter, ManualClock};
    /// let limiter = Limiter::with_clock("10/s".parse()?, ManualClock::new());
    /// assert_eq!(limiter.request("alice").cost(4).check().remaining, 6);
    /// # Ok::<(), tidegate::RuleError>(())
    /// ```
    pub fn request<K: Hash + ?Sized>(&self, key: &K) -> Request<C> {
        Request::new(Target::Key(
            Arc::clone(&self.store),
            self.store.secret.of(key),
            self.name(key),
        ))
    }

    /// Waits for this key's turn. First come, first served; dropping the future gives the turn back.
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

    /// Takes a permit for this key if one is free: the in-flight slot of a concurrency limit, which is
    /// given back when the permit is dropped. Other limits admit and hold nothing.
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

    /// Returns the permit that this record was made of, and how long its lease still lasts: for a limiter that was restored
    /// from a [snapshot](crate::Snapshot), see [`PermitRecord`]. `None` if the permit is not held any more, or was held without a
    /// lease, which no snapshot keeps. Of two permits reclaimed by one record, the one that is dropped later gives nothing back.
    ///
    /// ```
    /// # use tidegate::Limiter;
    /// let limiter = Limiter::new("concurrency 1 lease 30s".parse()?);
    /// let permit = limiter.try_acquire("alice")?;
    /// let record = permit.record().expect("it holds something");
    /// drop(permit);
    /// assert!(limiter.reclaim(&record).is_none(), "it was given back");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn reclaim(&self, record: &PermitRecord) -> Option<(Permit<C>, Span)> {
        Permit::reclaim(record, &self.store)
    }

    /// Returns the fingerprint by which this limiter recognises a key, and so does one that is restored from its
    /// [snapshot](crate::Snapshot). It depends on a secret: other limiters have other fingerprints.
    ///
    /// ```
    /// # use tidegate::Limiter;
    /// let limiter = Limiter::new("1/s".parse()?);
    /// assert_eq!(limiter.fingerprint("alice"), limiter.fingerprint("alice"));
    /// assert_ne!(limiter.fingerprint("alice"), Limiter::new("1/s".parse()?).fingerprint("alice"));
    /// # Ok::<(), tidegate::RuleError>(())
    /// ```
    pub fn fingerprint<K: Hash + ?Sized>(&self, key: &K) -> u128 {
        self.store.secret.of(key).number()
    }

    /// Reserves a turn and tells how long it takes. Dropping the reservation before it is due gives
    /// it back.
    ///
    /// ```
    /// # use tidegate::{Limiter, ManualClock, Span};
    /// let limiter = Limiter::with_clock("1/s".parse()?, ManualClock::new());
    /// limiter.check("alice");
    /// assert_eq!(limiter.reserve("alice")?.wait(), Span::from_secs(1));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn reserve<K: Hash + ?Sized>(&self, key: &K) -> Result<Reservation<C>, Denied> {
        self.request(key).reserve()
    }

    /// The window that counts now for this key, for rules that have windows; its end is when the next
    /// one starts.
    ///
    /// ```
    /// # use tidegate::{Limiter, ManualClock, Timestamp};
    /// let limiter = Limiter::with_clock("1/day calendar".parse()?, ManualClock::new());
    /// let window = limiter.window("alice").expect("it has windows");
    /// assert_eq!(window.end, Timestamp::from_micros(1_704_153_600_000_000), "2024-01-02");
    /// # Ok::<(), tidegate::RuleError>(())
    /// ```
    pub fn window<K: Hash + ?Sized>(&self, key: &K) -> Option<Window> {
        self.target(key).window()
    }

    /// The rule as it stands.
    ///
    /// ```
    /// # use tidegate::Limiter;
    /// assert_eq!(Limiter::new("60/60s".parse()?).rule().to_string(), "60/min");
    /// # Ok::<(), tidegate::RuleError>(())
    /// ```
    pub fn rule(&self) -> Rule {
        Rule { limit: self.store.rule() }
    }

    /// The clock that it goes by.
    ///
    /// ```
    /// # use tidegate::{Clock, Limiter, ManualClock};
    /// let clock = ManualClock::new();
    /// let limiter = Limiter::with_clock("10/s".parse()?, clock.clone());
    /// assert_eq!(limiter.clock().now(), clock.now());
    /// # Ok::<(), tidegate::RuleError>(())
    /// ```
    pub fn clock(&self) -> &C {
        &self.store.clock
    }

    /// Changes the rule for all keys while in use (B8): what was used stays used as far as the new
    /// rule knows it, nobody gets more than the new capacity, and nobody is locked out for longer than
    /// under the old rule. Those who wait keep their turn or get an earlier one.
    ///
    /// ```
    /// # use tidegate::{Limiter, ManualClock};
    /// let limiter = Limiter::with_clock("10/s".parse()?, ManualClock::new());
    /// limiter.check_n("alice", 10);
    /// limiter.set_rule("20/s".parse()?);
    /// assert_eq!(limiter.check("alice").remaining, 9);
    /// # Ok::<(), tidegate::RuleError>(())
    /// ```
    pub fn set_rule(&self, rule: Rule) {
        self.store.change(rule.limit);
    }

    /// How many keys are remembered: those in debt, and some at rest that will be forgotten.
    ///
    /// ```
    /// # use tidegate::Limiter;
    /// let limiter = Limiter::new("1/s".parse()?);
    /// limiter.check("alice");
    /// assert_eq!(limiter.keys(), 1);
    /// # Ok::<(), tidegate::RuleError>(())
    /// ```
    pub fn keys(&self) -> usize {
        self.store.keys()
    }

    /// What has been decided, and how full the limiter is.
    ///
    /// ```
    /// # use tidegate::Limiter;
    /// let limiter = Limiter::new("1/h".parse()?);
    /// limiter.check("alice");
    /// limiter.check("alice");
    /// assert_eq!((limiter.stats().allowed, limiter.stats().denied), (1, 1));
    /// # Ok::<(), tidegate::RuleError>(())
    /// ```
    pub fn stats(&self) -> Stats {
        self.store.stats()
    }

    /// The `k` keys that are asked about most, and the `k` that are refused most, if the limiter was
    /// told to [keep track](Builder::top_keys). Counters are few: [`TopKey`](crate::TopKey) says by how much
    /// a count may be too high, and [`Top::window`] of what time it is.
    ///
    /// ```
    /// # use tidegate::Limiter;
    /// let limiter = Limiter::builder("1/h".parse()?).top_keys().build();
    /// for _ in 0..1_000 {
    ///     limiter.check("alice");
    /// }
    /// assert_eq!(limiter.top(3).hot[0].name.to_string(), "alice");
    /// # Ok::<(), tidegate::RuleError>(())
    /// ```
    pub fn top(&self, k: usize) -> Top {
        self.store.top(k)
    }

    /// What the auditor has found, if there [is one](Builder::audit).
    ///
    /// ```
    /// # use tidegate::Limiter;
    /// assert!(Limiter::new("1/h".parse()?).audit().is_none());
    /// # Ok::<(), tidegate::RuleError>(())
    /// ```
    pub fn audit(&self) -> Option<Audit> {
        self.store.audit()
    }

    /// Looks through all keys, a few thousand at a time, and forgets those at rest; tells how many.
    /// Whoever asks does this a little at a time, so it is only needed where nobody asks for long and
    /// the memory should go back.
    ///
    /// ```
    /// # use tidegate::{Limiter, ManualClock, Span};
    /// let clock = ManualClock::new();
    /// let limiter = Limiter::with_clock("1/s".parse()?, clock.clone());
    /// limiter.check("alice");
    /// clock.advance(Span::from_secs(2));
    /// assert_eq!(limiter.sweep(), 1);
    /// # Ok::<(), tidegate::RuleError>(())
    /// ```
    pub fn sweep(&self) -> usize {
        self.store.sweep()
    }

    /// Whether nobody owes anything, as far as a look tells: then a new limiter of this rule would say the same, but for
    /// a rule that starts empty, which would do so again. Looks at about a thousand keys, where the last look ended,
    /// and forgets those at rest; who has more keys takes more looks.
    ///
    /// ```
    /// # use tidegate::{Limiter, ManualClock, Span};
    /// let clock = ManualClock::new();
    /// let limiter = Limiter::with_clock("1/s".parse()?, clock.clone());
    /// limiter.check("alice");
    /// assert!(!limiter.is_idle());
    /// clock.advance(Span::from_secs(2));
    /// assert!(limiter.is_idle());
    /// # Ok::<(), tidegate::RuleError>(())
    /// ```
    pub fn is_idle(&self) -> bool {
        self.store.is_idle()
    }

    /// An empty batch: for many requests that are decided in one go, each on its own.
    ///
    /// ```
    /// # use tidegate::Limiter;
    /// let limiter = Limiter::new("10/s".parse()?);
    /// let mut batch = limiter.batch();
    /// batch.push("alice", 1);
    /// batch.push("bob", 1);
    /// assert!(batch.decide().iter().all(|decision| decision.is_allow()));
    /// # Ok::<(), tidegate::RuleError>(())
    /// ```
    pub fn batch(&self) -> Batch<C> {
        Batch::new(Arc::clone(&self.store))
    }

    fn target<K: Hash + ?Sized>(&self, key: &K) -> Target<C> {
        Target::Key(Arc::clone(&self.store), self.store.secret.of(key), KeyName::default())
    }

    /// The name of a key, where busy keys are counted: elsewhere nothing reads it.
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

//! A limit that many share: the front door, and the only place that turns "could not decide" into an answer.

mod builder;
mod limit_store;
mod permit;

pub use builder::{Builder, Unsuited};
pub use permit::RedisPermit;

use crate::cache::DeniedKeys;
use crate::cache::LeftKeys;
use crate::connection::{Deadline, StoreError};
use crate::deferred_release::Returns;
use crate::fallback::Fallback;
use crate::fallback::{Source, Told};
use crate::lease::{self, Leases, Outcome, Spent};
use crate::limit_context::{FailedRequest, HealthTracker, LimitHealth, LimitState};
use crate::limit_context::{Stats, Tally};
use crate::remote::Exact;
use crate::remote::rule_registry::Current;
use crate::script::codec::Verb;
use std::sync::{Arc, Mutex};
use tidegate::rule::Window;
use tidegate::{Decision, Denied, Rule};

/// A limit that all who use the same store and the same name share.
///
/// [`check`](Self::check), [`check_n`](Self::check_n) and [`check_once`](Self::check_once) always answer: when Redis does not, as
/// [`OnError`](crate::OnError) says. Methods that return a `Result` of [`StoreError`] fail then: nobody else can
/// [look](Self::peek), [give back](Self::refund) or [forget](Self::reset). [`try_acquire`](Self::try_acquire) takes a place under a
/// concurrency limit.
///
/// It is not `tidegate::Limiter` with an `await`: keys are bytes and not whatever can be hashed, costs are arguments, and there is
/// no `ask`, so nothing waits for its turn (no `acquire`, `reserve` or `batch`).
///
/// ```no_run
/// # async fn example(store: tidegate_redis::RedisStore) -> Result<(), Box<dyn std::error::Error>> {
/// let limiter = store.limiter("api", "100/s burst 20".parse()?)?;
/// let decision = limiter.check("alice").await;
/// if decision.is_deny() {
///     println!("try again in {:?}", decision.retry_after());
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct RedisLimiter {
    pub(crate) inner: Arc<Inner>,
}

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) exact: Exact,
    pub(crate) fallback: Fallback,
    pub(crate) denied: DeniedKeys,
    pub(crate) left: LeftKeys,
    pub(crate) leases: Option<Leases>,
    pub(crate) tally: Tally,
    pub(crate) health: Arc<HealthTracker>,
    pub(crate) returns: Returns,
    /// The version of the rule that all of these go by; 0 if nobody has asked for it.
    pub(crate) followed: Mutex<u64>,
}

impl RedisLimiter {
    /// Decides about a request of cost 1, and charges it unless it is denied.
    ///
    /// ```no_run
    /// # async fn example(limiter: tidegate_redis::RedisLimiter) {
    /// if limiter.check("alice").await.is_deny() {
    ///     println!("too fast");
    /// }
    /// # }
    /// ```
    pub async fn check(&self, key: impl AsRef<[u8]>) -> Decision {
        self.check_n(key, 1).await
    }

    /// Decides about a request of this cost, and charges it unless it is denied.
    ///
    /// ```no_run
    /// # async fn example(limiter: tidegate_redis::RedisLimiter) {
    /// println!("{} are left", limiter.check_n("alice", 10).await.remaining);
    /// # }
    /// ```
    pub async fn check_n(&self, key: impl AsRef<[u8]>, cost: u64) -> Decision {
        self.decide(key.as_ref(), cost).await.decision
    }

    /// The same, and says who decided.
    ///
    /// ```no_run
    /// # async fn example(limiter: tidegate_redis::RedisLimiter) {
    /// use tidegate_redis::Source;
    ///
    /// let told = limiter.decide(b"alice", 1).await;
    /// println!("Redis was asked: {}", told.source == Source::Shared);
    /// # }
    /// ```
    pub async fn decide(&self, key: &[u8], cost: u64) -> Told {
        match self.decide_here(key, cost) {
            Some(told) => told,
            None => self.decide_there(key, cost).await,
        }
    }

    /// By what lies here already: a lease, or a denial that still holds.
    #[inline]
    fn decide_here(&self, key: &[u8], cost: u64) -> Option<Told> {
        let inner = &*self.inner;
        if let Some(leases) = &inner.leases {
            let (left, spent) = leases.spend(key, cost);
            if spent != Spent::No {
                if spent == Spent::AndLow {
                    self.prefetch(key);
                }
                inner.tally.allowed();
                return Some(Told { decision: leases.allowed(left), source: Source::Leased });
            }
        }
        inner.told_already(key, cost)
    }

    async fn decide_there(&self, key: &[u8], cost: u64) -> Told {
        let inner = &self.inner;
        if let Some(decision) = inner.settled(cost) {
            return Told { decision, source: Source::Rule };
        }
        if let Some(told) = inner.still_denied(key, cost) {
            return told;
        }
        let deadline = inner.exact.within();
        match inner.lent(key, cost, deadline).await {
            Some(Ok(told)) => return told,
            Some(Err(error)) => return inner.without(key, cost, &error),
            None => {}
        }
        let sent = inner.denied.now();
        match inner.exact.ask_within(deadline, key, Verb::Take, cost, None).await {
            Ok(taken) => {
                if taken.decision.is_deny() && inner.exact.is_denial_lasting() {
                    let known = (taken.answer, &taken.decision);
                    inner.denied.put(key, known, taken.version, cost, sent);
                }
                let decision = inner.shared(key, cost, taken.decision);
                Told { decision, source: Source::Shared }
            }
            Err(error) => inner.without(key, cost, &error),
        }
    }

    /// The same for a request that may be sent twice: whoever asks again for the same cost with the same `id` within
    /// [`ONCE_SPAN`](crate::ONCE_SPAN) is told the same, and charged once. Who was denied is decided about anew.
    ///
    /// ```no_run
    /// # async fn example(limiter: tidegate_redis::RedisLimiter) {
    /// let first = limiter.check_once("alice", 1, "order 7").await;
    /// let again = limiter.check_once("alice", 1, "order 7").await;
    /// assert_eq!(again.remaining, first.remaining, "charged once");
    /// # }
    /// ```
    pub async fn check_once(&self, key: impl AsRef<[u8]>, cost: u64, id: &str) -> Decision {
        let (key, inner) = (key.as_ref(), &self.inner);
        if let Some(decision) = inner.settled(cost) {
            return decision;
        }
        // Who was admitted before is told so though the share would deny it now: that is charged. Others are not asked about.
        let denied = inner.still_denies(key, cost);
        let verb = if denied.is_some() { Verb::Look } else { Verb::Take };
        let taken = match inner.exact.ask(key, verb, cost, Some(id)).await {
            Ok(taken) => taken,
            Err(error) => return inner.without(key, cost, &error).decision,
        };
        match denied {
            _ if taken.is_repeated => {
                inner.health.answered();
                taken.decision
            }
            Some(denied) => {
                inner.health.answered();
                inner.tally.decided(&denied);
                denied
            }
            None => inner.shared(key, cost, taken.decision),
        }
    }

    /// Decides, or says why there is no decision: for callers that have a policy of their own. This node's share of the
    /// limit is charged too, as by [`check`](Self::check), so that a later outage does not begin with a fresh burst; and
    /// what other callers were admitted without Redis counts until it has drained.
    ///
    /// ```no_run
    /// # async fn example(limiter: tidegate_redis::RedisLimiter) {
    /// match limiter.try_check("alice", 1).await {
    ///     Ok(decision) => println!("{decision:?}"),
    ///     Err(error) => eprintln!("nobody knows: {error}"),
    /// }
    /// # }
    /// ```
    pub async fn try_check(
        &self,
        key: impl AsRef<[u8]>,
        cost: u64,
    ) -> Result<Decision, StoreError> {
        let (key, inner) = (key.as_ref(), &*self.inner);
        if let Some(decision) = inner.settled(cost) {
            return Ok(decision);
        }
        if let Some(told) = inner.still_denied(key, cost) {
            return Ok(told.decision);
        }
        match inner.exact.take(key, cost, None).await {
            Ok(taken) => Ok(inner.shared(key, cost, taken.decision)),
            Err(error) => {
                inner.missed(key, &error);
                Err(error)
            }
        }
    }

    /// What [`check_n`](Self::check_n) would say, without charging.
    ///
    /// ```no_run
    /// # async fn example(limiter: tidegate_redis::RedisLimiter) -> Result<(), tidegate_redis::StoreError> {
    /// let would_pass = !limiter.peek("alice", 5).await?.is_deny();
    /// # Ok(())
    /// # }
    /// ```
    pub async fn peek(&self, key: impl AsRef<[u8]>, cost: u64) -> Result<Decision, StoreError> {
        if let Some(decision) = self.inner.exact.settled(cost) {
            return Ok(decision);
        }
        let seen = self.inner.exact.ask(key.as_ref(), Verb::Look, cost, None).await?;
        Ok(seen.decision)
    }

    /// What [`check_n`](Self::check_n) would say now if Redis did not answer, without charging.
    ///
    /// ```no_run
    /// # fn example(limiter: tidegate_redis::RedisLimiter) {
    /// println!("{:?}", limiter.peek_without_redis("alice", 5).verdict);
    /// # }
    /// ```
    pub fn peek_without_redis(&self, key: impl AsRef<[u8]>, cost: u64) -> Decision {
        let settled = self.inner.exact.settled(cost);
        settled.unwrap_or_else(|| self.inner.fallback.look(key.as_ref(), cost))
    }

    /// The window that counts now for this key, for rules that have windows; its end is when the next one starts, by
    /// Redis's clock.
    ///
    /// ```no_run
    /// # async fn example(limiter: tidegate_redis::RedisLimiter) -> Result<(), tidegate_redis::StoreError> {
    /// if let Some(window) = limiter.window("alice").await? {
    ///     println!("until {:?}", window.end);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn window(&self, key: impl AsRef<[u8]>) -> Result<Option<Window>, StoreError> {
        self.inner.exact.window(key.as_ref()).await
    }

    /// Gives back `cost` of what was charged last, and never more than is charged.
    ///
    /// ```no_run
    /// # async fn example(limiter: tidegate_redis::RedisLimiter) -> Result<(), tidegate_redis::StoreError> {
    /// limiter.check("alice").await;
    /// limiter.refund("alice", 1).await?; // nothing came of it
    /// # Ok(())
    /// # }
    /// ```
    pub async fn refund(&self, key: impl AsRef<[u8]>, cost: u64) -> Result<(), StoreError> {
        let key = key.as_ref();
        self.inner.exact.ask(key, Verb::Refund, cost, None).await?;
        self.inner.fallback.refund(key, cost);
        self.inner.forget(key);
        Ok(())
    }

    /// Forgets the key.
    ///
    /// ```no_run
    /// # async fn example(limiter: tidegate_redis::RedisLimiter) -> Result<(), tidegate_redis::StoreError> {
    /// limiter.reset("alice").await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn reset(&self, key: impl AsRef<[u8]>) -> Result<(), StoreError> {
        let key = key.as_ref();
        self.inner.exact.reset(key).await?;
        self.inner.fallback.reset(key);
        self.inner.forget(key);
        if let Some(leases) = &self.inner.leases {
            leases.forget(key);
        }
        Ok(())
    }

    /// Takes a place under a concurrency limit; it is given back when the permit is dropped.
    ///
    /// ```no_run
    /// # async fn example(limiter: tidegate_redis::RedisLimiter) -> Result<(), tidegate::Denied> {
    /// let place = limiter.try_acquire("alice", 1).await?;
    /// drop(place); // when the work is done
    /// # Ok(())
    /// # }
    /// ```
    pub async fn try_acquire(
        &self,
        key: impl AsRef<[u8]>,
        cost: u64,
    ) -> Result<RedisPermit, Denied> {
        let (key, inner) = (key.as_ref(), &*self.inner);
        if let Some(decision) = inner.settled(cost) {
            decision.into_result()?;
            return Ok(RedisPermit::new(self.clone(), key, None, decision));
        }
        let local = inner.fallback.accompany(key, cost);
        // While the outage lasts, this is a failure like others, and counted as one.
        if let Err(denied) = local.as_ref()
            && inner.exact.is_up(key)
        {
            inner.tally.decided(&denied.decision);
            return Err(*denied);
        }
        let taken = match inner.exact.take(key, cost, None).await {
            Ok(taken) => taken,
            Err(error) => {
                drop(local);
                return inner.place_without(self, key, cost, &error);
            }
        };
        let decision = inner.shared(key, cost, taken.decision);
        decision.into_result()?;
        let place = taken.answer.ticket.filter(|_| cost > 0);
        let place = place.map(|ticket| (ticket, taken.answer.now()));
        let permit = RedisPermit::new(self.clone(), key, place, decision);
        // If it has come back this moment, the place goes back too.
        Ok(permit.with(local?))
    }

    /// For benches: the words of the command that a decision sends.
    #[doc(hidden)]
    pub async fn command(&self, key: &[u8], cost: u64) -> Result<Vec<Vec<u8>>, StoreError> {
        self.inner.exact.command(key, cost).await
    }

    /// Asks Redis for the rule now, rather than with the first decision.
    ///
    /// ```no_run
    /// # async fn example(limiter: tidegate_redis::RedisLimiter) -> Result<(), tidegate_redis::StoreError> {
    /// limiter.ready().await?; // and now the first request is as quick as the others
    /// # Ok(())
    /// # }
    /// ```
    pub async fn ready(&self) -> Result<(), StoreError> {
        self.inner.exact.known(self.inner.exact.within()).await.map(drop)
    }

    /// The rule as it stands: another node may have changed it.
    ///
    /// ```no_run
    /// # fn example(limiter: tidegate_redis::RedisLimiter) {
    /// println!("{}", limiter.rule());
    /// # }
    /// ```
    pub fn rule(&self) -> Rule {
        self.inner.exact.rule()
    }

    /// Goes on under another rule, and so does every node: nobody is refunded, nobody is locked out.
    ///
    /// ```no_run
    /// # async fn example(limiter: tidegate_redis::RedisLimiter) -> Result<(), Box<dyn std::error::Error>> {
    /// limiter.set_rule("200/s burst 20".parse()?).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn set_rule(&self, rule: Rule) -> Result<(), StoreError> {
        self.inner.exact.publish(&rule).await
    }

    /// What has been decided here, and by whom.
    ///
    /// ```no_run
    /// # fn example(limiter: tidegate_redis::RedisLimiter) {
    /// let stats = limiter.stats();
    /// println!("{} allowed, {} denied", stats.allowed, stats.denied);
    /// # }
    /// ```
    pub fn stats(&self) -> Stats {
        let mut stats = self.inner.tally.read();
        if let Some(leases) = &self.inner.leases {
            (stats.lent, stats.returned) = leases.lent();
        }
        stats
    }

    /// Whether Redis decides this limit's requests, as they met it in the last second. While Redis does not, and there
    /// are no requests, a probe takes their place four times a second. A rule that admits nothing is never degraded: Redis is not
    /// asked about it.
    ///
    /// ```no_run
    /// # fn example(limiter: tidegate_redis::RedisLimiter) {
    /// let health = limiter.health();
    /// if health.state.is_degraded() {
    ///     eprintln!("decided without Redis: {}", health.last_failure);
    /// }
    /// # }
    /// ```
    pub fn health(&self) -> LimitHealth {
        let inner = &*self.inner;
        if inner.exact.settled(1).is_some() {
            return LimitHealth { state: LimitState::Idle, last_failure: String::new() };
        }
        inner.health.read(&inner.exact.store().link)
    }
}

impl RedisLimiter {
    /// Asks for the next lease while this one is spent.
    fn prefetch(&self, key: &[u8]) {
        let (inner, key) = (Arc::clone(&self.inner), key.to_vec());
        self.inner.exact.store().runtime.spawn(async move {
            if let Some(leases) = &inner.leases {
                leases.prefetch(&inner, &key, inner.denied.now()).await;
            }
        });
    }

    /// Gives back leases that nobody uses, and hears of other rules, for as long as there is a limiter.
    pub(crate) fn keep(&self) {
        let limiter = Arc::downgrade(&self.inner);
        self.inner.exact.store().runtime.spawn(async move {
            for turn in 1_u32.. {
                tokio::time::sleep(lease::SWEEP).await;
                let Some(inner) = limiter.upgrade() else { return };
                if let Some(leases) = &inner.leases {
                    leases.sweep(&inner).await;
                }
                if turn.is_multiple_of(RULE_EVERY) {
                    inner.hear().await;
                }
            }
        });
    }
}

/// After so many sweeps the rule is asked for again: another node may have changed it.
const RULE_EVERY: u32 = 4;

impl Inner {
    /// Hears of a rule that another node has published.
    pub(crate) async fn hear(&self) {
        if self.exact.current().is_some() {
            // Who is not there is asked again soon.
            let _heard = self.exact.hear().await;
        } else if self.exact.settled(1).is_some() {
            // No request of a rule that admits nothing asks Redis, so no request tells the other nodes of the rule.
            let _known = self.exact.known(self.exact.within()).await;
        }
    }

    /// Goes by the rule that all go by, whoever has learned of it: a request, or who asks for it now and then.
    pub(crate) fn follow(&self, current: &Current) {
        let mut followed = self.followed.lock().expect("nobody panics with it");
        // Two may have learned at the same time, and the older rule comes last.
        if current.version <= *followed {
            return;
        }
        let is_first = *followed == 0;
        *followed = current.version;
        self.fallback.change(&current.rule);
        self.denied.forget_all();
        if let Some(leases) = &self.leases {
            leases.forget_all();
        }
        if !is_first {
            tracing::info!(limit = self.exact.name(), "goes by `{}` now", current.rule);
        }
    }

    /// The decision of a rule that admits nothing, counted.
    fn settled(&self, cost: u64) -> Option<Decision> {
        let decision = self.exact.settled(cost)?;
        self.tally.decided(&decision);
        Some(decision)
    }

    /// By a lease that has to be asked for first; nothing, if it is decided in Redis.
    async fn lent(
        self: &Arc<Self>,
        key: &[u8],
        cost: u64,
        deadline: Deadline,
    ) -> Option<Result<Told, StoreError>> {
        let leases = self.leases.as_ref()?;
        if self.fallback.is_recovering(key) {
            // Redis would lend what was spent without it; so the share is asked about every request of this key.
            return None;
        }
        let sent = self.denied.now();
        let told = match leases.refill(self, key, cost, sent, deadline).await {
            Ok(Outcome::Direct) => return None,
            Ok(Outcome::Spent(decision)) => Told { decision, source: Source::Leased },
            Ok(Outcome::Denied(decision, known)) => {
                if let Some(known) = known {
                    let denied = (known.answer, &decision);
                    self.denied.put(key, denied, known.version, cost, sent);
                }
                let decision = self.fallback.warm(key, cost, decision);
                Told { decision, source: Source::Shared }
            }
            Err(error) => return Some(Err(error)),
        };
        self.health.answered();
        self.tally.decided(&told.decision);
        Some(Ok(told))
    }

    /// Denied a moment ago, and time has not changed that.
    #[inline]
    fn told_already(&self, key: &[u8], cost: u64) -> Option<Told> {
        let decision = self.remembered(key, cost)?;
        self.tally.denied_here();
        Some(Told { decision, source: Source::Remembered })
    }

    /// The denial itself.
    #[inline]
    pub(crate) fn remembered(&self, key: &[u8], cost: u64) -> Option<Decision> {
        // What is remembered here goes by this node's time.
        if self.exact.store().clock.is_injected() {
            return None;
        }
        let last = self.denied.last(key, self.exact.version(), cost);
        last.or_else(|| {
            let current = self.exact.current_now();
            let current = current.as_ref()?;
            self.denied.get(key, &current.shared, current.version, cost)
        })
    }

    /// What a key had left a moment ago.
    pub(crate) fn left(&self, key: &[u8]) -> Option<Decision> {
        let current = self.exact.current_now();
        let current = current.as_ref()?;
        self.left.get(key, &current.shared, current.version)
    }

    /// The key may have more than is remembered of it.
    pub(crate) fn forget(&self, key: &[u8]) {
        self.denied.forget(key);
        self.left.forget(key);
    }

    /// Redis may not know yet what was admitted without it.
    fn still_denied(&self, key: &[u8], cost: u64) -> Option<Told> {
        let decision = self.still_denies(key, cost)?;
        self.tally.decided(&decision);
        Some(Told { decision, source: Source::Local })
    }

    /// The denial itself. While the outage lasts, that is a failure like others, and counted as one.
    fn still_denies(&self, key: &[u8], cost: u64) -> Option<Decision> {
        self.fallback.still_denies(key, cost).filter(|_| self.exact.is_up(key))
    }

    /// What Redis has decided: the share is told, and after an outage has its say.
    fn shared(&self, key: &[u8], cost: u64, decision: Decision) -> Decision {
        self.health.answered();
        let decision = self.fallback.warm(key, cost, decision);
        self.tally.decided(&decision);
        decision
    }

    /// Redis did not decide about this key.
    pub(crate) fn missed(&self, key: &[u8], error: &StoreError) {
        let (key, deadline) = (self.exact.key(key), self.exact.deadline());
        self.health.failed(self.exact.store(), FailedRequest { key, deadline, error });
    }

    /// An answer without Redis.
    pub(crate) fn without(&self, key: &[u8], cost: u64, error: &StoreError) -> Told {
        self.missed(key, error);
        self.tally.failed(self.exact.name(), error);
        let told = self.fallback.decide(key, cost);
        self.tally.decided(&told.decision);
        told
    }

    fn place_without(
        &self,
        limiter: &RedisLimiter,
        key: &[u8],
        cost: u64,
        error: &StoreError,
    ) -> Result<RedisPermit, Denied> {
        self.missed(key, error);
        self.tally.failed(self.exact.name(), error);
        let held = self.fallback.acquire(key, cost);
        let permit = held.map(|held| RedisPermit::held(limiter.clone(), key, held));
        let decision = permit.as_ref().map_or_else(|denied| denied.decision, RedisPermit::decision);
        self.tally.decided(&decision);
        permit
    }
}

impl RedisLimiter {
    /// Acquires a permit, waiting for it at most `max_wait`.
    pub(crate) async fn acquire_within(
        &self,
        key: &[u8],
        cost: u64,
        max_wait: tidegate::Span,
    ) -> Result<RedisPermit, Denied> {
        let began = tokio::time::Instant::now();
        loop {
            let denied = match self.try_acquire(key, cost).await {
                Ok(permit) => return Ok(permit),
                Err(denied) => denied,
            };
            let left = max_wait.as_duration().saturating_sub(began.elapsed());
            let wait = match denied.decision.retry_after() {
                Some(wait) => wait.as_duration(),
                None => std::time::Duration::from_millis(100),
            };
            if left.is_zero() || wait > left {
                return Err(denied);
            }
            tokio::time::sleep(wait).await;
        }
    }
}

//! A limit that many share: the front door, and the only place that turns "could not decide" into an answer.

use crate::denied::DeniedKeys;
use crate::exact::Exact;
use crate::fallback::Fallback;
use crate::lease::{self, Leases, Outcome, Spent};
use crate::link::StoreError;
use crate::permit::RedisPermit;
use crate::policy::{OnError, Source, Told};
use crate::shared::Verb;
use crate::store::RedisStore;
use crate::tally::{Stats, Tally};
use std::sync::Arc;
use std::time::Duration;
use tidegate::{Decision, Denied, Rule};
use tidegate_core::TooLarge;

/// A limit that all who use the same store and the same name share.
///
/// Its methods are those of `tidegate::Limiter`, with an `await`. They always answer: when Redis does not, as
/// [`OnError`] says.
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
    pub(crate) leases: Option<Leases>,
    pub(crate) tally: Tally,
}

/// What else there is to say about a limit; made by [`RedisStore::builder`].
///
/// ```no_run
/// # async fn example(store: tidegate_redis::RedisStore) -> Result<(), Box<dyn std::error::Error>> {
/// use std::time::Duration;
/// use tidegate_redis::OnError;
///
/// let limiter = store
///     .builder("api", "100/s burst 20".parse()?)
///     .on_error(OnError::Local { nodes: 10 })
///     .deadline(Duration::from_millis(5))
///     .build()?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "it is not made before `build`"]
pub struct Builder {
    store: RedisStore,
    name: String,
    rule: Rule,
    on_error: OnError,
    deadline: Option<Duration>,
    is_lent: bool,
}

/// A rule that Redis cannot keep.
///
/// ```no_run
/// # fn example(store: tidegate_redis::RedisStore) -> Result<(), tidegate::RuleError> {
/// let unsuited = store.limiter("huge", "1/week burst 9007199254740992".parse()?).unwrap_err();
/// println!("{unsuited}");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{rule}` cannot be kept in Redis")]
#[non_exhaustive]
pub struct Unsuited {
    /// The rule.
    pub rule: String,
    /// Why not.
    pub source: TooLarge,
}

impl Builder {
    pub(crate) fn new(store: RedisStore, name: &str, rule: Rule) -> Self {
        let (name, on_error) = (name.to_owned(), OnError::default());
        Self { store, name, rule, on_error, deadline: None, is_lent: false }
    }

    /// What happens when Redis does not answer. By itself, [`OnError::Local`] for one node.
    pub fn on_error(mut self, on_error: OnError) -> Self {
        self.on_error = on_error;
        self
    }

    /// How long an answer is waited for, if not as long as the store's settings say.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// Takes ahead of use, in leases, and decides hot keys here, at memory's speed. No more is admitted than by the
    /// rule; half of its burst is kept back for what others have taken ahead. Rules that cannot be lent out
    /// (see `docs/guide/redis.md`) are decided in Redis as ever. All who share the limit must say the same.
    pub fn lease(mut self, is_lent: bool) -> Self {
        self.is_lent = is_lent;
        self
    }

    /// The limiter. An error, if the rule's numbers are more than Redis's scripts can count.
    pub fn build(self) -> Result<RedisLimiter, Unsuited> {
        if let Err(source) = self.rule.limit().twin_numbers() {
            return Err(Unsuited { rule: self.rule.to_string(), source });
        }
        let deadline = self.deadline.unwrap_or(self.store.inner.settings.deadline);
        let fallback = Fallback::new(&self.rule, self.on_error);
        let leases = self.is_lent.then(|| Leases::new(&self.rule));
        let exact = Exact::new(self.store.inner, self.name, self.rule, deadline, self.is_lent);
        let (denied, tally) = (DeniedKeys::default(), Tally::default());
        let limiter =
            RedisLimiter { inner: Arc::new(Inner { exact, fallback, denied, leases, tally }) };
        limiter.keep();
        Ok(limiter)
    }
}

impl RedisLimiter {
    /// Decides about a request of cost 1, and charges it unless it is denied.
    pub async fn check(&self, key: impl AsRef<[u8]>) -> Decision {
        self.check_n(key, 1).await
    }

    /// Decides about a request of this cost, and charges it unless it is denied.
    pub async fn check_n(&self, key: impl AsRef<[u8]>, cost: u64) -> Decision {
        self.decide(key.as_ref(), cost).await.decision
    }

    /// The same, and says who decided.
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
        if let Some(told) = inner.still_denied(key, cost) {
            return told;
        }
        match inner.lent(key, cost).await {
            Some(Ok(told)) => return told,
            Some(Err(error)) => return inner.without(key, cost, &error),
            None => {}
        }
        let sent = inner.denied.now();
        match inner.exact.take(key, cost, None).await {
            Ok(taken) => {
                if taken.decision.is_deny() && inner.exact.is_denial_lasting() {
                    let known = (taken.answer, &taken.decision);
                    inner.denied.put(key, known, taken.version, cost, sent);
                }
                let decision = inner.fallback.warm(key, cost, taken.decision);
                inner.tally.decided(&decision);
                Told { decision, source: Source::Shared }
            }
            Err(error) => inner.without(key, cost, &error),
        }
    }

    /// The same for a request that may be sent twice: whoever asks again with the same `id` within 10 s is told
    /// the same, and charged once.
    pub async fn check_once(&self, key: impl AsRef<[u8]>, cost: u64, id: &str) -> Decision {
        let key = key.as_ref();
        if let Some(told) = self.inner.still_denied(key, cost) {
            return told.decision;
        }
        match self.inner.exact.take(key, cost, Some(id)).await {
            Ok(taken) => {
                let decision = self.inner.fallback.warm(key, cost, taken.decision);
                self.inner.tally.decided(&decision);
                decision
            }
            Err(error) => self.inner.without(key, cost, &error).decision,
        }
    }

    /// Decides, or says why there is no decision: for those who have a policy of their own.
    pub async fn try_check(
        &self,
        key: impl AsRef<[u8]>,
        cost: u64,
    ) -> Result<Decision, StoreError> {
        let taken = self.inner.exact.take(key.as_ref(), cost, None).await?;
        self.inner.tally.decided(&taken.decision);
        Ok(taken.decision)
    }

    /// What [`check_n`](Self::check_n) would say, without charging.
    pub async fn peek(&self, key: impl AsRef<[u8]>, cost: u64) -> Result<Decision, StoreError> {
        let seen = self.inner.exact.ask(key.as_ref(), Verb::Look, cost, None).await?;
        Ok(seen.decision)
    }

    /// Gives back `cost` of what was charged last, and never more than is charged.
    pub async fn refund(&self, key: impl AsRef<[u8]>, cost: u64) -> Result<(), StoreError> {
        let key = key.as_ref();
        self.inner.exact.ask(key, Verb::Refund, cost, None).await?;
        self.inner.fallback.refund(key, cost);
        self.inner.denied.forget(key);
        Ok(())
    }

    /// Forgets the key.
    pub async fn reset(&self, key: impl AsRef<[u8]>) -> Result<(), StoreError> {
        let key = key.as_ref();
        self.inner.exact.reset(key).await?;
        self.inner.fallback.reset(key);
        self.inner.denied.forget(key);
        if let Some(leases) = &self.inner.leases {
            leases.forget(key);
        }
        Ok(())
    }

    /// Takes a place under a concurrency limit; it is given back when the permit is dropped.
    pub async fn try_acquire(
        &self,
        key: impl AsRef<[u8]>,
        cost: u64,
    ) -> Result<RedisPermit, Denied> {
        let (key, inner) = (key.as_ref(), &*self.inner);
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
        let decision = inner.fallback.warm(key, cost, taken.decision);
        inner.tally.decided(&decision);
        decision.ok()?;
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
    pub async fn ready(&self) -> Result<(), StoreError> {
        self.inner.exact.known().await.map(drop)
    }

    /// The rule as it stands: another node may have changed it.
    pub fn rule(&self) -> Rule {
        self.inner.exact.rule()
    }

    /// Goes on under another rule, and so does every node: nobody is refunded, nobody is locked out.
    pub async fn set_rule(&self, rule: Rule) -> Result<(), StoreError> {
        self.inner.exact.publish(&rule).await?;
        self.inner.fallback.change(&rule);
        self.inner.denied.forget_all();
        if let Some(leases) = &self.inner.leases {
            leases.forget_all();
        }
        Ok(())
    }

    /// What has been decided here, and by whom.
    pub fn stats(&self) -> Stats {
        let mut stats = self.inner.tally.read();
        if let Some(leases) = &self.inner.leases {
            (stats.lent, stats.returned) = leases.lent();
        }
        stats
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
    fn keep(&self) {
        let limiter = Arc::downgrade(&self.inner);
        self.inner.exact.store().runtime.spawn(async move {
            for turn in 1_u32.. {
                tokio::time::sleep(lease::SWEEP).await;
                let Some(inner) = limiter.upgrade() else { return };
                if let Some(leases) = &inner.leases {
                    leases.sweep(&inner.exact).await;
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
    async fn hear(&self) {
        let Some(known) = self.exact.current() else { return };
        // Who is not there is asked again soon.
        let Ok(heard) = self.exact.hear().await else { return };
        if heard.version != known.version {
            tracing::info!(limit = self.exact.name(), "goes by `{}` now", heard.rule);
            self.fallback.change(&heard.rule);
            self.denied.forget_all();
            if let Some(leases) = &self.leases {
                leases.forget_all();
            }
        }
    }

    /// By a lease that has to be asked for first; nothing, if it is decided in Redis.
    async fn lent(self: &Arc<Self>, key: &[u8], cost: u64) -> Option<Result<Told, StoreError>> {
        let leases = self.leases.as_ref()?;
        if self.fallback.is_recovering() {
            // Redis would lend what was spent without it; so the share is asked about every request.
            return None;
        }
        let sent = self.denied.now();
        let told = match leases.refill(self, key, cost, sent).await {
            Ok(Outcome::Direct) => return None,
            Ok(Outcome::Spent(decision)) => Told { decision, source: Source::Leased },
            Ok(Outcome::Denied(decision, known)) => {
                if let Some(known) = known {
                    let denied = (known.answer, &decision);
                    self.denied.put(key, denied, known.version, cost, sent);
                }
                Told { decision, source: Source::Shared }
            }
            Err(error) => return Some(Err(error)),
        };
        self.tally.decided(&told.decision);
        Some(Ok(told))
    }

    /// Denied a moment ago, and time has not changed that.
    #[inline]
    fn told_already(&self, key: &[u8], cost: u64) -> Option<Told> {
        // What is remembered here goes by this node's time.
        if self.exact.store().clock.is_injected() {
            return None;
        }
        let last = self.denied.last(key, self.exact.version(), cost);
        let decision = last.or_else(|| {
            let current = self.exact.current_now();
            let current = current.as_ref()?;
            self.denied.get(key, &current.shared, current.version, cost)
        })?;
        self.tally.denied_here();
        Some(Told { decision, source: Source::Remembered })
    }

    /// Redis may not know yet what was admitted without it.
    fn still_denied(&self, key: &[u8], cost: u64) -> Option<Told> {
        let decision = self.fallback.still_denies(key, cost)?;
        // While the outage lasts, this is a failure like others, and counted as one.
        if !self.exact.is_up(key) {
            return None;
        }
        self.tally.decided(&decision);
        Some(Told { decision, source: Source::Local })
    }

    /// An answer without Redis.
    pub(crate) fn without(&self, key: &[u8], cost: u64, error: &StoreError) -> Told {
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
        self.tally.failed(self.exact.name(), error);
        let held = self.fallback.acquire(key, cost);
        let permit = held.map(|held| RedisPermit::held(limiter.clone(), key, held));
        let decision = permit.as_ref().map_or_else(|denied| denied.decision, RedisPermit::decision);
        self.tally.decided(&decision);
        permit
    }
}

//! Leased mode (B2): a node takes ahead of use, and decides at memory's speed.
//!
//! Always   Zero over-admission, by construction. What is lent is charged before it is used (`lua/driver/lend.lua`); what is
//!          lent and unused is at most half of the limit, and the limit that lends runs with so much less room
//!          (`tidegate_core::LeaseTerms`); a lease ends on the node before it ends in Redis (`purse.rs`); what is lent in
//!          a window ends with it; who dies has charged what nobody uses.
//! Always   After a primary was replaced or restarted, and when a node has just come, nothing is lent for as long as
//!          a lease lasts: leases that the new one knows nothing of have run out by then.
//! Always   Those who ask about a key while a lease is asked for wait for that one answer: whether it is a lease, a denial
//!          or a failure, it is theirs too. Nobody waits for longer than the limit's deadline, however many leases it
//!          takes; what was asked for is not given up with who asked, so that it is lent to the others.
//! Always   Where too much is lent and there is room, and where a slot of a cluster moves from node to node, requests are
//!          decided in Redis for a while, in one round trip each.
//! Bound    Unused: at most half of the limit at a time, for [`LASTS`] at the longest.

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

use crate::cache::SentAt;
use crate::connection::{Deadline, StoreError};
use crate::limiter::Inner;
use crate::random;
use crate::remote::Exact;
use crate::remote::rule_registry::Current;
use crate::script::codec::{Answer, Verb};
use balance::{Micros, Purse, Request};
use codec::Terms;
use cooldown::Quiet;
use refill::Errand;
use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tidegate::{Clock, Decision, Rule, SystemClock};
use tidegate_core::{Span, Timestamp};
use tokio::sync::Notify;

/// How long a lease lasts: a second at the most, for `lend.lua` keeps the list of them so much longer than the last.
pub(crate) const LASTS: Duration = Duration::from_secs(1);
/// Between two looks for leases that nobody uses.
pub(crate) const SWEEP: Duration = Duration::from_millis(250);
/// More keys than this have no leases, and longer ones neither: they are decided in Redis.
const KEYS_MAX: usize = 1 << 16;
const KEY_BYTES_MAX: usize = 512;
const SHARDS: usize = 64;

/// A limit's leases on this node.
#[derive(Debug)]
pub(crate) struct Leases {
    /// The most that the rule ever admits at one instant.
    limit: AtomicU64,
    /// The version of the rule that leases are of.
    version: AtomicU64,
    shards: Box<[Mutex<Shard>]>,
    clock: SystemClock,
    /// Tells these leases from others, and what is kept from what was.
    number: u64,
    generation: AtomicU64,
    /// Since which change of primaries, and from when on, leases are taken.
    quiet: Mutex<Quiet>,
    lent: AtomicU64,
    returned: AtomicU64,
}

#[derive(Debug, Default)]
struct Shard {
    purses: HashMap<Box<[u8]>, Arc<Kept>>,
}

#[derive(Debug)]
struct Kept {
    purse: Mutex<Purse>,
    answered: Arc<Notify>,
    /// What came of the last request for a lease: who waits for it reads it when it is `answered`.
    heard: Mutex<Heard>,
}

/// What came of a request for a lease, for those who wait for it.
#[derive(Clone, Debug)]
enum Heard {
    /// Something was lent, or nobody knows: look again.
    LookAgain,
    /// Nothing was lent, by this answer to who asked then.
    Nothing(Known, SentAt),
    Failure(StoreError),
}

impl Kept {
    #[inline]
    fn purse(&self) -> MutexGuard<'_, Purse> {
        self.purse.lock().expect("nobody panics with it")
    }

    fn heard(&self) -> MutexGuard<'_, Heard> {
        self.heard.lock().expect("nobody panics with it")
    }
}

/// The key that a thread asked about last: a hot one is found without a hash.
struct Memo {
    leases: u64,
    generation: u64,
    key: Vec<u8>,
    kept: Arc<Kept>,
}

thread_local! {
    static MEMO: RefCell<Option<Memo>> = const { RefCell::new(None) };
}

/// What a decision was made of, and of which version of the rule.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    pub(crate) answer: Answer,
    pub(crate) version: u64,
}

/// Whether something was spent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spent {
    No,
    Yes,
    /// And the next lease should be asked for.
    AndLow,
}

/// What a lease was asked for, and was not given.
pub(crate) enum Outcome {
    /// It passes.
    Spent(Decision),
    /// Redis denies it, by this answer.
    Denied(Decision, Option<Known>),
    /// There are no leases now: it is decided in Redis.
    Direct,
}

impl Leases {
    pub(crate) fn new(rule: &Rule) -> Self {
        let shards = (0..SHARDS).map(|_| Mutex::default()).collect();
        Self {
            limit: AtomicU64::new(limit_of(rule)),
            version: AtomicU64::new(0),
            shards,
            number: random::number(),
            generation: AtomicU64::new(0),
            clock: SystemClock::new(),
            quiet: Mutex::default(),
            lent: AtomicU64::new(0),
            returned: AtomicU64::new(0),
        }
    }

    /// How much was lent to this node, and how much of it was given back.
    pub(crate) fn lent(&self) -> (u64, u64) {
        (self.lent.load(Ordering::Relaxed), self.returned.load(Ordering::Relaxed))
    }

    fn now(&self) -> Micros {
        self.clock.now().as_micros()
    }

    #[inline]
    fn shard(&self, key: &[u8]) -> MutexGuard<'_, Shard> {
        self.shards[shard_of(key)].lock().expect("nobody panics with it")
    }

    /// Spends what is there, at memory's speed, and says how much is left then.
    ///
    /// What it returns fits into registers: a whole decision would go through memory twice.
    #[inline]
    pub(crate) fn spend(&self, key: &[u8], cost: u64) -> (u64, Spent) {
        MEMO.with_borrow_mut(|memo| {
            let generation = self.generation.load(Ordering::Acquire);
            let is_it = |memo: &Memo| {
                memo.leases == self.number && memo.generation == generation && memo.key == key
            };
            if !memo.as_ref().is_some_and(is_it) {
                let Some(kept) = self.find(key) else { return (0, Spent::No) };
                *memo = Some(Memo { leases: self.number, generation, key: key.to_vec(), kept });
            }
            let Some(memo) = memo else { return (0, Spent::No) };
            let now = self.now();
            let mut purse = memo.kept.purse();
            if !purse.spend(now, cost) {
                return (0, Spent::No);
            }
            let left = purse.left(now);
            (left, if purse.tells_low(left) { Spent::AndLow } else { Spent::Yes })
        })
    }

    fn find(&self, key: &[u8]) -> Option<Arc<Kept>> {
        self.shard(key).purses.get(key).cloned()
    }

    /// Threads that remember a key look for it anew.
    fn renew(&self) {
        self.generation.fetch_add(1, Ordering::AcqRel);
    }

    #[inline]
    pub(crate) fn allowed(&self, left: u64) -> Decision {
        let mut decision = Decision::UNLIMITED;
        (decision.limit, decision.remaining) = (self.limit.load(Ordering::Relaxed), left);
        decision.reset_after = Span::from(LASTS);
        decision
    }

    /// Asks for a lease and spends from it; or waits for one that was asked for already. What is left of the deadline
    /// then is for who decides instead.
    pub(crate) async fn refill(
        &self,
        inner: &Arc<Inner>,
        key: &[u8],
        cost: u64,
        asked: SentAt,
        deadline: Deadline,
    ) -> Result<Outcome, StoreError> {
        let exact = &inner.exact;
        if cost == 0 || key.len() > KEY_BYTES_MAX {
            return Ok(Outcome::Direct);
        }
        let current = self.current(exact, deadline).await?;
        let most = current.lending.as_ref().map_or(0, |lending| lending.leased_max);
        if cost > most {
            return Ok(Outcome::Direct);
        }
        loop {
            // Also after the rule was asked for, and after somebody else was waited for: primaries change meanwhile.
            if self.is_quiet(exact) {
                return Ok(Outcome::Direct);
            }
            match self.begin(key, cost, most) {
                Begun::Direct => return Ok(Outcome::Direct),
                Begun::Spent(left) => return Ok(Outcome::Spent(self.allowed(left))),
                Begun::Wait(kept, answered) => {
                    let answered = deadline.cut(answered).await;
                    answered.ok_or_else(|| exact.timed_out())?;
                    let heard = kept.heard().clone();
                    if let Some(outcome) = shared_with(inner, &current, heard, cost)? {
                        return Ok(outcome);
                    }
                }
                Begun::Ask(kept, request) => {
                    let errand = Errand::new(inner, key, cost, kept, request, asked);
                    let mut lent = Box::pin(errand.run());
                    let Some(lent) = deadline.cut(&mut lent).await else {
                        // Others wait for it too, and for longer: some of its time was spent on waiting for others.
                        exact.store().runtime.spawn(lent);
                        return Err(exact.timed_out());
                    };
                    return Ok(self.outcome(lent?));
                }
            }
        }
    }

    /// Asks for the next lease while this one is spent.
    pub(crate) async fn prefetch(&self, inner: &Arc<Inner>, key: &[u8], asked: SentAt) {
        let exact = &inner.exact;
        // What was admitted without Redis is not lent again: who asks next is decided in Redis and by the share.
        if self.is_quiet(exact) || inner.fallback.is_recovering(key) {
            return;
        }
        let Ok(current) = self.current(exact, exact.within()).await else { return };
        let Some(lending) = &current.lending else { return };
        let Some(kept) = self.find(key) else { return };
        let request = {
            let now = self.now();
            let mut purse = kept.purse();
            if !purse.is_low(purse.left(now)) || purse.is_resting(now) {
                return;
            }
            purse.ask(now, 1, size_max(lending.leased_max))
        };
        if let Err(error) = Errand::new(inner, key, 0, kept, request, asked).run().await {
            tracing::debug!("no lease ahead: {error}");
        }
    }

    /// The rule that all go by. Leases of another are not spent.
    async fn current(&self, exact: &Exact, deadline: Deadline) -> Result<Arc<Current>, StoreError> {
        let current = exact.known(deadline).await?;
        if self.version.swap(current.version, Ordering::AcqRel) != current.version {
            self.limit.store(limit_of(&current.rule), Ordering::Relaxed);
            self.forget_all();
        }
        Ok(current)
    }

    fn begin(&self, key: &[u8], cost: u64, most: u64) -> Begun {
        let now = self.now();
        let Some(kept) = self.find_or_make(key, now) else { return Begun::Direct };
        let mut purse = kept.purse();
        if purse.spend(now, cost) {
            return Begun::Spent(purse.left(now));
        }
        if purse.is_asking() {
            // Registered before the lock is let go, so that the answer is not missed.
            purse.wait(cost);
            let answered = Arc::clone(&kept.answered).notified_owned();
            drop(purse);
            return Begun::Wait(kept, answered);
        }
        if purse.is_resting(now) {
            return Begun::Direct;
        }
        let request = purse.ask(now, cost, size_max(most));
        drop(purse);
        Begun::Ask(kept, request)
    }

    fn find_or_make(&self, key: &[u8], now: Micros) -> Option<Arc<Kept>> {
        let mut shard = self.shard(key);
        if let Some(kept) = shard.purses.get(key) {
            return Some(Arc::clone(kept));
        }
        if shard.purses.len() >= KEYS_MAX / SHARDS {
            return None;
        }
        let purse = Mutex::new(Purse::new(now));
        let heard = Mutex::new(Heard::LookAgain);
        let kept = Arc::new(Kept { purse, answered: Arc::new(Notify::new()), heard });
        shard.purses.insert(key.into(), Arc::clone(&kept));
        Some(kept)
    }

    fn outcome(&self, said: Lent) -> Outcome {
        match said {
            Lent::Spent(left) => Outcome::Spent(self.allowed(left)),
            Lent::Denied(decision, known) if decision.is_deny() => Outcome::Denied(decision, known),
            // There would be room, but too much is lent already; or what was lent is not to be spent.
            Lent::Denied(..) | Lent::Quiet => Outcome::Direct,
        }
    }

    /// Whether leases that nobody knows of may still be about.
    fn is_quiet(&self, exact: &Exact) -> bool {
        let changes = exact.store().link.changes();
        let mut quiet = self.quiet.lock().expect("nobody panics with it");
        quiet.is_on(changes, self.now())
    }

    /// Gives back what nobody uses, and forgets what is over.
    pub(crate) async fn sweep(&self, inner: &Inner) {
        let (now, version) = (self.now(), inner.exact.version());
        let idle = Span::from(SWEEP).as_micros();
        let mut requests: Vec<(Box<[u8]>, Request)> = Vec::new();
        for shard in &self.shards {
            let mut shard = shard.lock().expect("nobody panics with it");
            for (key, kept) in &shard.purses {
                let mut purse = kept.purse();
                if !purse.is_asking() && now.saturating_sub(purse.spent_last()) >= idle {
                    requests.extend(purse.give_back(now).map(|request| (key.clone(), request)));
                }
            }
            let lasts = Span::from(LASTS).as_micros();
            let before = shard.purses.len();
            shard.purses.retain(|_, kept| {
                let purse = kept.purse();
                !purse.is_over(now) || now.saturating_sub(purse.spent_last()) < 4 * lasts
            });
            if shard.purses.len() < before {
                self.renew();
            }
        }
        for (key, request) in requests {
            if inner.exact.version() != version {
                // What was lent under another rule was charged in other numbers: it runs out.
                return;
            }
            let unused: u64 = request.closed.iter().map(|closed| closed.unused).sum();
            let terms = Terms { number: 0, at_least: 0 };
            match inner.exact.lend(&key, &terms, &request).await {
                Ok(_) => {
                    inner.denied.forget(&key);
                    self.returned.fetch_add(unused, Ordering::Relaxed);
                }
                // It runs out by itself.
                Err(error) => tracing::debug!("a lease is not given back: {error}"),
            }
        }
    }

    /// Nothing is spent any more: the rule has changed.
    pub(crate) fn forget_all(&self) {
        for shard in &self.shards {
            shard.lock().expect("nobody panics with it").purses.clear();
        }
        self.renew();
    }

    /// Nothing of this key is spent any more.
    pub(crate) fn forget(&self, key: &[u8]) {
        self.shard(key).purses.remove(key);
        self.renew();
    }
}

/// Which shard it is only matters for who waits for whom; the map in it has a hash that nobody can foresee.
#[inline]
fn shard_of(key: &[u8]) -> usize {
    let short = || key.iter().fold(0, |all, byte| all << 8 | u64::from(*byte));
    let tail = key.last_chunk::<8>().map_or_else(short, |bytes| u64::from_le_bytes(*bytes));
    let mixed = (tail ^ key.len() as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    usize::try_from(mixed >> 58).unwrap_or(0)
}

enum Begun {
    /// There are leases of too many keys, or too much of this one is lent.
    Direct,
    Wait(Arc<Kept>, tokio::sync::futures::OwnedNotified),
    Spent(u64),
    Ask(Arc<Kept>, Request),
}

enum Lent {
    Spent(u64),
    Denied(Decision, Option<Known>),
    /// Perhaps by a primary that knows nothing of leases that are still about, or of what a share has admitted: it is not
    /// spent, and runs out. Or nothing was lent, because the slot moves.
    Quiet,
}

/// What was said to somebody else, for who has waited for it. Nothing, if there is something to look for again.
fn shared_with(
    inner: &Inner,
    current: &Current,
    heard: Heard,
    cost: u64,
) -> Result<Option<Outcome>, StoreError> {
    let (known, asked) = match heard {
        Heard::LookAgain => return Ok(None),
        Heard::Failure(error) => return Err(error),
        Heard::Nothing(known, asked) => (known, asked),
    };
    // It may be from before this request: somebody may have given back in between, and must not be denied by it.
    if known.version != current.version || inner.denied.has_forgotten_since(asked) {
        return Ok(Some(Outcome::Direct));
    }
    let decision = current.shared.decision(&known.answer, Verb::Look, cost);
    let decision = decision.map_err(|strange| inner.exact.strange(&strange))?;
    // Who asked remembers it, and when it was sent.
    Ok(Some(if decision.is_deny() { Outcome::Denied(decision, None) } else { Outcome::Direct }))
}

/// So much is lent to one node at the most, so that something is left for others.
fn size_max(most: u64) -> u64 {
    (most / 2).max(1)
}

/// The most that a rule ever admits at one instant.
fn limit_of(rule: &Rule) -> u64 {
    let limit = rule.limit();
    limit.peek(&limit.fresh(Timestamp::EPOCH), Timestamp::EPOCH, 0).limit
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{RedisLimiter, RedisStore, Settings};
    use std::collections::HashSet;
    use tidegate_testbed::RedisServer;
    use tokio::time::sleep;

    #[test]
    fn keys_of_any_length_are_spread_over_all_shards() {
        for bytes in 2..=9 {
            let key = |number: u16| [vec![b'x'; bytes - 2], number.to_le_bytes().to_vec()].concat();
            let shards: HashSet<usize> = (0..4_096).map(|number| shard_of(&key(number))).collect();
            assert!(shards.len() > SHARDS / 2, "{bytes} bytes: {} shards", shards.len());
        }
    }

    /// Somebody who takes leases, and has waited for it.
    async fn leasing(server: &RedisServer, name: &str) -> RedisLimiter {
        let address = server.url().parse().expect("it is an address");
        let settings = Settings::default().deadline(Duration::from_secs(20));
        let store = RedisStore::connect_with(&address, settings).await;
        let rule = "100/h burst 100".parse().expect("it is a rule");
        let limiter = store.builder(name, rule).lease(true).build().expect("Redis can count it");
        // Nobody lends to who has just come.
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
    async fn who_was_denied_for_a_lease_is_not_when_that_is_given_back() {
        let server = RedisServer::start();
        for attempt in 0.. {
            let limiter = leasing(&server, &attempt.to_string()).await;
            let _ = limiter.check("key").await;
            let has_returned = limiter.stats().returned;
            // Fifty are kept back; with a lease there are fewer than these.
            if limiter.check_n("key", 45).await.is_allow() {
                continue; // The machine was so busy that it had been given back already.
            }
            while limiter.stats().returned == has_returned {
                sleep(Duration::from_millis(10)).await;
            }
            assert!(limiter.check_n("key", 45).await.is_allow(), "it is given back");
            return;
        }
    }
}

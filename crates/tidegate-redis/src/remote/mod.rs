//! Exact decisions: one script, one round trip.
//!
//! Always   Whoever learns of another rule, by asking for it or by meeting a state of it, has the limiter go by it as a
//!          whole: its share, its leases and what it remembers are never of another rule than its decisions.

pub(crate) mod rule_registry;

use crate::connection::{Deadline, StoreError};
use crate::limiter;
use crate::script;
use crate::script::codec::{Answer, Malformed, Said, Verb, bytes};
use crate::script::key_name;
use crate::script::stored_value;
use crate::store::Inner;
use arc_swap::ArcSwapOption;
use redis::Value;
use rule_registry::{Current, Published, Question};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tidegate::rule::Window;
use tidegate::{Decision, Rule};
use tidegate_core::{Limit, Span, Timestamp, Verdict};

/// Rules may change while somebody asks, and again; after so many times it is told so.
const ROUNDS_MAX: usize = 8;
/// How long the answer to a request with an id is kept: who asks again within it is charged once.
///
/// ```
/// use tidegate::Span;
/// use tidegate_redis::ONCE_SPAN;
///
/// assert!(ONCE_SPAN > Span::from_secs(1), "a client gives up and asks again sooner than that");
/// ```
pub const ONCE_SPAN: Span = Span::from_secs(10);

/// A limit in Redis.
#[derive(Debug)]
pub(crate) struct Exact {
    store: Arc<Inner>,
    /// Who has to hear of another rule.
    limiter: Weak<limiter::Inner>,
    name: String,
    /// The rule that this node was told.
    told: arc_swap::ArcSwap<Rule>,
    /// The rule that all go by, once Redis has been asked.
    current: ArcSwapOption<Current>,
    /// Its version, for who needs to know nothing else; 0 if nobody knows.
    version: AtomicU64,
    /// Held by who asks for the rule: others wait for that answer, in their order.
    learning: tokio::sync::Mutex<()>,
    deadline: Duration,
    /// Whether parts of it are lent out.
    is_lent: bool,
}

/// A decision, and what it was made of.
#[derive(Debug)]
pub(crate) struct Taken {
    pub(crate) decision: Decision,
    pub(crate) answer: Answer,
    pub(crate) version: u64,
    /// Whether it was said before, to who asked with the same id.
    pub(crate) is_repeated: bool,
}

impl Exact {
    pub(crate) fn new(
        store: Arc<Inner>,
        limiter: Weak<limiter::Inner>,
        name: String,
        rule: Rule,
        deadline: Duration,
        is_lent: bool,
    ) -> Self {
        let told = arc_swap::ArcSwap::from_pointee(rule);
        let (current, learning) = (ArcSwapOption::empty(), tokio::sync::Mutex::default());
        let version = AtomicU64::new(0);
        Self { store, limiter, name, told, current, version, learning, deadline, is_lent }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn rule(&self) -> Rule {
        let current = self.current.load();
        current
            .as_ref()
            .map_or_else(|| Rule::clone(&self.told.load()), |current| current.rule.clone())
    }

    /// What is said of a key that does not deny, where nobody knows what is left.
    pub(crate) fn unknown(&self) -> Decision {
        self.rule().limit().without_state(Verdict::Allow)
    }

    /// The decision of a rule that admits nothing, which needs no state and so no Redis: the same whether Redis answers or
    /// not. None under every other rule. Every method that decides asks this first.
    pub(crate) fn settled(&self, cost: u64) -> Option<Decision> {
        let current = self.current.load();
        let told = current.is_none().then(|| self.told.load());
        let rule = match (&*current, &told) {
            (Some(current), _) => &current.rule,
            (None, told) => &***told.as_ref()?,
        };
        let (limit, now) = (rule.limit(), Timestamp::EPOCH);
        rule.admits_nothing().then(|| limit.peek(&limit.fresh(now), now, cost))
    }

    /// The rule that all go by, for a moment.
    pub(crate) fn current_now(&self) -> arc_swap::Guard<Option<Arc<Current>>> {
        self.current.load()
    }

    /// The version of that rule.
    #[inline]
    pub(crate) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    pub(crate) fn current(&self) -> Option<Arc<Current>> {
        self.current.load_full()
    }

    /// Whether a denial holds until time has passed: not where somebody may leave earlier.
    pub(crate) fn is_denial_lasting(&self) -> bool {
        self.current.load().as_ref().is_some_and(|current| !current.rule.is_concurrency())
    }

    /// Decides, and charges unless it denies.
    pub(crate) async fn take(
        &self,
        key: &[u8],
        cost: u64,
        once: Option<&str>,
    ) -> Result<Taken, StoreError> {
        self.ask(key, Verb::Take, cost, once).await
    }

    pub(crate) async fn ask(
        &self,
        subject: &[u8],
        verb: Verb,
        cost: u64,
        once: Option<&str>,
    ) -> Result<Taken, StoreError> {
        self.ask_within(self.within(), subject, verb, cost, once).await
    }

    /// The same for who has waited already.
    pub(crate) async fn ask_within(
        &self,
        deadline: Deadline,
        subject: &[u8],
        verb: Verb,
        cost: u64,
        once: Option<&str>,
    ) -> Result<Taken, StoreError> {
        let key = self.key(subject);
        let mut around = self.store.clock.about();
        for _ in 0..ROUNDS_MAX {
            let current = self.known(deadline).await?;
            let shared = &current.shared;
            let mut keys = vec![key.clone()];
            let (script, args) = match once.filter(|_| cost > 0 && shared.is_sendable(cost)) {
                Some(id) => {
                    keys.push(key_name::once(&key, cost, id));
                    let args = shared.args(verb, cost, around);
                    let span = if verb == Verb::Take { ONCE_SPAN } else { Span::ZERO };
                    let once_ms = (span.as_micros() / 1_000).to_string();
                    (shared.script(), vec![args, shared.fresh().to_vec(), once_ms.into()])
                }
                None => shared.question(verb, cost, around),
            };
            let is_once = keys.len() > 1;
            let mut value = self.store.run(script, keys, args, deadline).await?;
            let (mut version, mut before, mut is_repeated) = (current.version, None, false);
            if is_once {
                (version, value, is_repeated) = said_by(value)
                    .ok_or_else(|| self.malformed("nothing for a request with an id".to_owned()))?;
            }
            if version > current.version {
                self.learn(deadline, Question::Have).await?;
                continue;
            }
            if version < current.version {
                // It was answered before, by the rule of that time: who asks again is told the same.
                before = current.shared_before(version);
            }
            let shared = before.as_ref().unwrap_or(shared);
            match shared.read(&value).map_err(|strange| self.strange(&strange))? {
                Said::Answer(answer) => {
                    // What is kept was said to who took.
                    let verb = if is_repeated { Verb::Take } else { verb };
                    let decision = shared.decision(&answer, verb, cost);
                    let decision = decision.map_err(|strange| self.strange(&strange))?;
                    return Ok(Taken { decision, answer, version, is_repeated });
                }
                Said::OtherTime(now) => {
                    self.store.clock.heard(now);
                    around = now;
                }
                Said::OtherVersion(value) => {
                    self.reconcile(deadline, &key, &value, &current).await?;
                }
            }
        }
        Err(self
            .malformed("a state of yet another version of the rule, again and again".to_owned()))
    }

    /// The window that counts now, by Redis's time.
    pub(crate) async fn window(&self, subject: &[u8]) -> Result<Option<Window>, StoreError> {
        let deadline = self.within();
        for _ in 0..ROUNDS_MAX {
            let seen = self.ask_within(deadline, subject, Verb::Look, 0, None).await?;
            let Some(current) = self.current().filter(|it| it.version == seen.version) else {
                // The rule has changed since: what was seen is of another one.
                continue;
            };
            let state = current.shared.state(&seen.answer);
            let state = state.map_err(|strange| self.strange(&strange))?;
            return Ok(current.shared.limit().window(&state, seen.answer.now()));
        }
        Err(self.malformed("yet another version of the rule, again and again".to_owned()))
    }

    /// The words of the command that a decision sends.
    pub(crate) async fn command(
        &self,
        subject: &[u8],
        cost: u64,
    ) -> Result<Vec<Vec<u8>>, StoreError> {
        let current = self.known(self.within()).await?;
        let shared = &current.shared;
        let (script, args) = shared.question(Verb::Take, cost, self.store.clock.about());
        let hash = script.hash().as_bytes().to_vec();
        let words = [b"EVALSHA".to_vec(), hash, b"1".to_vec(), self.key(subject)];
        Ok([&words[..], &args].concat())
    }

    /// The rule that all go by.
    pub(crate) async fn known(&self, deadline: Deadline) -> Result<Arc<Current>, StoreError> {
        if let Some(current) = self.current.load_full() {
            return Ok(current);
        }
        let learning = deadline.cut(self.learning.lock()).await;
        let _alone = learning.ok_or_else(|| self.timed_out())?;
        match self.current.load_full() {
            Some(current) => Ok(current),
            // Who comes with a rule has it from a configuration that is newer than what Redis remembers.
            None => self.learn(deadline, Question::Publish).await,
        }
    }

    /// Asks what rule all go by, or tells them.
    async fn learn(
        &self,
        deadline: Deadline,
        question: Question,
    ) -> Result<Arc<Current>, StoreError> {
        let known = self.current.load_full();
        let version = known.as_ref().map_or(0, |known| known.version);
        // A version goes with its own text: who was told another rule since then goes by this one all the same.
        let (rule, is_lent) = match known.filter(|_| question == Question::Have) {
            Some(known) => (known.rule.clone(), known.lending.is_some()),
            None => (Rule::clone(&self.told.load()), self.is_lent),
        };
        let told = Published { rule: &rule, is_lent, version };
        let asked = rule_registry::ask(&self.store, &self.name, &told, question, deadline);
        let learned = Arc::new(asked.await?);
        // Two may have asked at the same time: the newer answer stays.
        let _before = self.current.rcu(|known| match known {
            Some(known) if known.version >= learned.version => Arc::clone(known),
            _ => Arc::clone(&learned),
        });
        let current = self.current.load_full().unwrap_or(learned);
        self.version.fetch_max(current.version, Ordering::AcqRel);
        if let Some(limiter) = self.limiter.upgrade() {
            limiter.follow(&current);
        }
        Ok(current)
    }

    /// Asks what rule all go by.
    pub(crate) async fn hear(&self) -> Result<Arc<Current>, StoreError> {
        self.learn(self.within(), Question::Have).await
    }

    /// Tells all nodes to go by this rule.
    pub(crate) async fn publish(&self, rule: &Rule) -> Result<(), StoreError> {
        self.told.store(Arc::new(rule.clone()));
        if self.current.load().is_some() {
            // If Redis has lost the rule that states here are of, it has to know both.
            self.hear().await?;
        }
        self.learn(self.within(), Question::Publish).await.map(drop)
    }

    /// A state of another version: of a newer one, which is then learned; or of an older one, which is taken over.
    pub(crate) async fn reconcile(
        &self,
        deadline: Deadline,
        key: &[u8],
        seen: &[u8],
        current: &Current,
    ) -> Result<(), StoreError> {
        let Some(version) = stored_value::version(seen) else {
            return Err(self.malformed(format!("the value {seen:?}, which is none of ours")));
        };
        if version > current.version {
            let learned = self.learn(deadline, Question::Have).await?;
            if learned.version < version {
                // What is newer than the newest was lost with it: this rule is the newest again.
                return self.take_over(deadline, key, seen, None, current).await;
            }
            return Ok(());
        }
        let old = current.before.get(&version);
        self.take_over(deadline, key, seen, old, current).await
    }

    async fn take_over(
        &self,
        deadline: Deadline,
        key: &[u8],
        seen: &[u8],
        old: Option<&Rule>,
        current: &Current,
    ) -> Result<(), StoreError> {
        let keys = vec![key.to_vec()];
        let now = self.store.run(script::time(), keys.clone(), Vec::new(), deadline).await?;
        let Value::Int(now) = now else {
            return Err(self.malformed(format!("{now:?} for the time")));
        };
        let now = Timestamp::from_micros(now.unsigned_abs());
        let limit: &Limit = current.shared.limit();
        let was = old.and_then(|old| Some((old.limit(), stored_value::read(old.limit(), seen)?)));
        let state = match &was {
            // As of when the rule changed, or was last gone by: from then on the new one holds.
            Some((old, state)) => {
                let changed = Timestamp::from_micros(current.version);
                let since = stored_value::written(old, seen)
                    .map_or(changed, |written| written.max(changed));
                limit.take_over(old, state, since.min(now))
            }
            // Nobody knows what it was: nothing is left, so nobody is refunded. Places say themselves who holds them.
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
        // If somebody was faster, the next round sees it.
        self.store.run(script::swap(), keys, args, deadline).await.map(drop)
    }

    /// Gives a place back; whether it was held.
    pub(crate) async fn release(
        &self,
        subject: &[u8],
        (ticket, since): (u64, Timestamp),
    ) -> Result<bool, StoreError> {
        let (key, deadline) = (self.key(subject), self.within());
        for _ in 0..ROUNDS_MAX {
            let current = self.known(deadline).await?;
            if !current.rule.is_concurrency() {
                // Places went with the rule.
                return Ok(false);
            }
            #[expect(clippy::cast_precision_loss, reason = "they came as doubles")]
            let numbers = [current.version, ticket, since.as_micros()].map(|number| number as f64);
            let args = vec![bytes(&numbers)];
            let keys = vec![key.clone()];
            match self.store.run(script::release(), keys, args, deadline).await? {
                Value::Int(held) => return Ok(held == 1),
                Value::BulkString(value) => {
                    self.reconcile(deadline, &key, &value, &current).await?;
                }
                other => return Err(self.malformed(format!("{other:?} for a place"))),
            }
        }
        Ok(false)
    }

    /// Forgets a key.
    pub(crate) async fn reset(&self, subject: &[u8]) -> Result<(), StoreError> {
        let key = self.key(subject);
        self.store.run(script::forget(), vec![key], Vec::new(), self.within()).await.map(drop)
    }

    /// Whether Redis is asked about this subject at all, now.
    pub(crate) fn is_up(&self, subject: &[u8]) -> bool {
        self.store.link.is_up(&self.key(subject))
    }

    pub(crate) fn key(&self, subject: &[u8]) -> Vec<u8> {
        key_name::of(&self.store.settings.prefix, &self.name, subject)
    }

    pub(crate) fn store(&self) -> &Arc<Inner> {
        &self.store
    }

    pub(crate) fn deadline(&self) -> Duration {
        self.deadline
    }

    /// The deadline of a request that comes now: one for all that is done for it.
    pub(crate) fn within(&self) -> Deadline {
        Deadline::from(self.deadline)
    }

    /// There was no answer within the deadline.
    pub(crate) fn timed_out(&self) -> StoreError {
        StoreError::TimedOut { address: self.address(), waited: self.deadline }
    }

    pub(crate) fn strange(&self, malformed: &Malformed) -> StoreError {
        self.malformed(malformed.to_string())
    }

    pub(crate) fn malformed(&self, what: String) -> StoreError {
        StoreError::Malformed { address: self.address(), what }
    }

    fn address(&self) -> String {
        self.store.link.nodes().first().map(|node| node.address()).unwrap_or_default()
    }
}

/// What was said to a request with an id, and by which version of the rule.
fn said_by(value: Value) -> Option<(u64, Value, bool)> {
    let Value::Array(mut parts) = value else { return None };
    let is_repeated = parts.len() == 3 && parts.pop() == Some(Value::Int(1));
    let [Value::Int(version), said] = <[Value; 2]>::try_from(parts).ok()? else { return None };
    Some((u64::try_from(version).ok()?, said, is_repeated))
}

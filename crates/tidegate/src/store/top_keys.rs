//! The busiest keys of each shard, in a fixed number of counters, however many keys there are.
//!
//! Always   Space-Saving (Metwally, Agrawal, El Abbadi 2005) over every decision, in sets of [`WAYS`] counters: a
//!          fingerprint chooses the set, so a decision looks at one set only. The true count of a listed key is at least
//!          `count - error` and at most `count`. A key that makes up more than 1/[`WAYS`] of the decisions of its set is
//!          always listed, and where a set has fewer keys than counters every count is exact.
//! Always   Counts are of this [`TERM`] and the one before it. All shards begin a term at the same time.

use super::fingerprint::Fingerprint;
use std::fmt;
use std::hash::{Hash, Hasher};
use tidegate_core::{Span, Timestamp};

/// CounterSets in a set.
const WAYS: usize = 8;
/// Sets in each shard.
const SETS: usize = 8;
const TERM: Span = Span::from_secs(60);
/// Names are cut after so many bytes.
const NAME_MAX: usize = 128;

/// A key that is asked about a lot; see [`Limiter::top`](crate::Limiter::top).
///
/// ```
/// use tidegate::{Limiter, ManualClock};
///
/// let limiter = Limiter::builder("1000/s".parse()?).top_keys().with_clock(ManualClock::new());
/// for _ in 0..17 {
///     let _ = limiter.check("alice");
/// }
/// let top = limiter.top(1);
/// assert_eq!(top.hot[0].name.to_string(), "alice");
/// assert_eq!(top.hot[0].fingerprint, limiter.fingerprint("alice"));
/// assert_eq!((top.hot[0].count, top.hot[0].error), (17, 0));
/// # Ok::<(), tidegate::RuleError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TopKey {
    /// What it is called.
    pub name: KeyName,
    /// Its [fingerprint](crate::Limiter::fingerprint), which tells keys apart whose names are cut.
    pub fingerprint: u128,
    /// How often it was asked about within [`Top::window`], at most.
    pub count: u64,
    /// By how much `count` may be too high: the true count is at least `count - error`. Zero where the count is exact,
    /// which it is for every key as long as there are few.
    pub error: u64,
}

impl TopKey {
    /// How often it was asked about at least; the lists are in this order.
    ///
    /// ```
    /// # use tidegate::{Limiter, ManualClock};
    /// let limiter = Limiter::builder("1/h".parse()?).top_keys().with_clock(ManualClock::new());
    /// let _ = limiter.check("alice");
    /// assert_eq!(limiter.top(1).hot[0].at_least(), 1);
    /// # Ok::<(), tidegate::RuleError>(())
    /// ```
    pub fn at_least(&self) -> u64 {
        self.count.saturating_sub(self.error)
    }
}

/// The keys that are asked about most, and those that are refused most.
///
/// ```
/// use tidegate::{Limiter, ManualClock};
///
/// let limiter = Limiter::builder("1/h".parse()?).top_keys().with_clock(ManualClock::new());
/// for _ in 0..1_000 {
///     let _ = limiter.check("mallory");
/// }
/// assert_eq!(limiter.top(5).denied[0].name.to_string(), "mallory");
/// # Ok::<(), tidegate::RuleError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Top {
    /// Asked about most, the first one the most.
    pub hot: Vec<TopKey>,
    /// Refused most.
    pub denied: Vec<TopKey>,
    /// How far back the counts reach: one to two minutes.
    pub window: Span,
}

/// What a key is called: the bytes that it hashes. Text and byte strings read as they are; of other
/// types it is their bytes in hexadecimal.
///
/// ```
/// # use tidegate::{Limiter, ManualClock};
/// let limiter = Limiter::builder("1/h".parse()?).top_keys().with_clock(ManualClock::new());
/// for _ in 0..100 {
///     let _ = limiter.check(&258_u16);
/// }
/// assert_eq!(limiter.top(1).hot[0].name.to_string(), "0x0201");
/// # Ok::<(), tidegate::RuleError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct KeyName(Vec<u8>);

impl KeyName {
    pub(crate) const NONE: Self = Self(Vec::new());

    pub(crate) fn of<K: Hash + ?Sized>(key: &K) -> Self {
        let mut name = Self::default();
        key.hash(&mut name);
        name
    }

    /// The bytes, as they were hashed.
    ///
    /// ```
    /// # use tidegate::{Limiter, ManualClock};
    /// let limiter = Limiter::builder("1/h".parse()?).top_keys().with_clock(ManualClock::new());
    /// for _ in 0..100 {
    ///     let _ = limiter.check("alice");
    /// }
    /// assert!(limiter.top(1).hot[0].name.as_bytes().starts_with(b"alice"));
    /// # Ok::<(), tidegate::RuleError>(())
    /// ```
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// It "hashes" a key by remembering what is hashed.
impl Hasher for KeyName {
    fn finish(&self) -> u64 {
        0
    }

    fn write(&mut self, bytes: &[u8]) {
        let room = NAME_MAX - self.0.len();
        self.0.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }
}

impl fmt::Display for KeyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Text ends with a byte that no text has.
        let text = self.0.strip_suffix(&[0xff]).unwrap_or(&self.0);
        match std::str::from_utf8(text) {
            Ok(text) if !text.is_empty() && !text.chars().any(char::is_control) => {
                f.write_str(text)
            }
            _ => {
                f.write_str("0x")?;
                self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
        }
    }
}

/// Which term a time is in.
fn term(now: Timestamp) -> u64 {
    now.as_micros() / TERM.as_micros()
}

/// How far back counts reach that are listed at this time.
pub(in crate::store) fn window(now: Timestamp) -> Span {
    let into_term = Span::from_micros(now.as_micros() % TERM.as_micros());
    if term(now) == 0 { into_term } else { TERM + into_term }
}

#[derive(Clone, Debug, Default)]
pub(in crate::store) struct Sketch {
    /// The present term.
    term: u64,
    now: CounterSets,
    before: CounterSets,
}

impl Sketch {
    #[inline]
    pub(in crate::store) fn add(
        &mut self,
        key: Fingerprint,
        now: Timestamp,
        name: impl FnOnce() -> KeyName,
    ) {
        let term = term(now);
        if term != self.term {
            self.turn_to(term);
        }
        self.now.add(key, name);
    }

    /// A clock that has just stepped back a little goes on with the present term; after a larger step, as after a change
    /// between rules that go by different clocks, all counts are of another time.
    #[cold]
    fn turn_to(&mut self, term: u64) {
        if term + 1 == self.term {
            return;
        }
        let now = std::mem::take(&mut self.now);
        self.before = if term == self.term + 1 { now } else { CounterSets::default() };
        self.term = term;
    }

    /// All keys that have a counter.
    pub(in crate::store) fn list(&self, now: Timestamp) -> Vec<TopKey> {
        let none = CounterSets::default();
        match term(now).checked_sub(self.term) {
            None | Some(0) => list(&self.now, &self.before),
            Some(1) => list(&none, &self.now),
            Some(_) => Vec::new(),
        }
    }
}

/// The counters of one term; none before the first decision.
#[derive(Clone, Debug, Default)]
struct CounterSets {
    sets: Vec<Set>,
}

/// The counters that some keys compete for. The fingerprints lie side by side, because every decision looks for one.
#[derive(Clone, Debug, Default)]
struct Set {
    keys: [Option<Fingerprint>; WAYS],
    counters: [Counter; WAYS],
}

#[derive(Clone, Debug, Default)]
struct Counter {
    count: u64,
    error: u64,
    name: KeyName,
}

impl CounterSets {
    #[inline]
    fn add(&mut self, key: Fingerprint, name: impl FnOnce() -> KeyName) {
        if self.sets.is_empty() {
            self.sets.resize_with(SETS, Set::default);
        }
        self.sets[set_of(key)].add(key, name);
    }
}

/// By bits of the low word that choose neither the shard nor the hot cell.
#[expect(clippy::cast_possible_truncation, reason = "only the lowest bits are wanted")]
fn set_of(key: Fingerprint) -> usize {
    key.low as usize % SETS
}

impl Set {
    #[inline]
    fn add(&mut self, key: Fingerprint, name: impl FnOnce() -> KeyName) {
        let Some(at) = self.find(key) else { return self.replace_least(key, name()) };
        let counter = &mut self.counters[at];
        counter.count += 1;
        if counter.name.0.is_empty() {
            // A batch, which has no names, came with it first.
            counter.name = name();
        }
    }

    #[inline]
    fn find(&self, key: Fingerprint) -> Option<usize> {
        self.keys.iter().position(|known| *known == Some(key))
    }

    /// The key with the lowest count makes room, and leaves that count as the error of the new one.
    fn replace_least(&mut self, key: Fingerprint, name: KeyName) {
        let least = (0..WAYS).min_by_key(|at| self.counters[*at].count).unwrap_or(0);
        let error = self.counters[least].count;
        self.keys[least] = Some(key);
        self.counters[least] = Counter { count: error + 1, error, name };
    }

    /// What this set knows of a key. One that has no counter was counted at most as often as the lowest count: it may have
    /// had a counter and lost it.
    fn look(&self, key: Fingerprint) -> Counter {
        if let Some(at) = self.find(key) {
            return self.counters[at].clone();
        }
        let most = self.counters.iter().map(|counter| counter.count).min().unwrap_or(0);
        Counter { count: most, error: most, name: KeyName::default() }
    }
}

/// Two parameters together.
fn list(now: &CounterSets, before: &CounterSets) -> Vec<TopKey> {
    let none = Set::default();
    let set = |counters: &'_ CounterSets, at: usize| counters.sets.get(at).cloned();
    let mut all = Vec::new();
    for at in 0..SETS {
        let (now, before) = (set(now, at), set(before, at));
        let (now, before) = (now.as_ref().unwrap_or(&none), before.as_ref().unwrap_or(&none));
        let only_before = before.keys.iter().flatten().filter(|key| now.find(**key).is_none());
        for key in now.keys.iter().flatten().chain(only_before) {
            let fingerprint = key.number();
            let (now, before) = (now.look(*key), before.look(*key));
            let name = if now.name.0.is_empty() { before.name } else { now.name };
            let (count, error) = (now.count + before.count, now.error + before.error);
            all.push(TopKey { name, fingerprint, count, error });
        }
    }
    all
}

/// The first `k` of all, those first that were certainly asked about most.
pub(in crate::store) fn greatest(mut keys: Vec<TopKey>, k: usize) -> Vec<TopKey> {
    let order = |a: &TopKey, b: &TopKey| {
        let by_count = b.at_least().cmp(&a.at_least()).then(b.count.cmp(&a.count));
        by_count.then_with(|| a.name.0.cmp(&b.name.0))
    };
    keys.sort_by(order);
    keys.truncate(k);
    keys
}

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

/// Counters in a set.
const WAYS: usize = 8;
/// Sets in each shard.
const SETS: usize = 8;
const TERM: Span = Span::from_secs(60);
/// Longer names are truncated to this many bytes.
const NAME_MAX: usize = 128;

/// A key with many requests; see [`Limiter::top`](crate::Limiter::top).
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
    /// The name of the key.
    pub name: KeyName,
    /// The [fingerprint](crate::Limiter::fingerprint) of the key, which distinguishes keys with truncated names.
    pub fingerprint: u128,
    /// The number of its requests within [`Top::window`], or a few more.
    pub count: u64,
    /// The largest error of `count`: the true count is at least `count - error`. It is zero for every key as long as there
    /// are few keys.
    pub error: u64,
}

impl TopKey {
    /// Returns the smallest possible count, `count - error`, by which the lists are sorted.
    pub fn at_least(&self) -> u64 {
        self.count.saturating_sub(self.error)
    }
}

/// The keys with the most requests, and those with the most denials.
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
    /// The keys with the most requests, highest count first.
    pub hot: Vec<TopKey>,
    /// The keys with the most denials, highest count first.
    pub denied: Vec<TopKey>,
    /// The time that the counts cover: one to two minutes.
    pub window: Span,
}

/// The name of a key: the bytes that its `Hash` implementation writes. Text prints as text, and other types as bytes in
/// hexadecimal.
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

    /// Returns the bytes that were hashed, without the length that comes first in the hash of a slice.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// A hasher that records the bytes instead of hashing them.
impl Hasher for KeyName {
    fn finish(&self) -> u64 {
        0
    }

    fn write(&mut self, bytes: &[u8]) {
        // A slice hashes its length before its elements.
        if self.0 == bytes.len().to_ne_bytes() {
            self.0.clear();
        }
        let free = NAME_MAX - self.0.len();
        self.0.extend_from_slice(&bytes[..bytes.len().min(free)]);
    }
}

impl fmt::Display for KeyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // `str` ends its hash with a byte that no text contains.
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

/// Returns the term of a time.
fn term(now: Timestamp) -> u64 {
    now.as_micros() / TERM.as_micros()
}

/// Returns the time that the counts cover at `now`.
pub(in crate::store) fn window(now: Timestamp) -> Span {
    let into_term = Span::from_micros(now.as_micros() % TERM.as_micros());
    if term(now) == 0 { into_term } else { TERM + into_term }
}

#[derive(Clone, Debug, Default)]
pub(in crate::store) struct Sketch {
    /// The current term.
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

    /// After a small step back of the clock, the current term continues. After a larger step, such as a change between rules
    /// with different clocks, all counts are discarded.
    #[cold]
    fn turn_to(&mut self, term: u64) {
        if term + 1 == self.term {
            return;
        }
        let now = std::mem::take(&mut self.now);
        self.before = if term == self.term + 1 { now } else { CounterSets::default() };
        self.term = term;
    }

    /// Returns all keys with a counter.
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

/// The counters for which some keys compete. The fingerprints are adjacent in memory, because every decision searches them.
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
            // The first request was in a batch, which has no names.
            counter.name = name();
        }
    }

    #[inline]
    fn find(&self, key: Fingerprint) -> Option<usize> {
        self.keys.iter().position(|known| *known == Some(key))
    }

    /// Replaces the key with the lowest count, which becomes the error of the new key.
    fn replace_least(&mut self, key: Fingerprint, name: KeyName) {
        let least = (0..WAYS).min_by_key(|at| self.counters[*at].count).unwrap_or(0);
        let error = self.counters[least].count;
        self.keys[least] = Some(key);
        self.counters[least] = Counter { count: error + 1, error, name };
    }

    /// Returns the count and error of a key. A key without a counter had at most as many requests as the lowest count: it
    /// may have had a counter and lost it.
    fn look(&self, key: Fingerprint) -> Counter {
        if let Some(at) = self.find(key) {
            return self.counters[at].clone();
        }
        let most = self.counters.iter().map(|counter| counter.count).min().unwrap_or(0);
        Counter { count: most, error: most, name: KeyName::default() }
    }
}

/// Adds two counts of one key.
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

/// Returns the first `k` keys, sorted by their smallest possible count.
pub(in crate::store) fn greatest(mut keys: Vec<TopKey>, k: usize) -> Vec<TopKey> {
    let order = |a: &TopKey, b: &TopKey| {
        let by_count = b.at_least().cmp(&a.at_least()).then(b.count.cmp(&a.count));
        by_count.then_with(|| a.name.0.cmp(&b.name.0))
    };
    keys.sort_by(order);
    keys.truncate(k);
    keys
}

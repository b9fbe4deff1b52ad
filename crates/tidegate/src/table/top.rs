//! The keys that are asked about most, by a sketch: a few counters, whatever the number of keys.
//!
//! Always   Space-Saving (Metwally, Agrawal, El Abbadi 2005) over one decision in [`SAMPLE`]: a key that
//!          makes up more than 1/[`COUNTERS`] of the sampled decisions of its shard has a counter, and
//!          no counter is too high by more than its `error`. Sampling adds a relative error of about
//!          `sqrt(SAMPLE / count)`. Counts are of the last one to two [`TERM`]s.

use super::fingerprint::Fingerprint;
use std::fmt;
use std::hash::{Hash, Hasher};
use tidegate_core::{Span, Timestamp};

/// One decision in so many is looked at.
pub(super) const SAMPLE: u64 = 16;
/// Counters in each shard.
const COUNTERS: usize = 64;
const TERM: Span = Span::from_secs(60);
/// Names are cut after so many bytes.
const NAME_MAX: usize = 128;

/// A key that is asked about a lot; see [`Limiter::top`](crate::Limiter::top).
///
/// ```
/// use tidegate::{Limiter, ManualClock};
///
/// let limiter = Limiter::builder("1000/s".parse()?).top_keys().with_clock(ManualClock::new());
/// for _ in 0..1_000 {
///     limiter.check("alice");
/// }
/// let top = limiter.top(1);
/// assert_eq!(top.hot[0].name.to_string(), "alice");
/// assert!((500..2_000).contains(&top.hot[0].count));
/// # Ok::<(), tidegate::RuleError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TopKey {
    /// What it is called.
    pub name: KeyName,
    /// How often it was asked about in the last one to two minutes, estimated.
    pub count: u64,
    /// By how much `count` may be too high, apart from what sampling does.
    pub error: u64,
}

/// The keys that are asked about most, and those that are refused most.
///
/// ```
/// use tidegate::{Limiter, ManualClock};
///
/// let limiter = Limiter::builder("1/h".parse()?).top_keys().with_clock(ManualClock::new());
/// for _ in 0..1_000 {
///     limiter.check("mallory");
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
}

/// What a key is called: the bytes that it hashes. Text and byte strings read as they are; of other
/// types it is their bytes in hexadecimal.
///
/// ```
/// # use tidegate::{Limiter, ManualClock};
/// let limiter = Limiter::builder("1/h".parse()?).top_keys().with_clock(ManualClock::new());
/// for _ in 0..100 {
///     limiter.check(&258_u16);
/// }
/// assert_eq!(limiter.top(1).hot[0].name.to_string(), "0x0201");
/// # Ok::<(), tidegate::RuleError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct KeyName(Vec<u8>);

impl KeyName {
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
    ///     limiter.check("alice");
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

#[derive(Clone, Debug, Default)]
pub(super) struct Sketch {
    /// When the present term began.
    since: Timestamp,
    now: Counters,
    before: Counters,
}

#[derive(Clone, Debug, Default)]
struct Counters {
    keys: Vec<Fingerprint>,
    counts: Vec<Counter>,
}

#[derive(Clone, Debug)]
struct Counter {
    count: u64,
    error: u64,
    name: KeyName,
}

impl Sketch {
    pub(super) fn add(&mut self, key: Fingerprint, now: Timestamp, name: impl FnOnce() -> KeyName) {
        let age = now.since(self.since);
        if age >= TERM {
            self.before = if age >= TERM + TERM {
                Counters::default()
            } else {
                std::mem::take(&mut self.now)
            };
            self.now = Counters::default();
            self.since = now;
        }
        self.now.add(key, name);
    }

    /// All keys that have a counter.
    pub(super) fn list(&self, now: Timestamp) -> Vec<TopKey> {
        if now.since(self.since) >= TERM + TERM {
            // Nobody has been here for so long that all of it is old.
            return Vec::new();
        }
        let mut all = self.now.clone();
        for (key, counter) in self.before.keys.iter().zip(&self.before.counts) {
            if let Some(at) = all.keys.iter().position(|known| known == key) {
                all.counts[at].count += counter.count;
                all.counts[at].error += counter.error;
            } else {
                all.keys.push(*key);
                all.counts.push(counter.clone());
            }
        }
        let top = |counter: Counter| TopKey {
            name: counter.name,
            count: counter.count * SAMPLE,
            error: counter.error * SAMPLE,
        };
        all.counts.into_iter().map(top).collect()
    }
}

impl Counters {
    fn add(&mut self, key: Fingerprint, name: impl FnOnce() -> KeyName) {
        if let Some(at) = self.keys.iter().position(|known| *known == key) {
            let counter = &mut self.counts[at];
            counter.count += 1;
            if counter.name.0.is_empty() {
                // It was a batch that came with it first.
                counter.name = name();
            }
            return;
        }
        if self.keys.len() < COUNTERS {
            self.keys.push(key);
            self.counts.push(Counter { count: 1, error: 0, name: name() });
            return;
        }
        // The least one makes room, and leaves its count as the error of the new one.
        let least = (0..COUNTERS).min_by_key(|at| self.counts[*at].count).unwrap_or(0);
        let error = self.counts[least].count;
        self.keys[least] = key;
        self.counts[least] = Counter { count: error + 1, error, name: name() };
    }
}

/// The first `k` of all, the greatest counts first.
pub(super) fn greatest(mut keys: Vec<TopKey>, k: usize) -> Vec<TopKey> {
    keys.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.name.0.cmp(&b.name.0)));
    keys.truncate(k);
    keys
}

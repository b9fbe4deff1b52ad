//! Many keys under one limit: a map under a lock, simple and exact.
//!
//! Always   Keys are kept as 128-bit keyed fingerprints: whoever chooses keys cannot choose where
//!          they fall. A key at rest is no key: it is forgotten when the table is next cleared, which
//!          is when it has doubled since the last time, so clearing costs a constant per request.

use crate::clock::Clock;
use crate::slot::Slot;
use crate::spot;
use crate::sync::{Mutex, MutexGuard, lock};
use crate::turn::Wakes;
use siphasher::sip128::{Hasher128, SipHasher13};
use std::collections::HashMap;
use std::hash::{BuildHasher, BuildHasherDefault, Hash, Hasher, RandomState};
use std::sync::OnceLock;
use tidegate_core::{Decision, Limit, Timestamp};

/// A key, hashed with a secret of this process. Two keys share one with probability 2^-128.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fingerprint(u128);

impl Fingerprint {
    pub(crate) fn of<K: Hash + ?Sized>(key: &K) -> Self {
        static SECRET: OnceLock<SipHasher13> = OnceLock::new();
        let mut hasher = *SECRET.get_or_init(|| {
            // The standard library's random keys, which come from the system.
            let word = || RandomState::new().hash_one(0);
            SipHasher13::new_with_keys(word(), word())
        });
        key.hash(&mut hasher);
        Self(hasher.finish128().as_u128())
    }
}

/// A fingerprint is a hash already.
#[derive(Default)]
pub(crate) struct Taken(u64);

impl Hasher for Taken {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    #[expect(clippy::cast_possible_truncation, reason = "half of the bits are enough to find it")]
    fn write_u128(&mut self, fingerprint: u128) {
        self.0 = fingerprint as u64;
    }
}

impl Hash for Fingerprint {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        hasher.write_u128(self.0);
    }
}

pub(crate) struct Table<C> {
    pub(crate) number: u64,
    pub(crate) clock: C,
    pub(crate) birth: Timestamp,
    keys: Mutex<Keys>,
}

pub(crate) struct Keys {
    pub(crate) limit: Limit,
    birth: Timestamp,
    slots: HashMap<Fingerprint, Slot, BuildHasherDefault<Taken>>,
    /// Keys at rest are looked for when there are this many.
    clear_at: usize,
}

/// Fewer keys than this are not worth looking through.
const CLEAR_AT_MIN: usize = 1_024;

impl<C: Clock> Table<C> {
    pub(crate) fn new(limit: Limit, clock: C) -> Self {
        let birth = spot::now(&clock, &limit);
        let keys = Keys { limit, birth, slots: HashMap::default(), clear_at: CLEAR_AT_MIN };
        Self { number: spot::next_number(), clock, birth, keys: Mutex::new(keys) }
    }

    /// Works on one key.
    pub(crate) fn with<R>(
        &self,
        key: Fingerprint,
        work: impl FnOnce(&mut Slot, &Limit, Timestamp) -> R,
    ) -> R {
        let mut wakes = Wakes::default();
        let (mut keys, now) = self.hold();
        keys.clear(now, &mut wakes);
        keys.with(key, now, work)
    }

    /// The same, for looking only.
    pub(crate) fn look<R>(
        &self,
        key: Fingerprint,
        work: impl FnOnce(&mut Slot, &Limit, Timestamp) -> R,
    ) -> R {
        let (mut keys, now) = self.hold();
        keys.look(key, now, work)
    }

    /// Holds all keys. The time is read under the lock: whoever comes later must not bring an
    /// earlier one.
    pub(crate) fn hold(&self) -> (MutexGuard<'_, Keys>, Timestamp) {
        let keys = lock(&self.keys);
        let now = spot::now(&self.clock, &keys.limit);
        (keys, now)
    }

    pub(crate) fn check(&self, key: Fingerprint, cost: u64) -> Decision {
        let mut wakes = Wakes::default();
        self.with(key, |slot, limit, now| slot.check(limit, now, cost, &mut wakes))
    }

    pub(crate) fn change(&self, new: Limit) {
        let mut wakes = Wakes::default();
        let (mut keys, old_now) = self.hold();
        let now = spot::now(&self.clock, &new);
        let keys = &mut *keys;
        for slot in keys.slots.values_mut() {
            slot.change((&keys.limit, old_now), (&new, now), &mut wakes);
        }
        keys.limit = new;
    }
}

impl Keys {
    pub(crate) fn with<R>(
        &mut self,
        key: Fingerprint,
        now: Timestamp,
        work: impl FnOnce(&mut Slot, &Limit, Timestamp) -> R,
    ) -> R {
        let limit = &self.limit;
        let slot = self.slots.entry(key).or_insert_with(|| Slot::new(limit.fresh(self.birth)));
        work(slot, limit, now)
    }

    /// Works on one key without remembering it if it is not known: for looking.
    pub(crate) fn look<R>(
        &mut self,
        key: Fingerprint,
        now: Timestamp,
        work: impl FnOnce(&mut Slot, &Limit, Timestamp) -> R,
    ) -> R {
        match self.slots.get_mut(&key) {
            Some(slot) => work(slot, &self.limit, now),
            None => work(&mut Slot::new(self.limit.fresh(self.birth)), &self.limit, now),
        }
    }

    /// Forgets the keys at rest, if there are many more keys than the last time.
    fn clear(&mut self, now: Timestamp, wakes: &mut Wakes) {
        if self.slots.len() < self.clear_at {
            return;
        }
        let limit = &self.limit;
        self.slots.retain(|_, slot| !slot.is_at_rest(limit, now, wakes));
        self.clear_at = (self.slots.len() * 2).max(CLEAR_AT_MIN);
        self.slots.shrink_to(self.clear_at);
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }
}

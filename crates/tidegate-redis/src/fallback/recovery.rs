//! Keys that were admitted something without Redis: Redis would admit it again.
//!
//! Always   A key is remembered until what it was admitted has drained, and so is every place that is held. Who was
//!          denied was admitted nothing, and other keys have nothing to do with it.
//! Bound    [`KEYS_MAX`] keys, 24 bytes each. What the others were admitted is remembered as if every key had been: that
//!          is stricter, and never more generous. So are two keys of one fingerprint.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::time::Instant;

const KEYS_MAX: usize = 1 << 16;
/// No rule that Redis keeps takes longer to recover: 143 years.
const RECOVERY_MAX: Duration = Duration::from_secs(143 * 366 * 86_400);

#[derive(Debug, Default)]
pub(crate) struct Recovery {
    secret: RandomState,
    /// Whether there is nothing to look for, as nearly always.
    is_over: IsOver,
    keys: Mutex<Keys>,
    /// How many places of a key are held that Redis does not know of. There are no more than permits.
    places: Mutex<HashMap<u64, u64>>,
}

/// True unless told otherwise.
#[derive(Debug)]
struct IsOver(AtomicBool);

impl Default for IsOver {
    fn default() -> Self {
        Self(AtomicBool::new(true))
    }
}

#[derive(Debug, Default)]
struct Keys {
    /// Until when what each was admitted counts.
    ends: HashMap<u64, Instant>,
    /// The same for keys that are not among them.
    others: Option<Instant>,
    /// When all of it is over.
    last: Option<Instant>,
}

impl Recovery {
    /// The key was admitted something without Redis, which will have drained after so long.
    pub(crate) fn admitted(&self, key: &[u8], drains: Duration) {
        let now = Instant::now();
        let ends = now + drains.min(RECOVERY_MAX);
        let fingerprint = self.secret.hash_one(key);
        let mut keys = self.keys.lock().expect("nobody panics with it");
        keys.remember(fingerprint, ends, now);
        self.is_over.0.store(false, Ordering::Release);
    }

    /// Whether what the key was admitted without Redis still counts.
    pub(crate) fn counts(&self, key: &[u8]) -> bool {
        if self.is_over.0.load(Ordering::Acquire) {
            return false;
        }
        let now = Instant::now();
        let mut keys = self.keys.lock().expect("nobody panics with it");
        if keys.last.is_none_or(|last| now >= last) {
            *keys = Keys::default();
            self.is_over.0.store(true, Ordering::Release);
            return false;
        }
        let ends = keys.ends.get(&self.secret.hash_one(key));
        ends.max(keys.others.as_ref()).is_some_and(|ends| now < *ends)
    }

    /// The key owes nothing any more.
    pub(crate) fn forget(&self, key: &[u8]) {
        let mut keys = self.keys.lock().expect("nobody panics with it");
        keys.ends.remove(&self.secret.hash_one(key));
    }

    /// Somebody holds a place that Redis does not know of.
    pub(crate) fn hold(&self, key: &[u8]) {
        let mut places = self.places.lock().expect("nobody panics with it");
        *places.entry(self.secret.hash_one(key)).or_default() += 1;
    }

    /// And does not any more.
    pub(crate) fn give_back(&self, key: &[u8]) {
        let fingerprint = self.secret.hash_one(key);
        let mut places = self.places.lock().expect("nobody panics with it");
        if let Some(held) = places.get_mut(&fingerprint) {
            *held -= 1;
            if *held == 0 {
                places.remove(&fingerprint);
            }
        }
    }

    /// Whether anybody holds a place of this key that Redis does not know of.
    pub(crate) fn is_held(&self, key: &[u8]) -> bool {
        let places = self.places.lock().expect("nobody panics with it");
        !places.is_empty() && places.contains_key(&self.secret.hash_one(key))
    }
}

impl Keys {
    fn remember(&mut self, fingerprint: u64, ends: Instant, now: Instant) {
        self.last = self.last.max(Some(ends));
        if let Some(known) = self.ends.get_mut(&fingerprint) {
            *known = ends.max(*known);
            return;
        }
        self.others = self.others.filter(|others| now < *others);
        // Room is looked for once, and not by each who finds none.
        if self.ends.len() >= KEYS_MAX && self.others.is_none() {
            self.ends.retain(|_, ends| now < *ends);
        }
        if self.ends.len() < KEYS_MAX {
            self.ends.insert(fingerprint, ends);
        } else {
            self.others = self.others.max(Some(ends));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::advance;

    const HOUR: Duration = Duration::from_secs(3_600);

    #[tokio::test(start_paused = true)]
    async fn t33_each_key_counts_until_its_own_has_drained() {
        let recovery = Recovery::default();
        recovery.admitted(b"short", HOUR);
        recovery.admitted(b"long", 2 * HOUR);
        recovery.admitted(b"long", HOUR);
        assert!(recovery.counts(b"short") && recovery.counts(b"long"));
        assert!(!recovery.counts(b"other"), "it was admitted nothing");
        advance(HOUR).await;
        assert!(!recovery.counts(b"short") && recovery.counts(b"long"));
        advance(HOUR).await;
        assert!(!recovery.counts(b"long"));
        recovery.admitted(b"short", HOUR);
        assert!(recovery.counts(b"short"), "it counts again");
        recovery.forget(b"short");
        assert!(!recovery.counts(b"short"));
    }

    #[tokio::test(start_paused = true)]
    async fn t33_one_key_too_many_counts_for_all_until_it_has_drained() {
        let recovery = Recovery::default();
        for key in 0..KEYS_MAX {
            recovery.admitted(&key.to_le_bytes(), 2 * HOUR);
        }
        assert!(!recovery.counts(b"other"), "there is room for all of them");
        recovery.admitted(b"one more", HOUR);
        assert!(recovery.counts(b"one more") && recovery.counts(b"other"));
        advance(HOUR).await;
        assert!(!recovery.counts(b"one more") && !recovery.counts(b"other"));
        assert!(recovery.counts(&0_usize.to_le_bytes()));
        advance(HOUR).await;
        recovery.admitted(b"one more", HOUR);
        assert!(recovery.counts(b"one more") && !recovery.counts(b"other"), "there is room again");
    }

    #[test]
    fn t33_a_place_counts_for_its_key_until_it_is_given_back() {
        let recovery = Recovery::default();
        recovery.hold(b"key");
        recovery.hold(b"key");
        recovery.give_back(b"key");
        assert!(recovery.is_held(b"key") && !recovery.is_held(b"other"));
        recovery.give_back(b"key");
        assert!(!recovery.is_held(b"key"));
    }
}

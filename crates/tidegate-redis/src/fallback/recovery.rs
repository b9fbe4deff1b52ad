//! Keys with requests that were admitted without Redis, which does not know of their debt and would admit them again.
//!
//! Invariant  A key is remembered until that debt has drained, and while a permit granted without Redis is held. Denied
//!            requests and other keys are not affected.
//! Bound      [`KEYS_MAX`] keys of 24 bytes. Beyond that, every key of the limit counts as one with such a debt, which is stricter.
//!            So does a key with the fingerprint of another.

use crate::sync::Mutex;
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::time::Instant;

const KEYS_MAX: usize = 1 << 16;
/// The longest time in which a key of a rule in Redis recovers: 143 years.
const RECOVERY_MAX: Duration = Duration::from_secs(143 * 366 * 86_400);

#[derive(Debug, Default)]
pub(crate) struct Recovery {
    secret: RandomState,
    /// Whether any key may be remembered. Rarely set, and cheaper to read than `keys`.
    is_active: AtomicBool,
    keys: Mutex<Keys>,
    /// How many permits of a key are held that Redis does not know of.
    permits: Mutex<HashMap<u64, u64>>,
}

#[derive(Debug, Default)]
struct Keys {
    /// When the debt of each key has drained.
    ends: HashMap<u64, Instant>,
    /// When the debt of all keys beyond `KEYS_MAX` has drained.
    others: Option<Instant>,
    /// When every debt has drained.
    last: Option<Instant>,
}

impl Recovery {
    /// Remembers a key whose request was admitted without Redis, until that has drained.
    pub(crate) fn admitted(&self, key: &[u8], drains: Duration) {
        let now = Instant::now();
        let ends = now + drains.min(RECOVERY_MAX);
        let fingerprint = self.secret.hash_one(key);
        let mut keys = self.keys.lock();
        keys.remember(fingerprint, ends, now);
        self.is_active.store(true, Ordering::Release);
    }

    /// Returns whether a debt that Redis does not know of has not drained yet.
    pub(crate) fn counts(&self, key: &[u8]) -> bool {
        if !self.is_active.load(Ordering::Acquire) {
            return false;
        }
        let now = Instant::now();
        let mut keys = self.keys.lock();
        if keys.last.is_none_or(|last| now >= last) {
            *keys = Keys::default();
            self.is_active.store(false, Ordering::Release);
            return false;
        }
        let ends = keys.ends.get(&self.secret.hash_one(key));
        ends.max(keys.others.as_ref()).is_some_and(|ends| now < *ends)
    }

    /// Forgets a key that was reset.
    pub(crate) fn forget(&self, key: &[u8]) {
        let mut keys = self.keys.lock();
        keys.ends.remove(&self.secret.hash_one(key));
    }

    /// Counts a permit that Redis does not know of.
    pub(crate) fn hold(&self, key: &[u8]) {
        let mut permits = self.permits.lock();
        *permits.entry(self.secret.hash_one(key)).or_default() += 1;
    }

    /// Counts the release of such a permit.
    pub(crate) fn release(&self, key: &[u8]) {
        let fingerprint = self.secret.hash_one(key);
        let mut permits = self.permits.lock();
        if let Some(held) = permits.get_mut(&fingerprint) {
            *held -= 1;
            if *held == 0 {
                permits.remove(&fingerprint);
            }
        }
    }

    /// Returns whether a permit of this key is held that Redis does not know of.
    pub(crate) fn is_held(&self, key: &[u8]) -> bool {
        let permits = self.permits.lock();
        !permits.is_empty() && permits.contains_key(&self.secret.hash_one(key))
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
        // Drained keys are searched once when the map is full, not for every further key.
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

/// T33.
#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::advance;

    const HOUR: Duration = Duration::from_secs(3_600);

    #[tokio::test(start_paused = true)]
    async fn each_key_counts_until_its_own_debt_has_drained() {
        let recovery = Recovery::default();
        recovery.admitted(b"short", HOUR);
        recovery.admitted(b"long", 2 * HOUR);
        recovery.admitted(b"long", HOUR);
        assert!(recovery.counts(b"short") && recovery.counts(b"long"));
        assert!(!recovery.counts(b"other"), "nothing was admitted");
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
    async fn one_key_too_many_counts_for_all_keys_until_it_has_drained() {
        let recovery = Recovery::default();
        for key in 0..KEYS_MAX {
            recovery.admitted(&key.to_le_bytes(), 2 * HOUR);
        }
        assert!(!recovery.counts(b"other"), "all of them fit");
        recovery.admitted(b"one more", HOUR);
        assert!(recovery.counts(b"one more") && recovery.counts(b"other"));
        advance(HOUR).await;
        assert!(!recovery.counts(b"one more") && !recovery.counts(b"other"));
        assert!(recovery.counts(&0_usize.to_le_bytes()));
        advance(HOUR).await;
        recovery.admitted(b"one more", HOUR);
        assert!(recovery.counts(b"one more") && !recovery.counts(b"other"), "it fits again");
    }

    #[test]
    fn a_permit_counts_for_its_key_until_it_is_released() {
        let recovery = Recovery::default();
        recovery.hold(b"key");
        recovery.hold(b"key");
        recovery.release(b"key");
        assert!(recovery.is_held(b"key") && !recovery.is_held(b"other"));
        recovery.release(b"key");
        assert!(!recovery.is_held(b"key"));
    }
}

//! Cache of what keys had remaining: when one of several limits denies a request, its decision still reports the others.
//!
//! Invariant  No request is admitted or denied by it. It is Redis's answer plus what has refilled since; charges by other nodes
//!            are missing for at most [`AGE_MAX`].
//! Bound      [`KEYS_MAX`] keys of [`KEY_BYTES_MAX`] bytes.

use super::denied::{AGE_MAX, KEY_BYTES_MAX, KEYS_MAX, PurgeSchedule, SentAt};
use crate::script::codec::{LimitCodec, Operation, ScriptDecision};
use crate::sync::Mutex;
use std::collections::HashMap;
use tidegate::{Clock, SystemClock};
use tidegate_core::{Decision, Timestamp};

#[derive(Debug, Default)]
pub(crate) struct RemainingCache<C = SystemClock> {
    keys: Mutex<HashMap<Vec<u8>, Remaining>>,
    clock: C,
    purges: PurgeSchedule,
}

#[derive(Debug)]
struct Remaining {
    answer: ScriptDecision,
    version: u64,
    sent: Timestamp,
}

impl<C: Clock> RemainingCache<C> {
    /// Returns what the key has remaining, if Redis reported it recently.
    pub(crate) fn get(&self, key: &[u8], codec: &LimitCodec, version: u64) -> Option<Decision> {
        let mut keys = self.keys.lock();
        let left = keys.get(key)?;
        let elapsed = self.clock.now().since(left.sent);
        if left.version != version || elapsed >= AGE_MAX {
            keys.remove(key);
            return None;
        }
        let later = left.answer.later(elapsed);
        drop(keys);
        codec.decision(&later, Operation::Peek, 0).ok()
    }

    /// Stores what Redis reported about a key that it did not charge.
    pub(crate) fn put(&self, key: &[u8], answer: ScriptDecision, version: u64, sent: SentAt) {
        if key.len() > KEY_BYTES_MAX {
            return;
        }
        let mut keys = self.keys.lock();
        if keys.len() >= KEYS_MAX {
            let now = self.clock.now();
            if self.purges.is_due(now) {
                keys.retain(|_, left| now.since(left.sent) < AGE_MAX);
            }
            if keys.len() >= KEYS_MAX {
                return;
            }
        }
        keys.insert(key.to_vec(), Remaining { answer, version, sent: sent.sent() });
    }

    /// Removes a key that was refunded or reset.
    pub(crate) fn forget(&self, key: &[u8]) {
        self.keys.lock().remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::DenialCache;
    use crate::script::codec::ScriptReply;
    use tidegate::ManualClock;
    use tidegate_core::{Limit, Span};

    /// Returns a cache with a bucket of 20 tokens that lacks 10 and refills 10 a second.
    fn cached(clock: &ManualClock, key: &[u8]) -> (RemainingCache<ManualClock>, LimitCodec) {
        let limit: Limit = "10/s burst 20".parse().unwrap();
        let codec = LimitCodec::new(limit, 1, Timestamp::EPOCH).unwrap();
        let Ok(ScriptReply::Decision(answer)) = codec.read(&redis::Value::Int(1_000_000)) else {
            panic!("it is a decision");
        };
        let left = RemainingCache {
            keys: Mutex::default(),
            clock: clock.clone(),
            purges: PurgeSchedule::default(),
        };
        left.put(key, answer, 1, DenialCache::with_clock(clock.clone()).now());
        (left, codec)
    }

    #[test]
    fn cached_tokens_refill_and_expire_after_a_second() {
        let clock = ManualClock::new();
        let (left, codec) = cached(&clock, b"key");
        let remaining = || left.get(b"key", &codec, 1).map(|decision| decision.remaining);
        assert_eq!(remaining(), Some(10));
        clock.advance(Span::from_millis(500));
        assert_eq!(remaining(), Some(15));
        clock.advance(Span::from_micros(499_999));
        assert_eq!(remaining(), Some(19));
        clock.advance(Span::from_micros(1));
        assert_eq!(remaining(), None);
    }

    #[test]
    fn a_removed_key_or_one_of_another_rule_is_not_found() {
        let clock = ManualClock::new();
        let (left, codec) = cached(&clock, b"key");
        assert_eq!(left.get(b"other", &codec, 1), None);
        assert!(left.get(b"key", &codec, 1).is_some());
        assert_eq!(left.get(b"key", &codec, 2), None);
        let (left, codec) = cached(&clock, b"key");
        left.forget(b"key");
        assert_eq!(left.get(b"key", &codec, 1), None);
    }

    #[test]
    fn keys_above_the_maximum_length_are_not_cached() {
        let clock = ManualClock::new();
        let (left, codec) = cached(&clock, &[b'x'; KEY_BYTES_MAX]);
        assert!(left.get(&[b'x'; KEY_BYTES_MAX], &codec, 1).is_some());
        let (left, codec) = cached(&clock, &[b'x'; KEY_BYTES_MAX + 1]);
        assert_eq!(left.get(&[b'x'; KEY_BYTES_MAX + 1], &codec, 1), None);
    }
}

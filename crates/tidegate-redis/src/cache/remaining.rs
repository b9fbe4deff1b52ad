//! What keys had left a moment ago: for who is denied by one of several limits, and is told what the others have.
//!
//! Always   Nobody is admitted or denied by it. It is what Redis said, as time has changed it since; what others have taken
//!          meanwhile is not known here, for [`SPAN_MAX`] at the longest.
//! Always   At most [`KEYS_MAX`] are remembered, of [`KEY_BYTES_MAX`] bytes.

use super::denied::{KEY_BYTES_MAX, KEYS_MAX, SPAN_MAX, Scans, SentAt};
use crate::script::codec::{Answer, Shared, Verb};
use std::collections::HashMap;
use std::sync::Mutex;
use tidegate::{Clock, SystemClock};
use tidegate_core::{Decision, Timestamp};

#[derive(Debug, Default)]
pub(crate) struct LeftKeys<C = SystemClock> {
    kept: Mutex<HashMap<Vec<u8>, Left>>,
    clock: C,
    scans: Scans,
}

#[derive(Debug)]
struct Left {
    answer: Answer,
    version: u64,
    /// When the request was about to be sent.
    sent: Timestamp,
}

impl<C: Clock> LeftKeys<C> {
    /// What is left, if it was heard of a moment ago.
    pub(crate) fn get(&self, key: &[u8], shared: &Shared, version: u64) -> Option<Decision> {
        let mut kept = self.kept.lock().expect("nobody panics with it");
        let left = kept.get(key)?;
        let elapsed = self.clock.now().since(left.sent);
        if left.version != version || elapsed >= SPAN_MAX {
            kept.remove(key);
            return None;
        }
        let later = left.answer.later(elapsed);
        drop(kept);
        shared.decision(&later, Verb::Look, 0).ok()
    }

    /// Remembers what Redis said of a key that it has not charged.
    pub(crate) fn put(&self, key: &[u8], answer: Answer, version: u64, asked: SentAt) {
        if key.len() > KEY_BYTES_MAX {
            return;
        }
        let mut kept = self.kept.lock().expect("nobody panics with it");
        if kept.len() >= KEYS_MAX {
            let now = self.clock.now();
            if self.scans.is_due(now) {
                kept.retain(|_, left| now.since(left.sent) < SPAN_MAX);
            }
            if kept.len() >= KEYS_MAX {
                return;
            }
        }
        kept.insert(key.to_vec(), Left { answer, version, sent: asked.sent() });
    }

    /// It may have more.
    pub(crate) fn forget(&self, key: &[u8]) {
        self.kept.lock().expect("nobody panics with it").remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::DeniedKeys;
    use crate::script::codec::Said;
    use tidegate::ManualClock;
    use tidegate_core::{Limit, Span};

    /// Ten are owed, of twenty, one of which comes back in a tenth of a second.
    fn remembered(clock: &ManualClock, key: &[u8]) -> (LeftKeys<ManualClock>, Shared) {
        let limit: Limit = "10/s burst 20".parse().unwrap();
        let shared = Shared::new(limit, 1, Timestamp::EPOCH).unwrap();
        let Ok(Said::Answer(answer)) = shared.read(&redis::Value::Int(1_000_000)) else {
            panic!("it is an answer");
        };
        let left =
            LeftKeys { kept: Mutex::default(), clock: clock.clone(), scans: Scans::default() };
        left.put(key, answer, 1, DeniedKeys::by(clock.clone()).now());
        (left, shared)
    }

    #[test]
    fn what_is_left_grows_with_time_and_is_asked_for_again_after_a_second() {
        let clock = ManualClock::new();
        let (left, shared) = remembered(&clock, b"key");
        let remaining = || left.get(b"key", &shared, 1).map(|decision| decision.remaining);
        assert_eq!(remaining(), Some(10));
        clock.advance(Span::from_millis(500));
        assert_eq!(remaining(), Some(15));
        clock.advance(Span::from_micros(499_999));
        assert_eq!(remaining(), Some(19));
        clock.advance(Span::from_micros(1));
        assert_eq!(remaining(), None);
    }

    #[test]
    fn another_rule_or_a_key_that_was_forgotten_is_asked_for_again() {
        let clock = ManualClock::new();
        let (left, shared) = remembered(&clock, b"key");
        assert_eq!(left.get(b"other", &shared, 1), None);
        assert!(left.get(b"key", &shared, 1).is_some());
        assert_eq!(left.get(b"key", &shared, 2), None);
        let (left, shared) = remembered(&clock, b"key");
        left.forget(b"key");
        assert_eq!(left.get(b"key", &shared, 1), None);
    }

    #[test]
    fn no_key_is_kept_that_is_longer_than_the_longest() {
        let clock = ManualClock::new();
        let (left, shared) = remembered(&clock, &[b'x'; KEY_BYTES_MAX]);
        assert!(left.get(&[b'x'; KEY_BYTES_MAX], &shared, 1).is_some());
        let (left, shared) = remembered(&clock, &[b'x'; KEY_BYTES_MAX + 1]);
        assert_eq!(left.get(&[b'x'; KEY_BYTES_MAX + 1], &shared, 1), None);
    }
}

//! Keys that are known to be denied: nobody goes to Redis to hear it again.
//!
//! Always   Exact: what is denied here would be denied there. A denial holds until others have drained, and nothing
//!          but time drains them, or somebody who gives back, forgets the key or changes the rule; then the denial
//!          is forgotten here, at once on this node, and on others as soon as they hear of it.
//!          Redis decided after the request was sent. So the time since then is taken for longer than it was, and the
//!          denial here ends no later than there.
//!          A thread remembers the last denial that it found, and finds it again without a hash and a lock; it is
//!          forgotten with all others whenever one is.
//! Always   At most [`KEYS_MAX`] are remembered, of [`KEY_BYTES_MAX`] bytes, for [`SPAN_MAX`] at the longest.

use crate::random;
use crate::shared::{Answer, Shared, Verb};
use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use tidegate::{Clock, SystemClock};
use tidegate_core::{Decision, Span, Timestamp};

const KEYS_MAX: usize = 1 << 16;
/// Who has a longer key is asked about in Redis: strangers choose keys, and these are kept whole.
const KEY_BYTES_MAX: usize = 512;
/// Who did not hear that a denial is over hears it after this long.
const SPAN_MAX: Span = Span::from_secs(1);

#[derive(Debug)]
pub(crate) struct DeniedKeys {
    kept: Mutex<HashMap<Vec<u8>, Denial>>,
    clock: SystemClock,
    /// Tells these keys from others.
    number: u64,
    /// How often something was forgotten.
    generation: AtomicU64,
}

/// The denial that a thread found last: of one, so that it only gets shorter.
struct Last {
    number: u64,
    generation: u64,
    version: u64,
    key: Vec<u8>,
    decision: Decision,
    sent: Timestamp,
    ends: Timestamp,
}

/// When somebody was about to ask, and how often something had been forgotten by then.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    sent: Timestamp,
    generation: u64,
}

thread_local! {
    static LAST: RefCell<Option<Last>> = const { RefCell::new(None) };
}

impl Default for DeniedKeys {
    fn default() -> Self {
        Self {
            kept: Mutex::default(),
            clock: SystemClock::new(),
            number: random::number(),
            generation: AtomicU64::new(0),
        }
    }
}

#[derive(Debug)]
struct Denial {
    answer: Answer,
    decision: Decision,
    cost: u64,
    version: u64,
    /// When the request was about to be sent.
    sent: Timestamp,
    ends: Timestamp,
}

impl DeniedKeys {
    /// For who is about to ask Redis.
    pub(crate) fn now(&self) -> Asked {
        Asked { sent: self.clock.now(), generation: self.generation.load(Ordering::Acquire) }
    }

    /// Whether somebody may not be denied any more who was denied when this was asked.
    pub(crate) fn has_forgotten_since(&self, asked: Asked) -> bool {
        self.generation.load(Ordering::Acquire) != asked.generation
    }

    /// The denial that this thread found last, if it is of this key and still holds.
    #[inline]
    pub(crate) fn last(&self, key: &[u8], version: u64, cost: u64) -> Option<Decision> {
        if cost != 1 {
            return None;
        }
        let generation = self.generation.load(Ordering::Acquire);
        LAST.with_borrow(|last| {
            let last = last.as_ref()?;
            let is_it = last.number == self.number
                && last.generation == generation
                && last.version == version
                && last.key == key;
            if !is_it {
                return None;
            }
            let now = self.clock.now();
            (now < last.ends).then(|| last.decision.denied_later(now.since(last.sent)))
        })
    }

    /// The denial of this cost, if it is known to be one.
    pub(crate) fn get(
        &self,
        key: &[u8],
        shared: &Shared,
        version: u64,
        cost: u64,
    ) -> Option<Decision> {
        // Before the denial is looked up: what is forgotten after that is forgotten here too.
        let generation = self.generation.load(Ordering::Acquire);
        let mut kept = self.kept.lock().expect("nobody panics with it");
        let denial = kept.get(key)?;
        let now = self.clock.now();
        if denial.version != version || now >= denial.ends {
            kept.remove(key);
            return None;
        }
        if denial.cost != cost {
            return None;
        }
        let elapsed = now.since(denial.sent);
        if cost == 1 {
            // Where not even one is left there is nothing to work out.
            let Denial { decision, sent, ends, .. } = *denial;
            let (number, key) = (self.number, key.to_vec());
            LAST.set(Some(Last { number, generation, version, key, decision, sent, ends }));
            return Some(decision.denied_later(elapsed));
        }
        let later = denial.answer.later(elapsed);
        drop(kept);
        let decision = shared.decision(&later, Verb::Look, cost).ok()?;
        decision.is_deny().then_some(decision)
    }

    /// Remembers a denial.
    pub(crate) fn put(
        &self,
        key: &[u8],
        (answer, decision): (Answer, &Decision),
        version: u64,
        cost: u64,
        Asked { sent, generation }: Asked,
    ) {
        let Some(retry_after) = decision.retry_after() else { return };
        let ends = sent + retry_after.min(SPAN_MAX);
        let mut kept = self.kept.lock().expect("nobody panics with it");
        // Somebody has given back while the answer was on its way: it may be one that does not hold any more.
        if self.generation.load(Ordering::Acquire) != generation || key.len() > KEY_BYTES_MAX {
            return;
        }
        if kept.len() >= KEYS_MAX {
            let now = self.clock.now();
            kept.retain(|_, denial| denial.ends > now);
            if kept.len() >= KEYS_MAX {
                return;
            }
        }
        let decision = *decision;
        kept.insert(key.to_vec(), Denial { answer, decision, cost, version, sent, ends });
    }

    /// It may not be denied any more.
    pub(crate) fn forget(&self, key: &[u8]) {
        let mut kept = self.kept.lock().expect("nobody panics with it");
        kept.remove(key);
        self.generation.fetch_add(1, Ordering::AcqRel);
    }

    /// None of them may be.
    pub(crate) fn forget_all(&self) {
        let mut kept = self.kept.lock().expect("nobody panics with it");
        kept.clear();
        self.generation.fetch_add(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A denial for a minute, as Redis said it to somebody who asked at that time.
    fn put(keys: &DeniedKeys, key: &[u8], asked: Asked) -> Option<Decision> {
        let limit: tidegate_core::Limit = "1/min".parse().unwrap();
        let shared = Shared::new(limit.clone(), 1, Timestamp::EPOCH).unwrap();
        let mut state = limit.fresh(Timestamp::EPOCH);
        limit.decide(&mut state, Timestamp::EPOCH, 1);
        let decision = limit.decide(&mut state, Timestamp::EPOCH, 1);
        assert!(decision.is_deny());
        let Ok(crate::shared::Said::Answer(answer)) = shared.read(&redis::Value::Int(-60_000_001))
        else {
            panic!("it is an answer");
        };
        keys.put(key, (answer, &decision), 1, 1, asked);
        keys.get(key, &shared, 1, 1)
    }

    #[test]
    fn a_denial_is_remembered_and_by_the_thread_that_found_it() {
        let keys = DeniedKeys::default();
        assert_eq!(keys.last(b"key", 1, 1), None);
        assert!(put(&keys, b"key", keys.now()).is_some());
        assert!(keys.last(b"key", 1, 1).is_some());
        assert_eq!(keys.last(b"other", 1, 1), None);
        assert_eq!(keys.last(b"key", 2, 1), None, "of another rule");
        assert_eq!(keys.last(b"key", 1, 2), None, "of another cost");
        assert_eq!(DeniedKeys::default().last(b"key", 1, 1), None, "of another limit");
    }

    #[test]
    fn what_is_forgotten_is_forgotten_by_every_memory() {
        for forget in [|keys: &DeniedKeys| keys.forget(b"key"), DeniedKeys::forget_all] {
            let keys = DeniedKeys::default();
            assert!(put(&keys, b"key", keys.now()).is_some());
            forget(&keys);
            assert_eq!(keys.last(b"key", 1, 1), None);
        }
    }

    #[test]
    fn a_denial_that_was_on_its_way_when_somebody_gave_back_is_not_remembered() {
        let keys = DeniedKeys::default();
        let asked = keys.now();
        keys.forget(b"key");
        assert_eq!(put(&keys, b"key", asked), None);
        assert!(put(&keys, b"key", keys.now()).is_some());
    }

    #[test]
    fn no_key_is_kept_that_is_longer_than_the_longest() {
        let keys = DeniedKeys::default();
        assert!(put(&keys, &[b'x'; KEY_BYTES_MAX], keys.now()).is_some());
        assert_eq!(put(&keys, &[b'x'; KEY_BYTES_MAX + 1], keys.now()), None);
    }
}

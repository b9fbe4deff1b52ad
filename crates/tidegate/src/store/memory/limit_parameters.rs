//! The parameters of a limit: a rule, and what can be computed from it once.

use crate::slot::Slot;
use tidegate_core::{Limit, NarrowBucket, Span, State, Timestamp};

/// The parameters that a shard decides by. Shards change theirs one after the other.
#[derive(Debug)]
pub(crate) struct LimitParameters {
    pub(crate) limit: Limit,
    pub(super) bucket: Option<NarrowBucket>,
    /// The state of a new key.
    pub(super) fresh: State,
    /// The same, packed; `None` if keys under this rule need slots.
    pub(super) fresh_packed: Option<[u64; 3]>,
    /// What packed times are counted from.
    pub(super) epoch: Timestamp,
    /// Whether these are the parameters that the limiter began with.
    pub(super) is_original: bool,
}

/// How many rows, at the least, when there is room for no more keys.
const SWEEP_WHEN_FULL: usize = 64;
/// And what part of all, where a look at a row is a comparison, as for a bucket; and where it is a whole
/// question. With one part for both, a new key under `sliding` took 56 us where it may take 20 (T41).
const PART_WHEN_FULL: usize = 16;
const PART_WHEN_FULL_IF_SLOW: usize = 128;
/// How many slots: each of them lies somewhere else in memory, and so does what is in it.
const SLOTS_WHEN_FULL: usize = 16;

impl LimitParameters {
    pub(crate) fn new(limit: Limit, created_at: Timestamp) -> Self {
        // A microsecond early, because nothing can be told to be full at the epoch itself.
        let epoch = created_at - Span::from_micros(1);
        let (bucket, fresh) = (limit.narrow_bucket(), limit.fresh(created_at));
        let fresh_packed = limit.pack(&fresh, epoch);
        Self { limit, bucket, fresh, fresh_packed, epoch, is_original: true }
    }

    /// Returns the parameters of another rule. The state of new keys is taken over like all others.
    pub(super) fn changed(&self, limit: Limit, old_now: Timestamp, now: Timestamp) -> Self {
        let fresh = limit.take_over_between(&self.limit, &self.fresh, old_now, now);
        let (bucket, epoch) = (limit.narrow_bucket(), self.epoch);
        let fresh_packed = limit.pack(&fresh, epoch);
        Self { limit, bucket, fresh, fresh_packed, epoch, is_original: false }
    }

    pub(crate) fn unpack(&self, words: &[u64]) -> State {
        let mut packed = [0; 3];
        packed[..words.len()].copy_from_slice(words);
        self.limit.unpack(&packed, self.epoch)
    }

    /// The bucket, if the rule is one, and its time.
    #[inline]
    pub(super) fn bucket_at(&self, now: Timestamp) -> Option<(NarrowBucket, u64)> {
        let bucket = self.bucket?;
        if now < self.epoch {
            return None;
        }
        Some((bucket, bucket.at(now.since(self.epoch))?))
    }

    /// A slot as a row, if it can be one.
    pub(super) fn pack(&self, slot: &Slot) -> Option<[u64; 3]> {
        if slot.is_plain() { self.limit.pack(&slot.state, self.epoch) } else { None }
    }

    /// Returns how many of `keys` are looked at when there is room for no more.
    pub(super) fn looked_at_when_full(&self, keys: usize) -> usize {
        let part = match (self.limit.packed_words(), self.bucket) {
            (0, _) => return SLOTS_WHEN_FULL,
            (_, Some(_)) => PART_WHEN_FULL,
            (_, None) => PART_WHEN_FULL_IF_SLOW,
        };
        SWEEP_WHEN_FULL.max(keys / part)
    }

    /// Tells whether forgetting a key changes no answer, for many keys at the same time.
    pub(super) fn idle_test(&self, now: Timestamp) -> impl Fn(&[u64]) -> bool {
        let ticks = self.bucket_at(now).map(|(_, ticks)| ticks);
        move |words| match ticks {
            Some(ticks) => words[0] <= ticks,
            None => self.limit.peek(&self.unpack(words), now, 0).reset_after.is_zero(),
        }
    }
}

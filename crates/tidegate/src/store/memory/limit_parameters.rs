//! A limit, and values that are computed from it once.

use crate::slot::Slot;
use tidegate_core::{Limit, NarrowBucket, Span, State, Timestamp};

/// The limit of a shard. When the rule changes, the shards change theirs one after the other.
#[derive(Debug)]
pub(crate) struct LimitParameters {
    pub(crate) limit: Limit,
    pub(super) bucket: Option<NarrowBucket>,
    /// The state of a new key.
    pub(super) fresh: State,
    /// The same, packed; `None` if keys under this rule need slots.
    pub(super) fresh_packed: Option<[u64; 3]>,
    /// The origin of packed times.
    pub(super) epoch: Timestamp,
    /// Whether these are the parameters that the limiter began with.
    pub(super) is_original: bool,
}

/// The minimum number of rows that a new key sweeps if the store is full.
const SWEEP_WHEN_FULL: usize = 64;
/// The part of a shard's rows that it sweeps: larger for a bucket, where a row is idle by a comparison, than for other
/// algorithms, which have to compute it. With one part for both, a new key under `sliding` took 56 us instead of 20.
const PART_WHEN_FULL: usize = 16;
const PART_WHEN_FULL_IF_SLOW: usize = 128;
/// The number of slots that it sweeps: each of them is a separate allocation.
const SLOTS_WHEN_FULL: usize = 16;

impl LimitParameters {
    pub(crate) fn new(limit: Limit, created_at: Timestamp) -> Self {
        // A microsecond early, because a packed time of 0 would be ambiguous.
        let epoch = created_at - Span::from_micros(1);
        let (bucket, fresh) = (limit.narrow_bucket(), limit.fresh(created_at));
        let fresh_packed = limit.pack(&fresh, epoch);
        Self { limit, bucket, fresh, fresh_packed, epoch, is_original: true }
    }

    /// Returns the parameters of a new rule. The state of absent keys is converted like that of all others.
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

    /// Returns the bucket and its time, if the rule is a bucket.
    #[inline]
    pub(super) fn bucket_at(&self, now: Timestamp) -> Option<(NarrowBucket, u64)> {
        let bucket = self.bucket?;
        if now < self.epoch {
            return None;
        }
        Some((bucket, bucket.at(now.since(self.epoch))?))
    }

    /// Packs a slot into a row, if its state fits and it has no waiter.
    pub(super) fn pack(&self, slot: &Slot) -> Option<[u64; 3]> {
        if slot.is_plain() { self.limit.pack(&slot.state, self.epoch) } else { None }
    }

    /// Returns how many of a shard's `keys` a new key sweeps if the store is full.
    pub(super) fn sweep_budget_when_full(&self, keys: usize) -> usize {
        let part = match (self.limit.packed_words(), self.bucket) {
            (0, _) => return SLOTS_WHEN_FULL,
            (_, Some(_)) => PART_WHEN_FULL,
            (_, None) => PART_WHEN_FULL_IF_SLOW,
        };
        SWEEP_WHEN_FULL.max(keys / part)
    }

    /// Returns a test of whether a packed state is idle: whether evicting its key changes no decision.
    pub(super) fn idle_test(&self, now: Timestamp) -> impl Fn(&[u64]) -> bool {
        let ticks = self.bucket_at(now).map(|(_, ticks)| ticks);
        move |words| match ticks {
            Some(ticks) => words[0] <= ticks,
            None => self.limit.peek(&self.unpack(words), now, 0).reset_after.is_zero(),
        }
    }
}

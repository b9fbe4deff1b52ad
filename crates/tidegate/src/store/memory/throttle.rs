//! One request that brings its own rate: `CL.THROTTLE`.
//!
//! Always   The table's own rule is a bucket of nanoseconds, [`THROTTLES`], so that what a key owes is one
//!          word, and a key that owes nothing is at rest under every rate. How much a request may owe comes
//!          with the request; everything else (hot cells, rows, room, sweeping) is as for any bucket.

use super::hot::CellRef;
use super::{Fingerprint, MemoryStore, Placement};
use crate::clock::Clock;
use crate::slot::Slot;
use tidegate_core::{Decision, Limit, Retry, Throttle, Throttled, Timestamp, Verdict};

/// A bucket whose ticks are nanoseconds, because a thousand units come in a time that no part of a thousand
/// divides, and into which 146 years of them fit: [`Throttle`] asks for no more.
pub(crate) const THROTTLES: &str = "1000/1009us burst 4570551051959749";

impl<C: Clock> MemoryStore<C> {
    #[inline]
    pub(crate) fn throttle(&self, key: Fingerprint, throttle: &Throttle) -> Throttled {
        let found = self.hot.find(key);
        if found.is_none() {
            self.prefetch_apart(key);
        }
        self.throttle_at((key, found), throttle, self.steady_now())
    }

    /// Decides at a time that was read before.
    #[inline]
    pub(super) fn throttle_batched(
        &self,
        key: Fingerprint,
        throttle: &Throttle,
        now: Timestamp,
    ) -> Throttled {
        self.throttle_at((key, self.hot.find(key)), throttle, now)
    }

    #[inline]
    fn throttle_at(
        &self,
        (key, found): (Fingerprint, Option<CellRef<'_>>),
        throttle: &Throttle,
        now: Timestamp,
    ) -> Throttled {
        let Some((capacity, price)) = throttle.as_price() else {
            return self.throttle_slowly(key, throttle);
        };
        let Some((bucket, ticks)) = self.original_bucket(now) else {
            return self.throttle_slowly(key, throttle);
        };
        let bucket = bucket.by_the_tick(capacity);
        let taken = match found.and_then(|found| found.take(&bucket, key, ticks, price)) {
            None => self.take_locked(&bucket, key, price, (now, ticks)),
            taken => taken,
        };
        let Some((full_at, was_enough)) = taken else {
            return self.throttle_slowly(key, throttle);
        };
        let debt = full_at.saturating_sub(ticks);
        if was_enough { throttle.allowed(debt) } else { throttle.denied(debt) }
    }

    /// For new keys, refunds and strange numbers.
    #[inline(never)]
    fn throttle_slowly(&self, key: Fingerprint, throttle: &Throttle) -> Throttled {
        let work = |slot: &mut Slot, limit: &Limit, now: Timestamp| {
            let (after, throttled) = throttle.decide(debt(slot, limit, now));
            if let Some(after) = after {
                slot.state = limit.unpack(&[after, 0, 0], now);
            }
            throttled
        };
        let (mut shard, now) = self.enter(key);
        let (throttled, home) = self.with_in(&mut shard, key, now, work);
        self.row_locations[self.shard_of(key)].point_at(&shard);
        shard.counters.count_verdict(verdict(throttled));
        shard.counters.overflowed += u64::from(home == Placement::Overflow);
        shard.housekeep(now, &self.hot, &self.capacity);
        drop(shard);
        self.tend();
        throttled
    }
}

/// What a key owes, in nanoseconds.
fn debt(slot: &Slot, limit: &Limit, now: Timestamp) -> u64 {
    // Nothing that lies ahead of now is nothing that is owed.
    limit.pack(&slot.state, now).map_or(0, |words| words[0])
}

fn verdict(throttled: Throttled) -> Verdict {
    if throttled.is_limited { Verdict::Deny(Retry::Never) } else { Decision::UNLIMITED.verdict }
}

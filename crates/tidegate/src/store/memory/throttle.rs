//! One request that carries its own rate: `CL.THROTTLE`.
//!
//! Always   The store's own rule is a bucket of nanoseconds, [`THROTTLES`], so that the debt of a key is one word, and a
//!          key without debt is idle under every rate. The maximum debt comes with the request; everything else (hot
//!          cells, rows, capacity, sweeping) is as for any bucket.

use super::hot::CellRef;
use super::{Fingerprint, MemoryStore, Placement};
use crate::clock::Clock;
use crate::slot::Slot;
use tidegate_core::{Decision, Limit, Retry, Throttle, Throttled, Timestamp, Verdict};

/// A bucket whose ticks are nanoseconds, because 1000 and 1009 have no common factor. It holds 146 years of them, the
/// most that a [`Throttle`] needs.
pub(crate) const THROTTLES: &str = "1000/1009us burst 4570551051959749";

impl<C: Clock> MemoryStore<C> {
    #[inline]
    pub(crate) fn throttle(&self, key: Fingerprint, throttle: &Throttle) -> Throttled {
        let found = self.hot.find(key);
        if found.is_none() {
            self.prefetch(key);
        }
        self.throttle_at((key, found), throttle, self.steady_now())
    }

    /// Decides at a time that the caller has read.
    #[inline]
    pub(super) fn throttle_at(
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

    /// Decides under the lock, with the time read under it: refunds, numbers that a bucket cannot hold, a full store.
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
        let (throttled, placement) = self.with_in(&mut shard, key, now, work);
        self.note_rows(&shard, key);
        shard.counters.count_verdict(verdict(throttled));
        shard.counters.overflowed += u64::from(placement == Placement::Overflow);
        shard.housekeep(now, &self.hot, &self.capacity);
        throttled
    }
}

/// Returns the debt of a key, in nanoseconds.
fn debt(slot: &Slot, limit: &Limit, now: Timestamp) -> u64 {
    // A bucket that is full by now has no debt.
    limit.pack(&slot.state, now).map_or(0, |words| words[0])
}

fn verdict(throttled: Throttled) -> Verdict {
    if throttled.is_limited { Verdict::Deny(Retry::Never) } else { Decision::UNLIMITED.verdict }
}

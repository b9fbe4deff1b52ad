//! A token bucket in one atomic word: what makes a [`Gate`](crate::Gate) fast.
//!
//! State    `full_at` in the bucket's ticks since an epoch, or [`MOVED`]: then the slow side, which
//!          has a lock, has it.
//! Always   Every change is one compare-and-swap from the value the decision was made on, so an
//!          admission is charged exactly once. The slow side takes the state by swapping in `MOVED`
//!          and gives it back by storing it; meanwhile every fast attempt fails and comes to the lock.
//!          The bucket's numbers never change: after a change of rule the cell stays `MOVED`.

use crate::sync::{AtomicU64, Backoff, Ordering};
use tidegate_core::{Limit, NarrowBucket, State, Timestamp};

/// The state is on the slow side.
const MOVED: u64 = u64::MAX;

#[derive(Debug)]
pub(crate) struct AtomicBucket {
    bucket: NarrowBucket,
    epoch: Timestamp,
    full_at: AtomicU64,
}

impl AtomicBucket {
    /// A cell for this limit, if it is a bucket that fits.
    pub(crate) fn new(limit: &Limit, epoch: Timestamp) -> Option<Self> {
        let bucket = limit.narrow_bucket()?;
        let full_at = limit.pack(&limit.fresh(epoch), epoch).map_or(MOVED, |[full_at, ..]| full_at);
        Some(Self { bucket, epoch, full_at: AtomicU64::new(full_at) })
    }

    /// The bucket, and its time.
    #[inline]
    pub(crate) fn bucket_at(&self, now: Timestamp) -> Option<(&NarrowBucket, u64)> {
        if now < self.epoch {
            return None;
        }
        Some((&self.bucket, self.bucket.at(now.since(self.epoch))?))
    }

    /// Takes without a lock, or says that this needs the slow side. Tells what the bucket is then, and
    /// whether there was enough in it: two numbers stay in registers, a whole decision would not.
    #[inline]
    pub(crate) fn take(&self, now: u64, cost: u64) -> Option<(u64, bool)> {
        let mut full_at = self.full_at.load(Ordering::Acquire);
        let mut backoff = Backoff::new();
        loop {
            if full_at == MOVED || self.bucket.is_ahead_of_clock(full_at, now) {
                return None;
            }
            let Some(after) = self.bucket.take(full_at, now, cost) else {
                return Some((full_at, false));
            };
            if cost == 0 {
                return Some((full_at, true));
            }
            match self.full_at.compare_exchange_weak(
                full_at,
                after,
                Ordering::AcqRel,
                Ordering::Acquire,
            ) {
                Ok(_) => return Some((after, true)),
                Err(found) => full_at = found,
            }
            backoff.pause();
        }
    }

    /// Takes the state over to the slow side, if it is not there. Only under the slow side's lock.
    pub(crate) fn pull(&self, limit: &Limit) -> Option<State> {
        match self.full_at.swap(MOVED, Ordering::AcqRel) {
            MOVED => None,
            full_at => Some(limit.unpack(&[full_at, 0, 0], self.epoch)),
        }
    }

    /// Gives the state back, if it fits. Only under the slow side's lock.
    pub(crate) fn push(&self, limit: &Limit, state: &State) {
        if let Some([full_at, ..]) = limit.pack(state, self.epoch) {
            self.full_at.store(full_at, Ordering::Release);
        }
    }
}

//! The locks of all states that several requests need, held at the same time.
//!
//! Always   Gates and shards are locked in the order of their numbers, then overflow states in the order of
//!          their stores, so that two threads never wait for each other. A new key reserves its capacity
//!          before anything is decided: by then it is known whether its own state or the overflow decides.

use super::InlineVec;
use crate::clock::Clock;
use crate::request::Request;
use crate::store::gate::GateGuard;
use crate::store::memory::{KeyLocation, MemoryStore, OverflowState, Shard};
use crate::store::{Fingerprint, Target};
use crate::sync::MutexGuard;
use tidegate_core::{Span, Timestamp};

/// The charges in the order of their locks, which are held as long as the set lives.
pub(super) struct LockSet<'s, 'a, C: Clock> {
    pub(super) charges: &'s mut [Charge<'a, C>],
    /// Those of gates and shards in the order of the charges, then those of overflow states.
    pub(super) locks: &'s mut InlineVec<Locked<'a, C>>,
    reservations: Vec<Reservation>,
}

/// What a request costs in the state that decides it.
pub(super) struct Charge<'a, C: Clock> {
    pub(super) target: &'a Target<C>,
    pub(super) cost: u64,
    pub(super) max_wait: Span,
    /// The position of the request among all requests.
    pub(super) index: usize,
    order: LockOrder,
    /// The index of the lock.
    pub(super) lock: usize,
    /// Where the key is in its shard.
    pub(super) location: KeyLocation,
    /// Whether the store has no capacity for the key.
    is_overflow: bool,
    /// The position of an earlier charge to the same state, to which this one was added.
    pub(super) first: Option<usize>,
    /// The packed state once the cost is charged; `None` if the state is not packed.
    pub(super) charged: Option<[u64; 3]>,
}

/// A new key's claim to capacity, granted or not.
struct Reservation {
    lock: usize,
    key: Fingerprint,
    is_granted: bool,
}

/// The number of the gate or store, and of the shard. Overflow states come after every shard.
type LockOrder = (u64, usize);

pub(super) enum Locked<'a, C: Clock> {
    Gate(GateGuard<'a, C>),
    Shard { store: &'a MemoryStore<C>, shard: MutexGuard<'a, Shard>, now: Timestamp },
    Overflow { store: &'a MemoryStore<C>, overflow: MutexGuard<'a, OverflowState>, now: Timestamp },
}

impl<'a, C: Clock> Charge<'a, C> {
    #[inline]
    pub(super) fn new(index: usize, request: &'a Request<C>) -> Self {
        Self {
            target: &request.target,
            cost: request.cost,
            max_wait: request.max_wait,
            index,
            order: order(&request.target),
            lock: 0,
            location: KeyLocation::Absent,
            is_overflow: false,
            first: None,
            charged: None,
        }
    }

    /// Returns the key of a state in a shard. The other states are the only ones under their locks.
    #[inline]
    pub(super) fn key(&self) -> Option<Fingerprint> {
        match self.target {
            Target::Key(_, key, _) if !self.is_overflow => Some(*key),
            _ => None,
        }
    }

    #[inline]
    fn lock(&self) -> Locked<'a, C> {
        match self.target {
            Target::Gate(inner) => Locked::Gate(inner.hold()),
            Target::Key(store, ..) => {
                let (shard, now) = store.hold(self.order.1);
                Locked::Shard { store, shard, now }
            }
            Target::Overflow(store) => lock_overflow(store),
        }
    }
}

impl<'s, 'a, C: Clock> LockSet<'s, 'a, C> {
    /// Locks the targets of the charges, finds their states, and adds each charge to the first one for the same state.
    #[inline]
    pub(super) fn new(
        charges: &'s mut [Charge<'a, C>],
        locks: &'s mut InlineVec<Locked<'a, C>>,
    ) -> Self {
        if !charges.is_sorted_by_key(|charge| charge.order) {
            charges.sort_by_key(|charge| charge.order);
        }
        let (mut last, mut has_new) = (None, false);
        for position in 0..charges.len() {
            let (before, after) = charges.split_at_mut(position);
            let charge = &mut after[0];
            if last != Some(charge.order) {
                last = Some(charge.order);
                locks.push(charge.lock());
            }
            charge.lock = locks.len() - 1;
            if let (Locked::Shard { shard, .. }, Some(key)) = (&locks[charge.lock], charge.key()) {
                charge.location = shard.locate(key);
                has_new |= charge.location == KeyLocation::Absent;
            }
            add_up(before, charge);
        }
        let mut set = Self { charges, locks, reservations: Vec::new() };
        if has_new {
            set.reserve();
        }
        set
    }

    /// Reserves the capacity for new keys. Keys without capacity are decided in the overflow state.
    #[cold]
    fn reserve(&mut self) {
        // Reserving capacity may evict an idle key. That moves other keys, and the evicted key may be one of these charges,
        // which then needs capacity again. So this repeats until no key has moved.
        let mut is_moved = true;
        while is_moved {
            is_moved = false;
            for position in 0..self.charges.len() {
                is_moved |= self.reserve_one(position);
            }
        }
        for position in 0..self.charges.len() {
            let Charge { target: Target::Key(store, ..), lock, .. } = self.charges[position] else {
                continue;
            };
            let key = self.charges[position].key();
            let is_refused = |reservation: &Reservation| {
                !reservation.is_granted && reservation.lock == lock && Some(reservation.key) == key
            };
            if self.reservations.iter().any(is_refused) {
                self.move_to_overflow(position, store);
            }
        }
    }

    /// Finds a key again, and reserves its capacity if it is new. Returns whether other keys may have moved.
    fn reserve_one(&mut self, position: usize) -> bool {
        let (lock, key) = (self.charges[position].lock, self.charges[position].key());
        let (Locked::Shard { store, shard, now }, Some(key)) = (&mut self.locks[lock], key) else {
            return false;
        };
        let location = shard.locate(key);
        let is_same = |known: &Reservation| known.lock == lock && known.key == key;
        let is_new = location == KeyLocation::Absent && !self.reservations.iter().any(is_same);
        if is_new {
            let is_granted = shard.reserve_key(*now, &store.capacity);
            self.reservations.push(Reservation { lock, key, is_granted });
        }
        self.charges[position].location = location;
        is_new
    }

    fn move_to_overflow(&mut self, position: usize, store: &'a MemoryStore<C>) {
        let is_same = |locked: &Locked<'_, C>| matches!(locked, Locked::Overflow { store: of, .. } if of.number == store.number);
        let lock = self.locks.iter().position(is_same).unwrap_or_else(|| {
            // The charges are in the order of their stores.
            self.locks.push(lock_overflow(store));
            self.locks.len() - 1
        });
        let (before, after) = self.charges.split_at_mut(position);
        (after[0].lock, after[0].is_overflow) = (lock, true);
        if after[0].first.is_none() {
            add_up(before, &mut after[0]);
        }
    }
}

/// Gives back the capacity of keys that were not stored after all.
impl<C: Clock> Drop for LockSet<'_, '_, C> {
    #[inline]
    fn drop(&mut self) {
        for Reservation { lock, key, is_granted } in std::mem::take(&mut self.reservations) {
            if let Locked::Shard { store, shard, .. } = &self.locks[lock]
                && is_granted
                && !shard.knows(key)
            {
                store.capacity.leave(1);
            }
        }
    }
}

/// Adds a charge to the one before it for the same state, if there is one.
#[inline]
fn add_up<C: Clock>(before: &mut [Charge<'_, C>], charge: &mut Charge<'_, C>) {
    let is_same = |first: &Charge<'_, C>| {
        first.lock == charge.lock && first.first.is_none() && first.key() == charge.key()
    };
    if let Some(first) = before.iter().position(is_same) {
        charge.first = Some(first);
        // A cost that does not fit into a number is more than any limit admits.
        before[first].cost = before[first].cost.saturating_add(charge.cost);
        before[first].max_wait = before[first].max_wait.min(charge.max_wait);
    }
}

#[inline]
fn order<C: Clock>(target: &Target<C>) -> LockOrder {
    match target {
        Target::Gate(inner) => (inner.number, 0),
        Target::Key(store, key, _) => (store.number, store.shard_of(*key)),
        Target::Overflow(store) => overflow_order(store),
    }
}

fn overflow_order<C: Clock>(store: &MemoryStore<C>) -> LockOrder {
    // Stores are numbered from 1, so no store has this bit.
    (store.number | 1 << 63, 0)
}

fn lock_overflow<C: Clock>(store: &MemoryStore<C>) -> Locked<'_, C> {
    let overflow = crate::sync::lock(&store.capacity.overflow_state);
    let now = store.now_for(&overflow.limit);
    Locked::Overflow { store, overflow, now }
}

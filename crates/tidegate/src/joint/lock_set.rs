//! The locks of all states that several requests need, held at the same time.
//!
//! Always   Gates and shards are locked in the order of their numbers, then overflow states in the order of
//!          their stores, so that two threads never wait for each other. A new key reserves its capacity
//!          before anything is decided: by then it is known whether its own state or the overflow decides.

use crate::clock::Clock;
use crate::request::Request;
use crate::store::gate::GateGuard;
use crate::store::memory::{KeyLocation, MemoryStore, OverflowState, Shard};
use crate::store::{Fingerprint, Target};
use crate::sync::MutexGuard;
use tidegate_core::{Span, Timestamp};

/// The charges in the order of their locks, which are held as long as the charges live.
pub(super) struct LockSet<'c, 'a, C: Clock> {
    pub(super) charges: &'c mut [Charge<'a, C>],
    /// Of stores that have no capacity for a key; numbered after the locks in `charges`.
    overflow: Vec<(LockOrder, Locked<'a, C>)>,
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
    /// The lock, if no charge before this one holds the same.
    locked: Option<Locked<'a, C>>,
    /// The position of the charge that holds the lock.
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
            locked: None,
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
    fn lock(&mut self) {
        self.locked = Some(match self.target {
            Target::Gate(inner) => Locked::Gate(inner.hold()),
            Target::Key(store, ..) => {
                let (shard, now) = store.hold(self.order.1);
                Locked::Shard { store, shard, now }
            }
            Target::Overflow(store) => lock_overflow(store),
        });
    }
}

impl<'c, 'a, C: Clock> LockSet<'c, 'a, C> {
    /// Locks the targets of the charges, finds their states, and adds each charge to the first one for the same state.
    #[inline]
    pub(super) fn new(charges: &'c mut [Charge<'a, C>]) -> Self {
        if !charges.is_sorted_by_key(|charge| charge.order) {
            charges.sort_by_key(|charge| charge.order);
        }
        let (mut lock, mut has_new) = (0, false);
        for position in 0..charges.len() {
            let (before, after) = charges.split_at_mut(position);
            let charge = &mut after[0];
            if before.get(lock).is_none_or(|holder| holder.order != charge.order) {
                lock = position;
                charge.lock();
            }
            charge.lock = lock;
            let holder = before.get(lock).unwrap_or(charge);
            if let (Some(Locked::Shard { shard, .. }), Some(key)) = (&holder.locked, charge.key()) {
                charge.location = shard.locate(key);
                has_new |= charge.location == KeyLocation::Absent;
            }
            add_up(before, charge);
        }
        let mut locks = Self { charges, overflow: Vec::new(), reservations: Vec::new() };
        if has_new {
            locks.reserve();
        }
        locks
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
        let holder = self.charges[lock].locked.as_mut();
        let (Some(Locked::Shard { store, shard, now }), Some(key)) = (holder, key) else {
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
        let order = overflow_order(store);
        let in_charges = self.charges.iter().position(|charge| charge.order == order);
        let lock = in_charges.unwrap_or_else(|| {
            // The charges are in the order of their stores.
            if self.overflow.last().is_none_or(|(last, _)| *last != order) {
                self.overflow.push((order, lock_overflow(store)));
            }
            self.charges.len() + self.overflow.len() - 1
        });
        let (before, after) = self.charges.split_at_mut(position);
        (after[0].lock, after[0].is_overflow) = (lock, true);
        if after[0].first.is_none() {
            add_up(before, &mut after[0]);
        }
    }

    #[inline]
    pub(super) fn locked(&self, lock: usize) -> Option<&Locked<'a, C>> {
        match self.charges.get(lock) {
            Some(charge) => charge.locked.as_ref(),
            None => self.overflow.get(lock - self.charges.len()).map(|(_, locked)| locked),
        }
    }

    #[inline]
    pub(super) fn locked_mut(&mut self, lock: usize) -> Option<&mut Locked<'a, C>> {
        let charges = self.charges.len();
        match self.charges.get_mut(lock) {
            Some(charge) => charge.locked.as_mut(),
            None => self.overflow.get_mut(lock - charges).map(|(_, locked)| locked),
        }
    }
}

/// Gives back the capacity of keys that were not stored after all.
impl<C: Clock> Drop for LockSet<'_, '_, C> {
    #[inline]
    fn drop(&mut self) {
        for Reservation { lock, key, is_granted } in std::mem::take(&mut self.reservations) {
            if let Some(Locked::Shard { store, shard, .. }) = self.locked(lock)
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

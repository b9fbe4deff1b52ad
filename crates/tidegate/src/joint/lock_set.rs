//! All that several requests need, locked at the same time.
//!
//! Always   Gates and shards are locked in the order of their numbers, then what keys without room share,
//!          in the order of their stores: whoever locks several, locks them in the same order. A key
//!          that is not known gets its room before anything is decided, so that it is known by then
//!          which state decides.

use crate::clock::Clock;
use crate::request::Request;
use crate::slot::Slot;
use crate::store::Target;
use crate::store::gate::GateGuard;
use crate::store::memory::{MemoryStore, OverflowState, Shard};
use crate::store::{Fingerprint, KeyName};
use crate::sync::MutexGuard;
use tidegate_core::{Decision, Limit, Timestamp};

/// One state: at a gate, of a key, or overflow by keys without capacity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StateId {
    lock: usize,
    key: Option<Fingerprint>,
}

pub(crate) struct LockSet<'a, C: Clock> {
    /// In the order in which they were locked.
    locked: Vec<(LockOrder, Locked<'a, C>)>,
    /// The room that was taken for keys that were not known.
    entered: Vec<StateId>,
}

/// Of the gate or store, and of the shard; what is overflow comes after every shard.
type LockOrder = (bool, u64, usize);

enum Locked<'a, C: Clock> {
    Gate(GateGuard<'a, C>),
    Shard { store: &'a MemoryStore<C>, shard: MutexGuard<'a, Shard>, now: Timestamp },
    Overflow { store: &'a MemoryStore<C>, overflow: MutexGuard<'a, OverflowState>, now: Timestamp },
}

impl<'a, C: Clock> LockSet<'a, C> {
    /// Locks all that these ask.
    pub(crate) fn of(requests: &'a [Request<C>]) -> Self {
        let mut targets: Vec<(LockOrder, &'a Target<C>)> =
            requests.iter().map(|request| (number(&request.target), &request.target)).collect();
        targets.sort_by_key(|(number, _)| *number);
        targets.dedup_by_key(|(number, _)| *number);
        let lock = |(number, target): (LockOrder, &'a Target<C>)| (number, lock(target));
        Self { locked: targets.into_iter().map(lock).collect(), entered: Vec::new() }
    }

    /// Where each of them is decided.
    pub(crate) fn states(&mut self, requests: &'a [Request<C>]) -> Vec<StateId> {
        let own = self.own_states(requests);
        let without = requests.iter().zip(&own).filter(|(_, state)| state.is_none());
        let mut stores: Vec<&'a MemoryStore<C>> =
            without.filter_map(|(request, _)| store_of(&request.target)).collect();
        stores.sort_by_key(|store| store.number);
        stores.dedup_by_key(|store| store.number);
        for store in stores {
            if self.find(overflow_order(store)).is_none() {
                self.locked.push((overflow_order(store), lock_overflow(store)));
            }
        }
        let overflow = |target: &Target<C>| {
            let number = store_of(target).map(overflow_order).and_then(|number| self.find(number));
            StateId { lock: number.expect("what they share was locked"), key: None }
        };
        requests
            .iter()
            .zip(own)
            .map(|(request, own)| own.unwrap_or_else(|| overflow(&request.target)))
            .collect()
    }

    /// The states of their own, where there are or can be any. Making room for one may have been at
    /// the cost of another that was at rest: then that one needs room too.
    fn own_states(&mut self, requests: &'a [Request<C>]) -> Vec<Option<StateId>> {
        loop {
            let own: Vec<Option<StateId>> =
                requests.iter().map(|request| self.own_state(&request.target)).collect();
            if own.iter().flatten().all(|state| self.has_room(*state)) {
                return own;
            }
        }
    }

    fn has_room(&self, state: StateId) -> bool {
        match (&self.locked[state.lock].1, state.key) {
            (Locked::Shard { shard, .. }, Some(key)) => {
                shard.knows(key) || self.entered.contains(&state)
            }
            _ => true,
        }
    }

    /// The state of its own, if there is or can be one.
    fn own_state(&mut self, target: &Target<C>) -> Option<StateId> {
        let lock = self.find(number(target)).expect("every target was locked");
        let state = StateId { lock, key: key(target) };
        let (Some(key), Locked::Shard { store, shard, now }) =
            (state.key, &mut self.locked[lock].1)
        else {
            return Some(state);
        };
        if shard.knows(key) || self.entered.contains(&state) {
            return Some(state);
        }
        shard.reserve_key(*now, &store.capacity).then(|| {
            self.entered.push(state);
            state
        })
    }

    fn find(&self, number: LockOrder) -> Option<usize> {
        self.locked.iter().position(|(known, _)| *known == number)
    }

    /// Works on one state; what is only looked at is not changed.
    pub(crate) fn with<R>(
        &mut self,
        state: StateId,
        is_change: bool,
        work: impl FnOnce(&mut Slot, &Limit, Timestamp) -> R,
    ) -> R {
        match (&mut self.locked[state.lock].1, state.key) {
            (Locked::Gate(held), _) => {
                let (now, slow) = (held.now, &mut *held.state);
                work(&mut slow.slot, &slow.limit, now)
            }
            (Locked::Shard { shard, now, .. }, Some(key)) if is_change => {
                shard.with(key, *now, work).0
            }
            (Locked::Shard { shard, now, .. }, Some(key)) => shard.look(key, *now, work),
            (Locked::Overflow { store, overflow, now }, _) => {
                store.capacity.work(overflow, *now, work)
            }
            (Locked::Shard { .. }, None) => unreachable!("a shard is asked by key"),
        }
    }

    /// Counts what was decided where it was decided.
    pub(crate) fn note(
        &mut self,
        (state, name): (StateId, &KeyName),
        cost: u64,
        decision: &Decision,
    ) {
        match (&mut self.locked[state.lock].1, state.key) {
            (Locked::Shard { shard, now, .. }, Some(key)) => {
                shard.note_named(key, (*now, cost), decision, || name.clone());
            }
            (Locked::Overflow { overflow, .. }, _) => overflow.note(decision),
            _ => (),
        }
    }

    /// Lets those hear that a key was asked about who listen: there is nothing to count, because another denied it.
    pub(crate) fn hear(&mut self, (state, name): (StateId, &KeyName), decision: &Decision) {
        if let (Locked::Shard { shard, now, .. }, Some(key)) =
            (&mut self.locked[state.lock].1, state.key)
        {
            shard.hear(key, *now, decision, || name.clone());
        }
    }

    /// Gives back the room of keys that nothing was charged to after all.
    pub(crate) fn leave_unused(&mut self) {
        for state in self.entered.drain(..) {
            if let (Locked::Shard { store, shard, .. }, Some(key)) =
                (&self.locked[state.lock].1, state.key)
                && !shard.knows(key)
            {
                store.capacity.leave(1);
            }
        }
    }
}

fn number<C: Clock>(target: &Target<C>) -> LockOrder {
    match target {
        Target::Gate(inner) => (false, inner.number, 0),
        Target::Key(store, key, _) => (false, store.number, store.shard_of(*key)),
        Target::Overflow(store) => overflow_order(store),
    }
}

fn overflow_order<C: Clock>(store: &MemoryStore<C>) -> LockOrder {
    (true, store.number, 0)
}

fn key<C: Clock>(target: &Target<C>) -> Option<Fingerprint> {
    match target {
        Target::Key(_, key, _) => Some(*key),
        Target::Gate(_) | Target::Overflow(_) => None,
    }
}

fn store_of<C: Clock>(target: &Target<C>) -> Option<&MemoryStore<C>> {
    match target {
        Target::Key(store, ..) | Target::Overflow(store) => Some(store),
        Target::Gate(_) => None,
    }
}

fn lock<C: Clock>(target: &Target<C>) -> Locked<'_, C> {
    match target {
        Target::Gate(inner) => Locked::Gate(inner.hold()),
        Target::Key(store, key, _) => {
            let (shard, now) = store.hold(store.shard_of(*key));
            Locked::Shard { store, shard, now }
        }
        Target::Overflow(store) => lock_overflow(store),
    }
}

fn lock_overflow<C: Clock>(store: &MemoryStore<C>) -> Locked<'_, C> {
    let overflow = crate::sync::lock(&store.capacity.overflow_state);
    let now = store.now_for(&overflow.limit);
    Locked::Overflow { store, overflow, now }
}

//! All that several requests need, locked at the same time.
//!
//! Always   Gates and shards are locked in the order of their numbers, then what keys without room share,
//!          in the order of their tables: whoever locks several, locks them in the same order. A key
//!          that is not known gets its room before anything is decided, so that it is known by then
//!          which state decides.

use crate::ask::Ask;
use crate::clock::Clock;
use crate::gate::Held;
use crate::latch::Latched;
use crate::slot::Slot;
use crate::spot::Spot;
use crate::sync::MutexGuard;
use crate::table::{Fingerprint, KeyName, Shard, Shared, Table};
use tidegate_core::{Decision, Limit, Timestamp};

/// One state: at a gate, of a key, or shared by keys without room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    home: usize,
    key: Option<Fingerprint>,
}

pub(crate) struct Homes<'a, C: Clock> {
    /// In the order in which they were locked.
    homes: Vec<(Number, Home<'a, C>)>,
    /// The room that was taken for keys that were not known.
    entered: Vec<Place>,
}

/// Of the gate or table, and of the shard; what is shared comes after every shard.
type Number = (bool, u64, usize);

enum Home<'a, C: Clock> {
    Gate(Held<'a, C>),
    Shard { table: &'a Table<C>, shard: Latched<'a, Shard>, now: Timestamp },
    Shared { table: &'a Table<C>, shared: MutexGuard<'a, Shared>, now: Timestamp },
}

impl<'a, C: Clock> Homes<'a, C> {
    /// Locks all that these ask.
    pub(crate) fn of(asks: &'a [Ask<C>]) -> Self {
        let mut spots: Vec<(Number, &'a Spot<C>)> =
            asks.iter().map(|ask| (number(&ask.spot), &ask.spot)).collect();
        spots.sort_by_key(|(number, _)| *number);
        spots.dedup_by_key(|(number, _)| *number);
        let lock = |(number, spot): (Number, &'a Spot<C>)| (number, lock(spot));
        Self { homes: spots.into_iter().map(lock).collect(), entered: Vec::new() }
    }

    /// Where each of them is decided.
    pub(crate) fn places(&mut self, asks: &'a [Ask<C>]) -> Vec<Place> {
        let own = self.own_places(asks);
        let without = asks.iter().zip(&own).filter(|(_, place)| place.is_none());
        let mut tables: Vec<&'a Table<C>> =
            without.filter_map(|(ask, _)| table(&ask.spot)).collect();
        tables.sort_by_key(|table| table.number);
        tables.dedup_by_key(|table| table.number);
        for table in tables {
            if self.find(shared_number(table)).is_none() {
                self.homes.push((shared_number(table), lock_shared(table)));
            }
        }
        let shared = |spot: &Spot<C>| {
            let number = table(spot).map(shared_number).and_then(|number| self.find(number));
            Place { home: number.expect("what they share was locked"), key: None }
        };
        asks.iter().zip(own).map(|(ask, own)| own.unwrap_or_else(|| shared(&ask.spot))).collect()
    }

    /// The places of their own, where there are or can be any. Making room for one may have been at
    /// the cost of another that was at rest: then that one needs room too.
    fn own_places(&mut self, asks: &'a [Ask<C>]) -> Vec<Option<Place>> {
        loop {
            let own: Vec<Option<Place>> =
                asks.iter().map(|ask| self.own_place(&ask.spot)).collect();
            if own.iter().flatten().all(|place| self.has_room(*place)) {
                return own;
            }
        }
    }

    fn has_room(&self, place: Place) -> bool {
        match (&self.homes[place.home].1, place.key) {
            (Home::Shard { shard, .. }, Some(key)) => {
                shard.knows(key) || self.entered.contains(&place)
            }
            _ => true,
        }
    }

    /// The place of its own, if there is or can be one.
    fn own_place(&mut self, spot: &Spot<C>) -> Option<Place> {
        let home = self.find(number(spot)).expect("every spot was locked");
        let place = Place { home, key: key(spot) };
        let (Some(key), Home::Shard { table, shard, now }) = (place.key, &mut self.homes[home].1)
        else {
            return Some(place);
        };
        if shard.knows(key) || self.entered.contains(&place) {
            return Some(place);
        }
        shard.make_room(*now, &table.room).then(|| {
            self.entered.push(place);
            place
        })
    }

    fn find(&self, number: Number) -> Option<usize> {
        self.homes.iter().position(|(known, _)| *known == number)
    }

    /// Works on one state; what is only looked at is not changed.
    pub(crate) fn with<R>(
        &mut self,
        place: Place,
        is_change: bool,
        work: impl FnOnce(&mut Slot, &Limit, Timestamp) -> R,
    ) -> R {
        match (&mut self.homes[place.home].1, place.key) {
            (Home::Gate(held), _) => {
                let (now, slow) = (held.now, &mut *held.slow);
                work(&mut slow.slot, &slow.limit, now)
            }
            (Home::Shard { shard, now, .. }, Some(key)) if is_change => {
                shard.with(key, *now, work).0
            }
            (Home::Shard { shard, now, .. }, Some(key)) => shard.look(key, *now, work),
            (Home::Shared { table, shared, now }, _) => table.room.work(shared, *now, work),
            (Home::Shard { .. }, None) => unreachable!("a shard is asked by key"),
        }
    }

    /// Counts what was decided where it was decided.
    pub(crate) fn note(
        &mut self,
        (place, name): (Place, &KeyName),
        cost: u64,
        decision: &Decision,
    ) {
        match (&mut self.homes[place.home].1, place.key) {
            (Home::Shard { shard, now, .. }, Some(key)) => {
                shard.note_named(key, (*now, cost), decision, || name.clone());
            }
            (Home::Shared { shared, .. }, _) => shared.note(decision),
            _ => (),
        }
    }

    /// Lets those hear that a key was asked about who listen: there is nothing to count, because another denied it.
    pub(crate) fn hear(&mut self, (place, name): (Place, &KeyName), decision: &Decision) {
        if let (Home::Shard { shard, now, .. }, Some(key)) =
            (&mut self.homes[place.home].1, place.key)
        {
            shard.hear(key, *now, decision, || name.clone());
        }
    }

    /// Gives back the room of keys that nothing was charged to after all.
    pub(crate) fn leave_unused(&mut self) {
        for place in self.entered.drain(..) {
            if let (Home::Shard { table, shard, .. }, Some(key)) =
                (&self.homes[place.home].1, place.key)
                && !shard.knows(key)
            {
                table.room.leave(1);
            }
        }
    }
}

fn number<C: Clock>(spot: &Spot<C>) -> Number {
    match spot {
        Spot::Gate(post) => (false, post.number, 0),
        Spot::Key(table, key, _) => (false, table.number, table.shard_of(*key)),
        Spot::Shared(table) => shared_number(table),
    }
}

fn shared_number<C: Clock>(table: &Table<C>) -> Number {
    (true, table.number, 0)
}

fn key<C: Clock>(spot: &Spot<C>) -> Option<Fingerprint> {
    match spot {
        Spot::Key(_, key, _) => Some(*key),
        Spot::Gate(_) | Spot::Shared(_) => None,
    }
}

fn table<C: Clock>(spot: &Spot<C>) -> Option<&Table<C>> {
    match spot {
        Spot::Key(table, ..) | Spot::Shared(table) => Some(table),
        Spot::Gate(_) => None,
    }
}

fn lock<C: Clock>(spot: &Spot<C>) -> Home<'_, C> {
    match spot {
        Spot::Gate(post) => Home::Gate(post.hold()),
        Spot::Key(table, key, _) => {
            let (shard, now) = table.hold(table.shard_of(*key));
            Home::Shard { table, shard, now }
        }
        Spot::Shared(table) => lock_shared(table),
    }
}

fn lock_shared<C: Clock>(table: &Table<C>) -> Home<'_, C> {
    let shared = crate::sync::lock(&table.room.shared);
    let now = table.now_for(&shared.limit);
    Home::Shared { table, shared, now }
}

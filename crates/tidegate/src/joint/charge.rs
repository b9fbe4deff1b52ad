//! Decisions under the locks: first without charging, then charged or rejected together.
//!
//! Gain     Rows are decided and charged in their packed form (`decide_packed`, `charge_packed`), all other states in a slot
//!          (`with`). Two limits take 2 426 instructions, and 4 698 if rows are decided in slots too; three take 3 471, and
//!          6 809 (cases `check-all-of-two` and `-three` of `cargo xtask instructions`).

use super::lock_set::{Charge, LockSet, Locked};
use crate::clock::Clock;
use crate::slot::{DecisionContext, Slot};
use crate::store::memory::{KeyLocation, PackedDecision};
use crate::sync::wake::WakeList;
use tidegate_core::{Decision, Limit, Timestamp, Verdict};

impl<C: Clock> LockSet<'_, '_, C> {
    /// Decides, and charges nothing. Returns whether no request is denied.
    #[inline]
    pub(super) fn decide(&mut self, each: &mut [Decision], wakes: &mut WakeList) -> bool {
        let mut is_admitted = true;
        for charge in self.charges.iter_mut().filter(|charge| charge.first.is_none()) {
            let locked = &mut self.locks[charge.lock];
            let demand @ (cost, max_wait) = (charge.cost, charge.max_wait);
            let decision = match charge.decide_packed(locked, cost) {
                Some(PackedDecision { decision, charged }) if !matches!(decision.verdict, Verdict::Wait(wait) if wait > max_wait) =>
                {
                    charge.charged = Some(charged);
                    decision
                }
                _ => charge.with(locked, false, |slot, limit, now| {
                    slot.peek_within(&mut DecisionContext::new(limit, now, wakes), demand)
                }),
            };
            is_admitted &= !decision.is_deny();
            each[charge.index] = decision;
        }
        is_admitted
    }

    /// Charges what was decided, and counts it.
    #[inline]
    pub(super) fn charge(&mut self, each: &mut [Decision], wakes: &mut WakeList) {
        let mut has_others = false;
        for charge in &*self.charges {
            if charge.is_row() {
                charge.store_packed(&mut self.locks[charge.lock], &each[charge.index]);
            } else {
                has_others |= charge.first.is_none();
            }
        }
        if has_others {
            self.charge_others(each, wakes);
        }
    }

    /// Charges all that is not in a row. That comes last, because storing it may move rows.
    #[inline(never)]
    fn charge_others(&mut self, each: &mut [Decision], wakes: &mut WakeList) {
        for charge in &*self.charges {
            if charge.first.is_some() || charge.is_row() {
                continue;
            }
            let (locked, decision) = (&mut self.locks[charge.lock], &mut each[charge.index]);
            if charge.charged.is_some() {
                charge.store_packed(locked, decision);
                continue;
            }
            *decision = charge.with(locked, true, |slot, limit, now| {
                slot.check(&mut DecisionContext::new(limit, now, wakes), charge.cost)
            });
            charge.note(locked, charge.cost, decision);
        }
    }

    /// Counts the denials. States that would have admitted their requests report their numbers, untouched.
    #[inline(never)]
    pub(super) fn reject(&mut self, each: &mut [Decision], wakes: &mut WakeList) {
        for charge in self.charges.iter().filter(|charge| charge.first.is_none()) {
            let (locked, decision) = (&mut self.locks[charge.lock], &mut each[charge.index]);
            if decision.is_deny() {
                charge.note(locked, 0, decision);
                continue;
            }
            *decision = match charge.decide_packed(locked, 0) {
                Some(packed) => packed.decision,
                None => charge.with(locked, false, |slot, limit, now| {
                    slot.peek(&mut DecisionContext::new(limit, now, wakes), 0)
                }),
            };
            if let (Locked::Shard { shard, now, .. }, Some(key)) = (locked, charge.key()) {
                shard.observe(key, (*now, 0), decision, || charge.target.name().clone());
            }
        }
    }

    /// Gives every request the decision about the charge that it was added to.
    #[inline]
    pub(super) fn copy_merged(&self, each: &mut [Decision]) {
        for charge in &*self.charges {
            if let Some(first) = charge.first {
                each[charge.index] = each[self.charges[first].index];
            }
        }
    }
}

impl<C: Clock> Charge<'_, C> {
    /// Returns whether storing the charge moves no other key.
    #[inline]
    fn is_row(&self) -> bool {
        self.charged.is_some() && matches!(self.location, KeyLocation::Row(_))
    }

    /// Decides from the packed state of a key, and charges nothing. Returns `None` for all other states.
    #[inline]
    fn decide_packed(&self, locked: &Locked<'_, C>, cost: u64) -> Option<PackedDecision> {
        let Locked::Shard { shard, now, .. } = locked else { return None };
        shard.decide_packed(self.location, *now, cost)
    }

    /// Stores the packed state once it is charged, and counts the decision.
    #[inline]
    fn store_packed(&self, locked: &mut Locked<'_, C>, decision: &Decision) {
        if let (Locked::Shard { store, shard, now }, Some(key), Some(charged)) =
            (locked, self.key(), self.charged)
        {
            // A new key that costs nothing is as fresh as before.
            if self.cost > 0 || self.is_row() {
                shard.charge_packed((key, self.location), charged, *now, &store.capacity);
            }
            shard.note_named(key, (*now, self.cost), decision, || self.target.name().clone());
        }
    }

    /// Works on the slot of a state, and stores it if `is_change`.
    #[inline(never)]
    fn with<R>(
        &self,
        locked: &mut Locked<'_, C>,
        is_change: bool,
        work: impl FnOnce(&mut Slot, &Limit, Timestamp) -> R,
    ) -> R {
        match (locked, self.key()) {
            (Locked::Gate(held), _) => {
                let (now, gate) = (held.now, &mut *held.state);
                work(&mut gate.slot, &gate.limit, now)
            }
            (Locked::Shard { shard, now, .. }, Some(key)) => {
                // Located again: charging another key may have moved this one.
                let location = shard.locate(key);
                if is_change {
                    return shard.with((key, location), *now, work).0;
                }
                shard.look(location, *now, work)
            }
            (Locked::Overflow { store, overflow, now }, _) => {
                store.capacity.work(overflow, *now, work)
            }
            (Locked::Shard { .. }, None) => unreachable!("every state of a shard has a key"),
        }
    }

    /// Counts a decision, and shows it to the observers of its shard.
    fn note(&self, locked: &mut Locked<'_, C>, cost: u64, decision: &Decision) {
        match (locked, self.key()) {
            (Locked::Shard { shard, now, .. }, Some(key)) => {
                shard.note_named(key, (*now, cost), decision, || self.target.name().clone());
            }
            (Locked::Overflow { overflow, .. }, _) => overflow.note(decision),
            _ => (),
        }
    }
}

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
        for position in 0..self.charges.len() {
            let Charge { cost, max_wait, index, first, .. } = self.charges[position];
            if first.is_some() {
                continue;
            }
            let decision = match self.decide_packed(position, cost) {
                Some(PackedDecision { decision, charged }) if !matches!(decision.verdict, Verdict::Wait(wait) if wait > max_wait) =>
                {
                    self.charges[position].charged = Some(charged);
                    decision
                }
                _ => self.with(position, false, |slot, limit, now| {
                    slot.peek_within(&mut DecisionContext::new(limit, now, wakes), (cost, max_wait))
                }),
            };
            is_admitted &= !decision.is_deny();
            each[index] = decision;
        }
        is_admitted
    }

    /// Charges what was decided, and counts it.
    #[inline]
    pub(super) fn charge(&mut self, each: &mut [Decision], wakes: &mut WakeList) {
        let mut has_others = false;
        for position in 0..self.charges.len() {
            let Charge { index, first, .. } = self.charges[position];
            if self.charges[position].is_row() {
                self.charge_packed(position);
                self.note(position, &each[index]);
            } else {
                has_others |= first.is_none();
            }
        }
        if has_others {
            self.charge_others(each, wakes);
        }
    }

    /// Charges all that is not in a row. That comes last, because storing it may move rows.
    #[inline(never)]
    fn charge_others(&mut self, each: &mut [Decision], wakes: &mut WakeList) {
        for position in 0..self.charges.len() {
            let Charge { cost, index, first, charged, .. } = self.charges[position];
            if first.is_some() || self.charges[position].is_row() {
                continue;
            }
            if charged.is_none() {
                each[index] = self.with(position, true, |slot, limit, now| {
                    slot.check(&mut DecisionContext::new(limit, now, wakes), cost)
                });
            } else if cost > 0 {
                // A new key that costs nothing is as fresh as before.
                self.charge_packed(position);
            }
            self.note(position, &each[index]);
        }
    }

    /// Counts the denials. States that would have admitted their requests report their numbers, untouched.
    #[inline(never)]
    pub(super) fn reject(&mut self, each: &mut [Decision], wakes: &mut WakeList) {
        for position in 0..self.charges.len() {
            let Charge { target, lock, index, first, .. } = self.charges[position];
            let decision = &mut each[index];
            if first.is_some() {
                continue;
            }
            if decision.is_deny() {
                self.charges[position].cost = 0;
                self.note(position, decision);
                continue;
            }
            *decision = match self.decide_packed(position, 0) {
                Some(packed) => packed.decision,
                None => self.with(position, false, |slot, limit, now| {
                    slot.peek(&mut DecisionContext::new(limit, now, wakes), 0)
                }),
            };
            let key = self.charges[position].key();
            if let (Some(Locked::Shard { shard, now, .. }), Some(key)) =
                (self.locked_mut(lock), key)
            {
                shard.observe(key, (*now, 0), decision, || target.name().clone());
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

    /// Decides from the packed state of a key, and charges nothing. Returns `None` for all other states.
    #[inline]
    fn decide_packed(&self, position: usize, cost: u64) -> Option<PackedDecision> {
        let Charge { lock, location, .. } = self.charges[position];
        let Some(Locked::Shard { shard, now, .. }) = self.locked(lock) else { return None };
        shard.decide_packed(location, *now, cost)
    }

    #[inline]
    fn charge_packed(&mut self, position: usize) {
        let Charge { lock, location, charged, .. } = self.charges[position];
        let key = self.charges[position].key();
        if let (Some(Locked::Shard { store, shard, now }), Some(key), Some(charged)) =
            (self.locked_mut(lock), key, charged)
        {
            shard.charge_packed((key, location), charged, *now, &store.capacity);
        }
    }

    /// Works on the slot of a state, and stores it if `is_change`.
    #[inline(never)]
    fn with<R>(
        &mut self,
        position: usize,
        is_change: bool,
        work: impl FnOnce(&mut Slot, &Limit, Timestamp) -> R,
    ) -> R {
        let (lock, key) = (self.charges[position].lock, self.charges[position].key());
        match (self.locked_mut(lock).expect("every state is locked"), key) {
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
    #[inline]
    fn note(&mut self, position: usize, decision: &Decision) {
        let Charge { target, lock, cost, .. } = self.charges[position];
        let key = self.charges[position].key();
        match (self.locked_mut(lock), key) {
            (Some(Locked::Shard { shard, now, .. }), Some(key)) => {
                shard.note_named(key, (*now, cost), decision, || target.name().clone());
            }
            (Some(Locked::Overflow { overflow, .. }), _) => overflow.note(decision),
            _ => (),
        }
    }
}

impl<C: Clock> Charge<'_, C> {
    /// Returns whether storing the charge moves no other key.
    #[inline]
    fn is_row(&self) -> bool {
        self.charged.is_some() && matches!(self.location, KeyLocation::Row(_))
    }
}

//! Another rule for all keys of a shard (B8).
//!
//! Always   All keys of a shard are converted under its lock, so the lock is held for as short as possible: rows that keep
//!          their width are converted in place, the copy that other rows need is reused for the next shard, and keys that
//!          are idle under the new rule are left to the next sweeps.

use super::{Fingerprint, LimitParameters, PackedRows, Shard, Slot, each_width, key_of, row_of};
use crate::sync::Arc;
use crate::sync::wake::WakeList;
use tidegate_core::{State, Timestamp};

/// A change of the rule, which is applied to one shard after the other.
pub(in crate::store::memory) struct RuleChange {
    pub(in crate::store::memory) parameters: Arc<LimitParameters>,
    /// The waiters that the change admits or moves. They are woken when this is dropped, when no lock is held.
    pub(in crate::store::memory) wakes: WakeList,
    /// A buffer for rows that become wider or narrower.
    rows: Vec<u64>,
}

impl RuleChange {
    pub(in crate::store::memory) fn to(parameters: LimitParameters) -> Self {
        Self { parameters: Arc::new(parameters), wakes: WakeList::default(), rows: Vec::new() }
    }
}

impl Shard {
    /// Converts all keys to the new parameters. The old and the new rule may follow different clocks, so each has its own
    /// time.
    pub(in crate::store::memory) fn change(
        &mut self,
        change: &mut RuleChange,
        (old_now, now): (Timestamp, Timestamp),
    ) {
        let old = std::mem::replace(&mut self.parameters, Arc::clone(&change.parameters));
        for slot in self.slots.values_mut() {
            slot.change((&old.limit, old_now), (&self.parameters.limit, now), &mut change.wakes);
        }
        let slots: Vec<Fingerprint> = self.slots.keys().copied().collect();
        for (key, state) in self.change_rows(&old, (old_now, now), &mut change.rows) {
            self.slots.insert(key, Slot::new(state));
        }
        for key in slots {
            if let Some(index) = self.slots.get_index_of(&key) {
                self.settle(index);
            }
        }
        if let Some(auditor) = self.auditor() {
            auditor.forget_all();
        }
        self.cursor = 0;
        self.seen = now;
    }

    /// Converts the rows from the `old` parameters. Returns the keys whose state does not fit into a row any more.
    fn change_rows(
        &mut self,
        old: &LimitParameters,
        (old_now, now): (Timestamp, Timestamp),
        scratch: &mut Vec<u64>,
    ) -> Vec<(Fingerprint, State)> {
        let (parameters, rows_max) = (Arc::clone(&self.parameters), self.len());
        let new = &parameters.limit;
        let mut no_rows = Vec::new();
        let mut take_over = |row: &[u64]| {
            let state = new.take_over_between(&old.limit, &old.unpack(&row[2..]), old_now, now);
            let packed = new.pack(&state, parameters.epoch);
            if packed.is_none() {
                no_rows.push((key_of(row), state));
            }
            packed
        };
        if new.packed_words() == old.limit.packed_words() {
            each_width!(&mut self.rows, rows => {
                rows.sweep(0, usize::MAX, |row| {
                    take_over(row).inspect(|packed| *row = row_of(key_of(row), *packed)).is_some()
                });
            }, else ());
        } else {
            // The old array is dropped before the new one is allocated; the copy holds the rows meanwhile.
            self.rows.copy_to(scratch);
            self.rows = PackedRows::None;
            self.rows = PackedRows::new(new.packed_words(), self.index);
            let mut rows = scratch
                .chunks_exact(2 + old.limit.packed_words())
                .filter_map(|row| take_over(row).map(|packed| (key_of(row), packed)));
            each_width!(&mut self.rows, new_rows => {
                new_rows.reserve(rows_max);
                new_rows.fill(rows.map(|(key, packed)| row_of(key, packed)));
            }, else rows.by_ref().for_each(drop));
        }
        no_rows
    }
}

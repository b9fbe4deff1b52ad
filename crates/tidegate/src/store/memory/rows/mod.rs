//! Rows in the order of their fingerprints, with gaps: a hash table that is a sorted array.
//!
//! A fingerprint is a random number, so its index in a sorted array can be computed: its ideal index. A row is at its
//! ideal index or, if that is taken, as soon after it as the order allows. So a search ends at the first greater row or
//! at a gap; and growing, shrinking and sweeping are one pass over rows that stay in order.
//!
//! Always   Rows are in ascending order. There is no gap between a row's ideal index and the row. The last row of the
//!          array is empty.

mod storage;

use crate::store::fingerprint::Fingerprint;
use storage::RowStorage;

/// Two words of fingerprint, then the packed state. An empty row is all zeros.
pub(crate) type Row<const N: usize> = [u64; N];

#[derive(Debug)]
pub(crate) struct Rows<const N: usize> {
    storage: RowStorage,
    /// Ideal indexes are below this. The array has a few more rows.
    range: usize,
    len: usize,
    /// Differs between shards, so that they do not all grow at once.
    range_min: usize,
}

/// The number of rows after the last ideal index. If they do not suffice, the array grows.
fn spare(range: usize) -> usize {
    range.min(SPARE_MAX - 1) + 1
}

const SPARE_MAX: usize = 97;

fn ideal_index<const N: usize>(row: &Row<N>, range: usize) -> usize {
    Fingerprint { high: row[0], low: row[1] }.index_in(range)
}

const RANGE_MIN: usize = 8;

impl<const N: usize> Rows<N> {
    /// How full the range may get, in sixteenths. Wide rows are packed more tightly.
    const FULL: usize = if N > 4 { 15 } else { 14 };
    const FULL_OF: usize = 16;

    pub(crate) fn new(seed: usize) -> Self {
        Self {
            storage: RowStorage::EMPTY,
            range: 0,
            len: 0,
            range_min: RANGE_MIN + seed % RANGE_MIN,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Returns the length of the array, empty rows included.
    pub(crate) fn array_len(&self) -> usize {
        self.rows().len()
    }

    #[inline]
    fn rows(&self) -> &[Row<N>] {
        self.storage.words().as_chunks().0
    }

    #[inline]
    fn rows_mut(&mut self) -> &mut [Row<N>] {
        self.storage.words_mut().as_chunks_mut().0
    }

    /// Returns all rows, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Row<N>> {
        self.rows().iter().filter(|row| row[0] != 0)
    }

    /// Replaces what is in `copy` with the words of all rows.
    pub(crate) fn copy_to(&self, copy: &mut Vec<u64>) {
        copy.clear();
        copy.reserve(self.len * N);
        self.iter().for_each(|row| copy.extend_from_slice(row));
    }

    /// Returns the index of the key's row, or as an error the index at which it would be inserted.
    #[inline]
    pub(crate) fn find(&self, key: Fingerprint) -> Result<usize, usize> {
        let ideal = key.index_in(self.range);
        let mut at = ideal;
        for row in self.rows().get(ideal..).unwrap_or_default() {
            if row[0] >= key.high {
                if row[0] == key.high && row[1] == key.low {
                    return Ok(at);
                }
                if row[0] > key.high {
                    return Err(at);
                }
            } else if row[0] == 0 {
                return Err(at);
            }
            at += 1;
        }
        Err(at)
    }

    #[inline]
    pub(crate) fn row(&self, at: usize) -> &Row<N> {
        &self.rows()[at]
    }

    #[inline]
    pub(crate) fn row_mut(&mut self, at: usize) -> &mut Row<N> {
        &mut self.rows_mut()[at]
    }

    /// Returns the address of the array, the number of ideal indexes, and the bytes of a row.
    pub(crate) fn location(&self) -> (usize, usize, usize) {
        (self.rows().as_ptr().addr(), self.range, size_of::<Row<N>>())
    }

    /// Inserts a row whose key is absent. If the array is full, rows that `keep` rejects are dropped first, and it
    /// grows if that was not enough. Returns how many rows were dropped.
    pub(crate) fn insert(&mut self, row: Row<N>, mut keep: impl FnMut(&Row<N>) -> bool) -> usize {
        let mut dropped = 0;
        if self.is_full() {
            dropped = self.sweep(0, usize::MAX, |row| keep(row)).1;
            let wanted = self.range_for(self.len);
            if wanted > self.range || wanted < self.range / 2 {
                self.rebuild(wanted);
            }
        }
        while !self.try_insert(row) {
            self.rebuild(self.range + self.range / 8 + 1);
        }
        dropped
    }

    fn try_insert(&mut self, row: Row<N>) -> bool {
        let key = Fingerprint { high: row[0], low: row[1] };
        let (Err(at) | Ok(at)) = self.find(key);
        #[cfg(test)]
        let range = self.range;
        let rows = self.rows_mut();
        let Some(gap) = rows[at..].iter().position(|row| row[0] == 0) else { return false };
        #[cfg(test)]
        tests::count_effort(at + gap + 1 - key.index_in(range));
        if at + gap + 1 >= rows.len() {
            return false;
        }
        rows.copy_within(at..at + gap, at + 1);
        rows[at] = row;
        self.len += 1;
        true
    }

    /// Removes a row. The rows after it that are not at their ideal index move up.
    pub(crate) fn remove(&mut self, at: usize) -> Row<N> {
        let range = self.range;
        let rows = self.rows_mut();
        let removed = rows[at];
        let is_settled =
            |(i, row): (usize, &Row<N>)| row[0] == 0 || ideal_index(row, range) == at + 1 + i;
        let moved = rows[at + 1..].iter().enumerate().position(is_settled).unwrap_or(0);
        rows.copy_within(at + 1..at + 1 + moved, at);
        rows[at + moved] = [0; N];
        self.len -= 1;
        removed
    }

    /// Passes `budget` rows of the array or a few more, starting at index `from`, to `keep`, which may change them, and
    /// drops those that it rejects. Returns the index at which to continue, 0 after the last one, and how many were
    /// dropped.
    pub(crate) fn sweep(
        &mut self,
        from: usize,
        budget: usize,
        mut keep: impl FnMut(&mut Row<N>) -> bool,
    ) -> (usize, usize) {
        let range = self.range;
        let rows = self.rows_mut();
        let (mut read, mut write, mut dropped) = (from.min(rows.len()), from, 0);
        while read < rows.len() {
            let is_empty = rows[read][0] == 0;
            // After a drop, the rows behind it must move up, as far as the next gap.
            if read - from >= budget && (is_empty || write == read) {
                break;
            }
            if is_empty {
                write = read + 1;
            } else if keep(&mut rows[read]) {
                if write < read {
                    let row = std::mem::replace(&mut rows[read], [0; N]);
                    write = ideal_index(&row, range).max(write);
                    rows[write] = row;
                }
                write += 1;
            } else {
                rows[read] = [0; N];
                dropped += 1;
            }
            read += 1;
        }
        let is_end = read >= rows.len();
        self.len -= dropped;
        (if is_end { 0 } else { read }, dropped)
    }

    /// Grows to hold `len` rows. Rows that are inserted in order would otherwise cluster at the first indexes.
    pub(crate) fn reserve(&mut self, len: usize) {
        let wanted = self.range_for(len);
        if wanted > self.range {
            self.rebuild(wanted);
        }
    }

    /// Fills an empty array with rows that come in order.
    pub(crate) fn fill(&mut self, mut sorted: impl Iterator<Item = Row<N>>) {
        let (range, mut next, mut len) = (self.range, 0, 0);
        let rows = self.rows_mut();
        let excess = sorted.by_ref().find(|row| {
            let at = ideal_index(row, range).max(next);
            if at + 1 >= rows.len() {
                return true;
            }
            rows[at] = *row;
            (next, len) = (at + 1, len + 1);
            false
        });
        self.len = len;
        // The end of the array is full: the rows that are left make it grow.
        for row in excess.into_iter().chain(sorted) {
            self.insert(row, |_| true);
        }
    }

    /// Moves to a smaller array if less than half of this one is needed.
    pub(crate) fn shrink(&mut self) {
        let wanted = self.range_for(self.len);
        if wanted < self.range / 2 {
            self.rebuild(wanted);
        }
    }

    /// Returns whether the range is too small for one more row.
    fn is_full(&self) -> bool {
        (self.len + 1) * Self::FULL_OF > self.range * Self::FULL
    }

    /// Returns the range for `len` rows: an eighth more than they fill.
    fn range_for(&self, len: usize) -> usize {
        let least = len * Self::FULL_OF / Self::FULL + 1;
        (least + least / 8).max(self.range_min)
    }

    /// Moves all rows to a new array.
    fn rebuild(&mut self, range: usize) {
        #[cfg(test)]
        tests::count_effort(range.max(self.range));
        let storage = RowStorage::zeroed((range + spare(range)) * N);
        let old = std::mem::replace(self, Self { storage, range, len: 0, ..*self });
        self.fill(old.iter().copied());
    }
}

#[cfg(test)]
pub(crate) mod tests;

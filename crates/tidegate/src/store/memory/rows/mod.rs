//! Rows in the order of their fingerprints, with gaps: a hash table that is a sorted array.
//!
//! A fingerprint is a random number, so its place in a sorted array can be computed: that is its home.
//! A row lies at its home or, if that is taken, as soon after it as the order allows. So looking for
//! a row ends at the first one that is greater; and growing, shrinking and clearing are one pass
//! from front to back over rows that stay in order.
//!
//! Always   Rows are in ascending order. Between a row's home and the row there is no gap. The last
//!          place is empty.

mod storage;

pub(crate) use storage::ArenaSlot;

use crate::store::fingerprint::Fingerprint;
use storage::RowStorage;

/// Two words of fingerprint, then the packed state.
pub(crate) type Row<const N: usize> = [u64; N];

#[derive(Debug)]
pub(crate) struct Rows<const N: usize> {
    memory: RowStorage,
    /// How many homes there are. A few places more follow them.
    homes: usize,
    len: usize,
    /// Every table begins with a little more or less, so that they do not all grow at once.
    homes_min: usize,
    arena_slot: ArenaSlot,
    /// How many homes there is room for on the arena_slot. Beyond, there is room elsewhere.
    homes_max: usize,
}

/// Places after the last home, for those whose home is taken. If they run out, the rows grow.
fn spare(homes: usize) -> usize {
    homes.min(SPARE_MAX - 1) + 1
}

const SPARE_MAX: usize = 97;

fn home<const N: usize>(row: &Row<N>, homes: usize) -> usize {
    Fingerprint { high: row[0], low: row[1] }.home(homes)
}

/// How many rows are looked at at once by who is in a hurry: as many as begin in the lines that are fetched ahead
/// where a row is three words. With four, 1 M keys took a tenth longer; with eight, no less.
const STEPS: usize = 6;

/// The fewest homes.
const HOMES_MIN: usize = 8;

impl<const N: usize> Rows<N> {
    /// How full the rows may get, in sixteenths. Wide rows are packed more tightly.
    const FULL: usize = if N > 4 { 15 } else { 14 };
    const FULL_OF: usize = 16;

    pub(crate) fn new(seed: usize, arena_slot: ArenaSlot) -> Self {
        let homes_min = HOMES_MIN + seed % HOMES_MIN;
        let homes_max = Self::homes_of(arena_slot.words());
        Self { memory: RowStorage::NONE, homes: 0, len: 0, homes_min, arena_slot, homes_max }
    }

    /// How many words a arena_slot must have for this many rows.
    pub(crate) fn arena_words(len: usize) -> usize {
        (len * Self::FULL_OF / Self::FULL + SPARE_MAX + 1) * N
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// How many words all rows have together.
    pub(crate) fn words(&self) -> usize {
        self.len * N
    }

    /// How many places there are to look through.
    pub(crate) fn places(&self) -> usize {
        self.memory.words().len() / N
    }

    #[inline]
    fn rows(&self) -> &[Row<N>] {
        self.memory.words().as_chunks().0
    }

    #[inline]
    fn rows_mut(&mut self) -> &mut [Row<N>] {
        self.memory.words_mut().as_chunks_mut().0
    }

    /// Where the row is, or where it would have to be put.
    #[inline]
    pub(crate) fn find(&self, key: Fingerprint) -> Result<usize, usize> {
        let home = key.home(self.homes);
        let mut at = home;
        for row in self.rows().get(home..).unwrap_or_default() {
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

    /// The row, for who is in a hurry: if it is not here, [`find`](Self::find) says so, or finds it where the
    /// rows end.
    ///
    /// How far a row lies from its home cannot be foreseen, so a branch for each step would be guessed
    /// wrong every other time. Here some steps are taken at once: the rows before it are counted.
    #[inline]
    pub(crate) fn get_mut(&mut self, key: Fingerprint) -> Option<&mut Row<N>> {
        let home = key.home(self.homes);
        let rows = self.rows_mut().get_mut(home..)?;
        let mut at = 0;
        loop {
            let next = rows.get(at..)?.first_chunk::<STEPS>()?;
            // An empty place is not before it: it becomes the greatest number.
            let is_before = |row: &Row<N>| row[0].wrapping_sub(1) < key.high.wrapping_sub(1);
            let before = next.iter().map(|row| usize::from(is_before(row))).sum::<usize>();
            at += before;
            if before < STEPS {
                break;
            }
        }
        rows.get_mut(at).filter(|row| row[0] == key.high && row[1] == key.low)
    }

    #[inline]
    pub(crate) fn row(&self, at: usize) -> &Row<N> {
        &self.rows()[at]
    }

    #[inline]
    pub(crate) fn row_mut(&mut self, at: usize) -> &mut Row<N> {
        &mut self.rows_mut()[at]
    }

    /// Where the first home is, how many there are, and how many bytes lie from one to the next.
    pub(crate) fn location(&self) -> (usize, usize, usize) {
        (self.rows().as_ptr().addr(), self.homes, size_of::<Row<N>>())
    }

    /// Puts a row where [`find`](Self::find) said it belongs. The rows may have to grow first: those
    /// that `keep` does not want are left out then. Tells how many were.
    pub(crate) fn insert(&mut self, row: Row<N>, keep: impl FnMut(&Row<N>) -> bool) -> usize {
        let mut dropped = 0;
        if self.is_full() {
            dropped = self.resize(keep);
        }
        while !self.try_insert(row) {
            self.rebuild(self.homes + self.homes / 8 + 1, |_| true);
        }
        dropped
    }

    fn try_insert(&mut self, row: Row<N>) -> bool {
        let key = Fingerprint { high: row[0], low: row[1] };
        let (Err(at) | Ok(at)) = self.find(key);
        #[cfg(test)]
        let homes = self.homes;
        let rows = self.rows_mut();
        let Some(gap) = rows[at..].iter().position(|row| row[0] == 0) else { return false };
        #[cfg(test)]
        tests::count_effort(at + gap + 1 - key.home(homes));
        if at + gap + 1 >= rows.len() {
            return false;
        }
        rows.copy_within(at..at + gap, at + 1);
        rows[at] = row;
        self.len += 1;
        true
    }

    /// Takes a row out; those after it that are not at home move up.
    pub(crate) fn remove(&mut self, at: usize) -> Row<N> {
        let homes = self.homes;
        let rows = self.rows_mut();
        let removed = rows[at];
        let is_settled = |(i, row): (usize, &Row<N>)| row[0] == 0 || home(row, homes) == at + 1 + i;
        let moved = rows[at + 1..].iter().enumerate().position(is_settled).unwrap_or(0);
        rows.copy_within(at + 1..at + 1 + moved, at);
        rows[at + moved] = [0; N];
        self.len -= 1;
        removed
    }

    /// Looks at `budget` places or a few more, from `from` on, and takes out the rows that `keep`
    /// does not want. Tells where to go on and how many were taken out.
    pub(crate) fn sweep(
        &mut self,
        from: usize,
        budget: usize,
        mut keep: impl FnMut(&Row<N>) -> bool,
    ) -> (usize, usize) {
        let homes = self.homes;
        let rows = self.rows_mut();
        let (mut read, mut write, mut dropped) = (from.min(rows.len()), from, 0);
        while read < rows.len() {
            let row = rows[read];
            // Once something was taken out, those behind it must move up, as far as the next gap.
            if read - from >= budget && (row[0] == 0 || write == read) {
                break;
            }
            if row[0] == 0 {
                write = read + 1;
            } else if keep(&row) {
                // As long as nothing was taken out before it, it is where it belongs.
                if write < read {
                    write = home(&row, homes).max(write);
                    rows[read] = [0; N];
                    rows[write] = row;
                }
                write += 1;
            } else {
                rows[read] = [0; N];
                dropped += 1;
            }
            read += 1;
        }
        self.len -= dropped;
        let is_end = read >= self.places();
        (if is_end { 0 } else { read }, dropped)
    }

    /// Makes room for this many rows: who puts them in by their order would else crowd all of them
    /// into the first homes.
    pub(crate) fn reserve(&mut self, len: usize) {
        let wanted = self.homes_for(len);
        if wanted > self.homes {
            self.rebuild(wanted, |_| true);
        }
    }

    /// Puts in rows that come in order, into rows that are empty and have room for them.
    pub(crate) fn fill(&mut self, mut rows: impl Iterator<Item = Row<N>>) {
        let (homes, mut next, mut len) = (self.homes, 0, 0);
        let places = self.rows_mut();
        let crowded = rows.by_ref().find(|row| {
            let at = home(row, homes).max(next);
            if at + 1 >= places.len() {
                return true;
            }
            places[at] = *row;
            (next, len) = (at + 1, len + 1);
            false
        });
        self.len = len;
        // If the last homes are crowded, there have to be more.
        for row in crowded.into_iter().chain(rows) {
            self.insert(row, |_| true);
        }
    }

    /// Gives back memory if most of it is empty.
    pub(crate) fn shrink(&mut self) {
        let least = Self::fewest_homes(self.len);
        if least + least / 8 >= self.homes / 2 {
            return;
        }
        let wanted = self.homes_for(self.len);
        if wanted < self.homes / 2 {
            self.rebuild(wanted, |_| true);
        }
    }

    /// Takes a little more memory, if that is where the others are: only together do they fill huge pages.
    pub(crate) fn follow(&mut self) {
        let least = Self::fewest_homes(self.len);
        if let Some(words) = self.arena_slot.words_of_others(self.memory.words().len())
            && Self::homes_of(words) <= least + least * 5 / 8
        {
            self.rebuild(Self::homes_of(words), |_| true);
        }
    }

    /// Whether there is room for no more.
    fn is_full(&self) -> bool {
        // On the whole of a arena_slot it may be a little tighter, rather than that it is left.
        let full = if self.homes == self.homes_max { Self::FULL.max(15) } else { Self::FULL };
        (self.len + 1) * Self::FULL_OF > self.homes * full
    }

    /// As many homes as this many rows should have: an eighth more than fill them; or all of a arena_slot, which is
    /// then where other shards meet.
    fn homes_for(&self, len: usize) -> usize {
        let least = Self::fewest_homes(len);
        let wanted = (least + least / 8).max(self.homes_min);
        // With some to spare: else the next row would find it full again.
        let fits_plot = (len + len / 32 + 1) * Self::FULL_OF <= self.homes_max * 15;
        let is_most = wanted > self.homes_max - self.homes_max / 8;
        if is_most && fits_plot {
            return self.homes_max;
        }
        let words = self.arena_slot.words_for((least + least / 16 + SPARE_MAX) * N);
        words.map_or(wanted, Self::homes_of)
    }

    /// With fewer homes this many rows would be too tight.
    fn fewest_homes(len: usize) -> usize {
        len * Self::FULL_OF / Self::FULL + 1
    }

    /// How many homes there are on a arena_slot of so many words.
    fn homes_of(words: usize) -> usize {
        (words / N).saturating_sub(SPARE_MAX)
    }

    fn resize(&mut self, mut keep: impl FnMut(&Row<N>) -> bool) -> usize {
        let before = self.len;
        let kept = self.rows().iter().filter(|row| row[0] != 0 && keep(row)).count();
        let wanted = self.homes_for(kept);
        // Where most have gone, memory goes back. Else there are as many homes as before, or more: with just enough for
        // those who are left, the rows would be full again after the next few.
        let homes = if wanted < self.homes / 2 { wanted } else { wanted.max(self.homes) };
        self.rebuild(homes, keep);
        before - self.len
    }

    /// Moves all rows that are kept to where they belong when there are so many homes.
    fn rebuild(&mut self, mut homes: usize, mut keep: impl FnMut(&Row<N>) -> bool) {
        #[cfg(test)]
        tests::count_effort(homes.max(self.homes));
        let before = self.homes;
        if homes <= before && self.settle(0, homes, |row| keep(row)) {
            if homes < before {
                self.memory.resize((homes + spare(homes)) * N, &self.arena_slot);
            }
            return;
        }
        homes = homes.max(self.homes);
        while !self.grow(homes, &mut keep) {
            // The last homes are crowded beyond what is spare: with a few more they are not.
            homes += homes / 8 + 1;
        }
    }

    fn grow(&mut self, homes: usize, keep: impl FnMut(&Row<N>) -> bool) -> bool {
        self.memory.resize((homes + spare(homes)) * N, &self.arena_slot);
        let first = self.gather(keep);
        self.settle(first, homes, |_| true)
    }

    /// Moves all rows that are kept to the very end. Tells where the first one is then.
    fn gather(&mut self, mut keep: impl FnMut(&Row<N>) -> bool) -> usize {
        let rows = self.rows_mut();
        let mut to = rows.len();
        for from in (0..rows.len()).rev() {
            let row = std::mem::replace(&mut rows[from], [0; N]);
            if row[0] != 0 && keep(&row) {
                to -= 1;
                rows[to] = row;
            }
        }
        to
    }

    /// Lets `change` have every row's state, and takes out the rows that it does not want.
    pub(crate) fn change_each(&mut self, change: impl FnMut(&mut Row<N>) -> bool) {
        let is_settled = self.settle(0, self.homes, change);
        debug_assert!(is_settled, "with as many homes as before, they all fit");
    }

    /// Moves the rows from `first` on, which are all and none of them too far to the front, to where they
    /// belong when there are so many homes. If they do not fit, some are where they were.
    fn settle(
        &mut self,
        first: usize,
        homes: usize,
        mut keep: impl FnMut(&mut Row<N>) -> bool,
    ) -> bool {
        let places = homes + spare(homes);
        let rows = self.rows_mut();
        let (mut next, mut len) = (0, 0);
        for from in first..rows.len() {
            let mut row = std::mem::replace(&mut rows[from], [0; N]);
            if row[0] == 0 || !keep(&mut row) {
                continue;
            }
            let at = home(&row, homes).max(next);
            if at > from || at + 1 >= places {
                rows[from] = row;
                self.len = rows.iter().filter(|row| row[0] != 0).count();
                return false;
            }
            rows[at] = row;
            (next, len) = (at + 1, len + 1);
        }
        (self.homes, self.len) = (homes, len);
        true
    }

    /// All rows, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Row<N>> {
        self.rows().iter().filter(|row| row[0] != 0)
    }
}

#[cfg(test)]
pub(crate) mod tests;

//! Compares rows with a sorted map: after every step both have the same keys, and the rows are in order.

use super::*;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use std::cell::Cell;
use std::collections::BTreeMap;

thread_local! {
    static EFFORT: Cell<usize> = const { Cell::new(0) };
}

/// Counts rows that this thread has read or moved to insert others. Unlike a time, the count is the same on every machine.
pub(crate) fn count_effort(steps: usize) {
    EFFORT.set(EFFORT.get() + steps);
}

/// Returns that count for `work`.
pub(crate) fn effort(work: impl FnOnce()) -> usize {
    let before = EFFORT.get();
    work();
    EFFORT.get() - before
}

/// An operation on the rows.
#[derive(Clone, Copy, Debug)]
enum Step {
    Insert(Fingerprint),
    /// Removes the first key from this one on.
    Remove(Fingerprint),
    /// Drops the keys whose value has this bit.
    Sweep {
        budget: usize,
        bit: u32,
    },
    Shrink,
}

/// The rows, and a map with the same keys and values.
struct Model<const N: usize> {
    rows: Rows<N>,
    map: BTreeMap<(u64, u64), u64>,
    cursor: usize,
    last_value: u64,
}

impl<const N: usize> Model<N> {
    fn new(seed: usize) -> Self {
        Self { rows: Rows::new(seed), map: BTreeMap::new(), cursor: 0, last_value: 0 }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Insert(key) => self.insert(key),
            Step::Remove(near) => self.remove(near),
            Step::Sweep { budget, bit } => self.sweep(budget, bit),
            Step::Shrink => self.rows.shrink(),
        }
        self.check();
    }

    fn insert(&mut self, key: Fingerprint) {
        self.last_value += 1;
        let value = self.last_value;
        if let Ok(at) = self.rows.find(key) {
            self.rows.row_mut(at)[2..].fill(value);
        } else {
            self.insert_new(key, value);
        }
        self.map.insert((key.high, key.low), value);
    }

    /// If the array is full, the rows whose value is a multiple of five are dropped.
    fn insert_new(&mut self, key: Fingerprint, value: u64) {
        let mut row = [value; N];
        (row[0], row[1]) = (key.high, key.low);
        let is_rejected = |row: &Row<N>| row[2].is_multiple_of(5);
        let before: Vec<Row<N>> = self.rows.iter().copied().collect();
        let dropped = self.rows.insert(row, |row| !is_rejected(row));
        if dropped > 0 {
            let rejected: Vec<Row<N>> = before.into_iter().filter(is_rejected).collect();
            assert_eq!(rejected.len(), dropped);
            for row in rejected {
                assert_eq!(self.map.remove(&(row[0], row[1])), Some(row[2]));
            }
        }
    }

    fn remove(&mut self, near: Fingerprint) {
        let near = (near.high, near.low);
        let first = self.map.range(near..).next().or_else(|| self.map.iter().next());
        let Some((&(high, low), &value)) = first else { return };
        let at = self.rows.find(Fingerprint { high, low }).expect("it was inserted");
        let removed = self.rows.remove(at);
        assert_eq!((removed[0], removed[1], removed[2]), (high, low, value));
        self.map.remove(&(high, low));
    }

    /// Sweeps a part of the rows, starting where the last sweep ended.
    fn sweep(&mut self, budget: usize, bit: u32) {
        let is_kept = |value: u64| value & (1 << bit) == 0;
        let from = self.cursor;
        let mut seen = Vec::new();
        let keep = |row: &mut Row<N>| {
            seen.push((row[0], row[1]));
            is_kept(row[2])
        };
        let (next, dropped) = self.rows.sweep(from, budget, keep);
        let before = self.map.len();
        self.map.retain(|key, value| is_kept(*value) || !seen.contains(key));
        assert_eq!(before - self.map.len(), dropped);
        let places = self.rows.array_len();
        assert!(next == 0 || (next < places && next >= from.saturating_add(budget)), "{next}");
        self.cursor = next;
    }

    fn check(&mut self) {
        assert_eq!(self.rows.len(), self.map.len());
        let mut highs: Vec<u64> = self.map.keys().map(|(high, _)| *high).collect();
        highs.sort_unstable();
        assert_eq!(self.rows.iter().map(|row| row[0]).collect::<Vec<u64>>(), highs, "in order");
        let all: Vec<_> = self.map.iter().map(|(key, value)| (*key, *value)).collect();
        for ((high, low), value) in all {
            let at = self.rows.find(Fingerprint { high, low }).expect("it was inserted");
            assert!(self.rows.row(at)[2..].iter().all(|word| *word == value));
        }
        let rows = self.rows.rows();
        assert!(rows.last().is_none_or(|row| row[0] == 0), "the last place is empty");
        for (at, row) in rows.iter().enumerate().filter(|(_, row)| row[0] != 0) {
            let ideal = ideal_index(row, self.rows.range);
            assert!(ideal <= at, "a row is at its ideal index or after it");
            assert!(rows[ideal..at].iter().all(|row| row[0] != 0), "there is a gap before the row");
        }
    }
}

/// How fingerprints are distributed. An attacker cannot choose that; the rows support any distribution.
#[derive(Clone, Copy, Debug)]
enum Spread {
    Even,
    /// A few high words for many keys.
    Few,
    /// One high word for all keys.
    One,
    /// At the end of the range, where only the spare rows follow: fewer keys than those, because growing does not separate
    /// equal high words.
    End,
    /// At its beginning.
    Start,
}

const SPREADS: [Spread; 5] = [Spread::Even, Spread::Few, Spread::One, Spread::End, Spread::Start];

fn key(spread: Spread, random: u64) -> Fingerprint {
    let high = match spread {
        Spread::Even => random,
        Spread::Few => (random % 7).wrapping_mul(0x2492_4924_9249_2492),
        Spread::One => 0x8000_0000_0000_0000,
        Spread::End => u64::MAX - random % 3,
        Spread::Start => random % 3,
    };
    // Few enough for keys to repeat.
    let low = if matches!(spread, Spread::End) { random / 3 % 30 } else { random % 997 };
    Fingerprint { high: high.max(1), low }
}

fn steps(spread: Spread) -> impl Strategy<Value = Vec<Step>> {
    let key = move || any::<u64>().prop_map(move |random| key(spread, random));
    let step = prop_oneof![
        12 => key().prop_map(Step::Insert),
        4 => key().prop_map(Step::Remove),
        1 => (0..40_usize, 0..4_u32).prop_map(|(budget, bit)| Step::Sweep { budget, bit }),
        1 => (0..2_u32).prop_map(|bit| Step::Sweep { budget: usize::MAX, bit }),
        1 => Just(Step::Shrink),
    ];
    proptest::collection::vec(step, 0..200)
}

fn check_steps<const N: usize>() {
    for spread in SPREADS {
        let config = Config { cases: 150, failure_persistence: None, ..Config::default() };
        let claim = |(seed, steps): (usize, Vec<Step>)| {
            let mut model = Model::<N>::new(seed);
            for step in steps {
                model.step(step);
            }
            Ok(())
        };
        if let Err(refutation) = TestRunner::new(config).run(&(0..20_usize, steps(spread)), claim) {
            panic!("{spread:?}, {N} words: {refutation}");
        }
    }
}

#[test]
fn rows_of_every_width_have_the_keys_of_a_map_and_stay_in_order() {
    check_steps::<3>();
    check_steps::<4>();
    check_steps::<5>();
}

#[test]
fn keys_that_are_inserted_in_order_are_found_like_any_others() {
    for is_ascending in [true, false] {
        let mut model = Model::<3>::new(3);
        for n in 1..=600_u64 {
            let high = if is_ascending { n } else { 601 - n } << 54;
            model.step(Step::Insert(Fingerprint { high: high.max(n), low: n }));
        }
        while !model.map.is_empty() {
            let bit = u32::try_from(model.map.len() % 10).expect("it is below ten");
            model.step(Step::Sweep { budget: 50, bit });
            model.step(Step::Shrink);
            model.step(Step::Remove(Fingerprint { high: u64::MAX / 2, low: 0 }));
        }
    }
}

#[test]
fn a_whole_sweep_passes_every_row_once() {
    for spread in SPREADS {
        let mut model = Model::<4>::new(1);
        for n in 0..500_u64 {
            model.step(Step::Insert(key(spread, n.wrapping_mul(0x9e37_79b9_7f4a_7c15))));
        }
        let (mut from, mut seen) = (0, Vec::new());
        loop {
            let keep = |row: &mut Row<4>| {
                seen.push((row[0], row[1]));
                true
            };
            from = model.rows.sweep(from, 16, keep).0;
            if from == 0 {
                break;
            }
        }
        seen.sort_unstable();
        assert_eq!(seen, model.map.keys().copied().collect::<Vec<_>>(), "{spread:?}");
    }
}

#[test]
fn rows_are_at_most_14_16ths_full_and_shrink_when_most_are_dropped() {
    let mut rows = Rows::<3>::new(0);
    for n in 1..=100_000_u64 {
        let high = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        rows.insert([high, n, n], |_| true);
        assert!(rows.len() * 16 <= rows.range * 14, "{n}");
    }
    let bytes = rows.array_len() * size_of::<Row<3>>();
    assert!(bytes < 100_000 * 32, "{bytes}");
    let (next, dropped) = rows.sweep(0, usize::MAX, |row| row[1] <= 10);
    assert_eq!((next, dropped, rows.len()), (0, 99_990, 10));
    rows.shrink();
    assert!(rows.array_len() < 64, "{}", rows.array_len());
    assert!((1..=10).all(|n: u64| {
        let high = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        rows.find(Fingerprint { high, low: n }).is_ok()
    }));
}

/// Random numbers, the same ones every time.
fn random(n: u64) -> u64 {
    let mut x = n.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    x ^ (x >> 32)
}

#[test]
fn rows_move_to_a_mapping_and_back_to_the_heap() {
    const ROWS: u64 = 8_000;
    let mut model = Model::<3>::new(3);
    for round in 0..3 {
        for n in 0..ROWS {
            model.insert(key(Spread::Even, random(n)));
            if n % 3_989 == 0 {
                model.check();
            }
        }
        assert!(matches!(model.rows.storage, RowStorage::Mapped(_)), "{round}");
        for bit in 0..13 {
            model.step(Step::Sweep { budget: usize::MAX, bit });
            model.step(Step::Shrink);
        }
        assert!(matches!(model.rows.storage, RowStorage::Heap(_)), "{round}");
    }
}

#[test]
fn full_rows_are_not_scanned_at_every_insert() {
    let mut rows = Rows::<3>::new(0);
    let mut n = 0;
    let mut insert = |rows: &mut Rows<3>, keep: &mut dyn FnMut(&Row<3>) -> bool| {
        rows.insert([random(n).max(1), n, n], keep);
        n += 1;
    };
    while rows.len() < 8_000 || !rows.is_full() {
        insert(&mut rows, &mut |_| true);
    }
    // With every insert, one more row is idle.
    let (mut scanned, mut idle) = (0_u64, 0);
    for _ in 0..1_000 {
        idle += 1;
        insert(&mut rows, &mut |row| {
            scanned += 1;
            row[2] >= idle
        });
    }
    assert!(scanned < 1_000 * 100, "{scanned} in 1000 inserts");
}

/// Returns a model with up to `len` rows.
fn some_rows(spread: Spread, len: u64) -> Model<3> {
    let mut model = Model::<3>::new(1);
    (0..len).for_each(|n| model.step(Step::Insert(key(spread, random(n)))));
    model
}

#[test]
fn sorted_rows_are_filled_in_as_if_each_was_inserted() {
    for spread in SPREADS {
        for capacity in [0, 10, 300] {
            let mut model = some_rows(spread, 300);
            let in_order: Vec<Row<3>> = model.rows.iter().copied().collect();
            model.rows = Rows::new(5);
            model.rows.reserve(capacity);
            model.rows.fill(in_order.into_iter());
            model.check();
        }
    }
}

#[test]
fn a_sweep_may_change_the_rows_that_it_keeps() {
    for spread in SPREADS {
        let mut model = some_rows(spread, 300);
        model.rows.sweep(0, usize::MAX, |row| {
            row[2] += 1_000;
            !row[2].is_multiple_of(3)
        });
        model.map.values_mut().for_each(|value| *value += 1_000);
        model.map.retain(|_, value| !value.is_multiple_of(3));
        model.check();
    }
    Rows::<3>::new(0).sweep(0, usize::MAX, |_| panic!("there is none"));
}

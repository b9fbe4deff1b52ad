//! Rows against a sorted map: after every step the two hold the same, and the rows are in order.

use super::super::arena::ArenaTiers;
use super::*;
use crate::sync::Arc;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use std::cell::Cell;
use std::collections::BTreeMap;

thread_local! {
    static EFFORT: Cell<usize> = const { Cell::new(0) };
}

/// Counts rows that were looked at or moved to put others in, by this thread: what a test counts where a
/// stopwatch would measure the machine.
pub(crate) fn count_effort(steps: usize) {
    EFFORT.set(EFFORT.get() + steps);
}

/// How much of that this takes.
pub(crate) fn effort(work: impl FnOnce()) -> usize {
    let before = EFFORT.get();
    work();
    EFFORT.get() - before
}

/// What is done to the rows.
#[derive(Clone, Copy, Debug)]
enum Step {
    Insert(Fingerprint),
    /// Takes out the key that comes first from here on.
    Remove(Fingerprint),
    /// Takes out those whose value has this bit.
    Sweep {
        budget: usize,
        bit: u32,
    },
    Shrink,
}

/// The same keys and values, found in another way.
struct Model<const N: usize> {
    rows: Rows<N>,
    map: BTreeMap<(u64, u64), u64>,
    cursor: usize,
    last_value: u64,
}

impl<const N: usize> Model<N> {
    fn new(seed: usize) -> Self {
        Self::on(seed, ArenaSlot::default())
    }

    fn on(seed: usize, arena_slot: ArenaSlot) -> Self {
        Self { rows: Rows::new(seed, arena_slot), map: BTreeMap::new(), cursor: 0, last_value: 0 }
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

    /// Whoever has a value that can be divided by five is left out if the rows grow.
    fn insert_new(&mut self, key: Fingerprint, value: u64) {
        let mut row = [value; N];
        (row[0], row[1]) = (key.high, key.low);
        let is_left_out = |row: &Row<N>| row[2].is_multiple_of(5);
        let before: Vec<Row<N>> = self.rows.iter().copied().collect();
        let dropped = self.rows.insert(row, |row| !is_left_out(row));
        if dropped > 0 {
            let left_out: Vec<Row<N>> = before.into_iter().filter(is_left_out).collect();
            assert_eq!(left_out.len(), dropped);
            for row in left_out {
                assert_eq!(self.map.remove(&(row[0], row[1])), Some(row[2]));
            }
        }
    }

    fn remove(&mut self, near: Fingerprint) {
        let near = (near.high, near.low);
        let first = self.map.range(near..).next().or_else(|| self.map.iter().next());
        let Some((&(high, low), &value)) = first else { return };
        let at = self.rows.find(Fingerprint { high, low }).expect("it was put in");
        let removed = self.rows.remove(at);
        assert_eq!((removed[0], removed[1], removed[2]), (high, low, value));
        self.map.remove(&(high, low));
    }

    /// A part of the rows, from where the last one ended.
    fn sweep(&mut self, budget: usize, bit: u32) {
        let is_kept = |value: u64| value & (1 << bit) == 0;
        let from = self.cursor;
        let mut seen = Vec::new();
        let keep = |row: &Row<N>| {
            seen.push((row[0], row[1]));
            is_kept(row[2])
        };
        let (next, dropped) = self.rows.sweep(from, budget, keep);
        let before = self.map.len();
        self.map.retain(|key, value| is_kept(*value) || !seen.contains(key));
        assert_eq!(before - self.map.len(), dropped);
        let places = self.rows.places();
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
            let at = self.rows.find(Fingerprint { high, low }).expect("it was put in");
            assert!(self.rows.row(at)[2..].iter().all(|word| *word == value));
            self.check_in_a_hurry(Fingerprint { high, low }, at, value);
        }
        let rows = self.rows.rows();
        assert!(rows.last().is_none_or(|row| row[0] == 0), "the last place is empty");
        for (at, row) in rows.iter().enumerate().filter(|(_, row)| row[0] != 0) {
            let home = home(row, self.rows.homes);
            assert!(home <= at, "a row lies at its home or after it");
            assert!(rows[home..at].iter().all(|row| row[0] != 0), "a gap before its row");
        }
    }
}

impl<const N: usize> Model<N> {
    /// Who is in a hurry finds the same row, or none: only where the rows end, and where the high word is
    /// somebody else's, too.
    fn check_in_a_hurry(&mut self, key: Fingerprint, at: usize, value: u64) {
        let is_last = at + STEPS > self.rows.places();
        let is_alone = self.map.range((key.high, 0)..=(key.high, u64::MAX)).count() == 1;
        match self.rows.get_mut(key) {
            Some(row) => assert!(row[1] == key.low && row[2..].iter().all(|word| *word == value)),
            None => assert!(is_last || !is_alone, "{key:?} is at {at}"),
        }
        for stranger in [
            Fingerprint { low: key.low ^ 1 << 40, ..key },
            Fingerprint { high: key.high.wrapping_add(1).max(1), low: key.low ^ 1 << 40 },
        ] {
            assert!(self.rows.get_mut(stranger).is_none(), "{stranger:?} was not put in");
        }
    }
}

/// Where fingerprints may fall. An attacker cannot choose that; the rows hold all the same.
#[derive(Clone, Copy, Debug)]
enum Spread {
    Even,
    /// Few places for many.
    Few,
    /// One place for all.
    One,
    /// At the end of the range, where only spare places follow: fewer than those, because only more
    /// homes could help otherwise, and they do not tell two equal ones apart.
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
    // Few enough for the same one to come again.
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

fn hold<const N: usize>() {
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
fn rows_of_every_width_hold_what_a_map_holds_and_stay_in_order() {
    hold::<3>();
    hold::<4>();
    hold::<5>();
}

#[test]
fn keys_that_come_in_order_are_held_like_any_others() {
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
fn a_whole_sweep_sees_every_row_once() {
    for spread in SPREADS {
        let mut model = Model::<4>::new(1);
        for n in 0..500_u64 {
            model.step(Step::Insert(key(spread, n.wrapping_mul(0x9e37_79b9_7f4a_7c15))));
        }
        let (mut from, mut seen) = (0, Vec::new());
        loop {
            let keep = |row: &Row<4>| {
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
fn rows_are_at_most_as_full_as_they_say_and_empty_ones_are_given_back() {
    let mut rows = Rows::<3>::new(0, ArenaSlot::default());
    for n in 1..=100_000_u64 {
        let high = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        rows.insert([high, n, n], |_| true);
        assert!(rows.len() * 16 <= rows.homes * 14, "{n}");
    }
    let bytes = rows.places() * size_of::<Row<3>>();
    assert!(bytes < 100_000 * 32, "{bytes}");
    let (next, dropped) = rows.sweep(0, usize::MAX, |row| row[1] <= 10);
    assert_eq!((next, dropped, rows.len()), (0, 99_990, 10));
    rows.shrink();
    assert!(rows.places() < 64, "{}", rows.places());
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
fn rows_move_to_their_plot_and_beyond_it_and_back() {
    const ROWS: usize = 8_000;
    let arena_tiers =
        Arc::new(ArenaTiers::new(20, Rows::<3>::arena_words(ROWS)).expect("it is large enough"));
    let arena_slot = |index| ArenaSlot { arena_tiers: Some(Arc::clone(&arena_tiers)), index };
    let mut model = Model::<3>::on(3, arena_slot(7));
    let mut neighbour = Model::<3>::on(4, arena_slot(8));
    for round in 0..3 {
        // Twice as many as the arena_slot has room for.
        let mut was_on_plot = false;
        for n in 0..2 * ROWS as u64 {
            model.insert(key(Spread::Even, random(n)));
            was_on_plot |= matches!(model.rows.memory, RowStorage::Block(..));
            if n % 3_989 == 0 {
                model.check();
            }
        }
        assert!(was_on_plot && matches!(model.rows.memory, RowStorage::Mapped(_)), "{round}");
        for n in 0..5_000 {
            neighbour.insert(key(Spread::Even, random(n)));
        }
        model.check();
        neighbour.check();
        for bit in 0..14 {
            model.step(Step::Sweep { budget: usize::MAX, bit });
            model.step(Step::Shrink);
        }
        assert!(matches!(model.rows.memory, RowStorage::Heap(_)), "{round}");
        neighbour.check();
    }
}

#[test]
fn a_plot_is_filled_before_it_is_left() {
    const ROWS: usize = 8_000;
    let arena_tiers =
        Arc::new(ArenaTiers::new(20, Rows::<3>::arena_words(ROWS)).expect("it is large enough"));
    let mut rows = Rows::<3>::new(0, ArenaSlot { arena_tiers: Some(arena_tiers), index: 0 });
    for n in 0..ROWS as u64 + 100 {
        rows.insert([random(n).max(1), n, n], |_| true);
    }
    assert!(matches!(rows.memory, RowStorage::Block(..)));
    assert_eq!(rows.homes, rows.homes_max);
    let bytes = rows.places() * size_of::<Row<3>>();
    assert!(bytes < ROWS * 29, "{bytes}");
}

#[test]
fn rows_at_the_edge_of_their_plot_are_not_looked_through_at_every_insert() {
    const ROWS: usize = 8_000;
    let arena_tiers =
        Arc::new(ArenaTiers::new(20, Rows::<3>::arena_words(ROWS)).expect("it is large enough"));
    let mut rows = Rows::<3>::new(0, ArenaSlot { arena_tiers: Some(arena_tiers), index: 0 });
    let mut n = 0;
    let mut insert = |rows: &mut Rows<3>, keep: &mut dyn FnMut(&Row<3>) -> bool| {
        rows.insert([random(n).max(1), n, n], keep);
        n += 1;
    };
    while rows.homes < rows.homes_max || !rows.is_full() {
        insert(&mut rows, &mut |_| true);
    }
    // At every insert one row more is at rest.
    let (mut looked_at, mut idle_test) = (0_u64, 0);
    for _ in 0..1_000 {
        idle_test += 1;
        insert(&mut rows, &mut |row| {
            looked_at += 1;
            row[2] >= idle_test
        });
    }
    assert!(looked_at < 1_000 * 100, "{looked_at} in 1000 inserts");
}

/// So many rows as a model has them, in order.
fn some_rows(spread: Spread, len: u64) -> Model<3> {
    let mut model = Model::<3>::new(1);
    (0..len).for_each(|n| model.step(Step::Insert(key(spread, random(n)))));
    model
}

#[test]
fn rows_that_come_in_order_are_filled_in_as_if_each_was_put_in() {
    for spread in SPREADS {
        for capacity in [0, 10, 300] {
            let mut model = some_rows(spread, 300);
            let in_order: Vec<Row<3>> = model.rows.iter().copied().collect();
            model.rows = Rows::new(5, ArenaSlot::default());
            model.rows.reserve(capacity);
            model.rows.fill(in_order.into_iter());
            model.check();
        }
    }
}

#[test]
fn a_change_of_each_row_changes_all_and_takes_out_those_that_are_not_wanted() {
    for spread in SPREADS {
        let mut model = some_rows(spread, 300);
        model.rows.change_each(|row| {
            row[2] += 1_000;
            !row[2].is_multiple_of(3)
        });
        model.map.values_mut().for_each(|value| *value += 1_000);
        model.map.retain(|_, value| !value.is_multiple_of(3));
        model.check();
    }
    Rows::<3>::new(0, ArenaSlot::default()).change_each(|_| panic!("there is none"));
}

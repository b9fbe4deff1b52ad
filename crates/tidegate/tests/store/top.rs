//! The keys that are asked about most: the true ones, with their names, and counts that are as right as they say.

use crate::random::{Random, Zipf};
use crate::size;
use std::collections::{HashMap, VecDeque};
use tidegate::store::TopKey;
use tidegate::{Limiter, ManualClock, Span};

const KEYS: u64 = 10_000;

fn name(rank: usize) -> String {
    format!("user-{rank}")
}

/// Whether a count is as right as it says: never too low, and too high by its error at most.
fn is_right(found: &TopKey, counted: u64) -> bool {
    (found.count - found.error..=found.count).contains(&counted)
}

#[test]
fn the_top_ten_have_the_true_top_five_with_their_names_and_counts() {
    let (zipf, mut random) = (Zipf::new(KEYS), Random::new(1));
    for max_keys in [1_000, 100_000] {
        let builder = Limiter::builder("1/h burst 50".parse().unwrap()).max_keys(max_keys);
        let limiter = builder.top_keys().with_clock(ManualClock::new());
        let mut counted = vec![0_u64; usize::try_from(KEYS).unwrap()];
        for _ in 0..size(300_000, 10_000_000) {
            let rank = zipf.rank(&mut random);
            counted[rank] += 1;
            let _ = limiter.check(&name(rank));
        }
        let top = limiter.top(10);
        assert_eq!((top.hot.len(), top.denied.len()), (10, 10));
        assert!(top.hot.is_sorted_by_key(|key| u64::MAX - key.at_least()));
        for (rank, counted) in counted.into_iter().take(5).enumerate() {
            let named = |key: &&TopKey| key.name.to_string() == name(rank);
            let hot = top.hot.iter().find(named).expect("it is among the ten");
            assert!(is_right(hot, counted), "{hot:?}, counted {counted}");
            let denied = top.denied.iter().find(named).expect("it is among the ten");
            assert!(is_right(denied, counted - 50), "{denied:?}, counted {counted}");
        }
        let all = limiter.top(usize::MAX);
        assert!(all.hot.len() <= 64 * 128, "at most one key for each counter: {}", all.hot.len());
    }
}

#[test]
fn a_key_has_its_name_also_if_a_batch_asked_about_it_first() {
    let limiter = Limiter::builder("1/h".parse().unwrap()).top_keys();
    let limiter = limiter.with_clock(ManualClock::new());
    let mut batch = limiter.batch();
    (0..1_000).for_each(|_| batch.push("alice", 1));
    batch.decide();
    for _ in 0..1_000 {
        let _ = limiter.check("alice");
    }
    assert_eq!(limiter.top(1).hot[0].name.to_string(), "alice");
}

/// A request that is decided with others, or that waits for its turn, names its key like any other.
#[test]
fn a_key_has_its_name_however_it_was_asked_about() {
    type Way = fn(&Limiter<ManualClock>);
    let ways: [(&str, Way); 6] = [
        ("all allowed", |l| drop(tidegate::check_all([l.request("alice"), l.request("bob")]))),
        ("another denied", |l| {
            drop(tidegate::check_all([l.request("alice"), l.request("bob").cost(2_000_000)]));
        }),
        ("denied", |l| {
            drop(tidegate::check_all([l.request("bob"), l.request("alice").cost(2_000_000)]));
        }),
        ("check", |l| assert!(l.request("alice").check().is_allow())),
        ("try_acquire", |l| drop(l.request("alice").try_acquire())),
        ("reserve", |l| drop(l.request("alice").reserve())),
    ];
    for (way, ask) in ways {
        let limiter = Limiter::builder("1000000/s".parse().unwrap()).top_keys();
        let limiter = limiter.with_clock(ManualClock::new());
        (0..20).for_each(|_| ask(&limiter));
        let names: Vec<String> =
            limiter.top(2).hot.iter().map(|key| key.name.to_string()).collect();
        assert!(names.contains(&"alice".to_owned()), "{way}: {names:?}");
    }
}

/// How often a key was asked about and refused, by the sketch, when it was asked about 4000 times.
fn counted(ask: impl Fn(&Limiter<ManualClock>)) -> (u64, u64) {
    let limiter = Limiter::builder("1/h".parse().unwrap()).top_keys();
    let limiter = limiter.with_clock(ManualClock::new());
    (0..4_000).for_each(|_| ask(&limiter));
    let top = limiter.top(1);
    let count = |keys: &[TopKey]| keys.first().map_or(0, |key| key.count);
    (count(&top.hot), count(&top.denied))
}

#[test]
fn keys_that_ask_for_a_turn_are_counted_like_those_that_check() {
    let ways = [
        ("ask", counted(|limiter| assert!(limiter.request("alice").check().limit > 0))),
        ("try_acquire", counted(|limiter| drop(limiter.try_acquire("alice")))),
        ("reserve", counted(|limiter| drop(limiter.request("alice").within(Span::ZERO).reserve()))),
    ];
    for (way, counts) in ways {
        assert_eq!(counts, (4_000, 3_999), "{way}");
    }
}

/// What was asked, and when; as far back as the counts reach.
#[derive(Default)]
struct History(VecDeque<(Span, usize)>);

impl History {
    fn counts(&mut self, since: Span) -> HashMap<String, u64> {
        while self.0.front().is_some_and(|(at, _)| *at < since) {
            self.0.pop_front();
        }
        let mut counts = HashMap::new();
        self.0.iter().for_each(|(_, key)| *counts.entry(name(*key)).or_default() += 1);
        counts
    }
}

/// Asks about keys of this many at a time that passes unevenly, and compares all that is listed with what was asked.
fn compare(keys: u64, seed: u64, mut is_good: impl FnMut(&TopKey, u64) -> bool) {
    let (zipf, mut random) = (Zipf::new(keys), Random::new(seed));
    let clock = ManualClock::new();
    let builder = Limiter::builder("1000000/s".parse().unwrap()).max_keys(1_000).top_keys();
    let limiter = builder.with_clock(clock.clone());
    let (mut history, mut now, mut compared) = (History::default(), Span::ZERO, 0);
    for round in 0..size(40, 400) {
        for _ in 0..random.below(2_000) {
            let key = zipf.rank(&mut random);
            let _ = limiter.check(&name(key));
            history.0.push_back((now, key));
        }
        let top = limiter.top(usize::MAX);
        assert!(top.window <= Span::from_secs(120), "{:?}", top.window);
        let counts = history.counts(now.saturating_sub(top.window));
        for found in &top.hot {
            let counted = counts.get(&found.name.to_string()).copied().unwrap_or_default();
            assert!(is_good(found, counted), "round {round}: {found:?}, counted {counted}");
            compared += 1;
        }
        let step = Span::from_millis(random.below(40_000));
        clock.advance(step);
        now = now + step;
    }
    assert!(compared > 100, "{compared}");
}

#[test]
fn the_true_count_of_every_listed_key_is_within_the_error_that_it_says() {
    for (seed, keys) in (1..).zip([5, 20, 64, 100, 1_000, KEYS]) {
        compare(keys, seed, is_right);
    }
}

#[test]
fn keys_that_fit_are_counted_exactly() {
    let is_exact = |found: &TopKey, counted| (found.count, found.error) == (counted, 0);
    compare(8, 1, is_exact);
    let limiter = Limiter::builder("1/h".parse().unwrap()).top_keys();
    let limiter = limiter.with_clock(ManualClock::new());
    for key in 10..30 {
        (0..key).for_each(|_| assert!(limiter.check(&name(key)).limit > 0));
    }
    let top = limiter.top(20);
    let found: Vec<(u64, u64)> = top.hot.iter().map(|key| (key.count, key.error)).collect();
    let asked: Vec<(u64, u64)> = (10..30).rev().map(|count| (count, 0)).collect();
    assert_eq!(found, asked);
}

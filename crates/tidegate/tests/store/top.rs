//! The keys that are asked about most, by a sketch: the true ones, with their names, and counts that are
//! as right as they say.

use crate::random::{Random, Zipf};
use crate::size;
use tidegate::{Limiter, ManualClock, Span, TopKey};

const KEYS: u64 = 10_000;
/// The sketch hears of one decision in so many.
const SAMPLE: u64 = 16;

fn name(rank: usize) -> String {
    format!("user-{rank}")
}

/// The root, rounded up.
fn root(number: u64) -> u64 {
    let root = number.isqrt();
    root + u64::from(root * root < number)
}

/// Whether a count is as right as it says: too high by its error at most, and off by what sampling
/// does, of which five standard deviations are allowed.
fn is_right(found: &TopKey, counted: u64) -> bool {
    let noise = 5 * root(SAMPLE * counted);
    found.count <= counted + found.error + noise && found.count + noise >= counted
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
            limiter.check(&name(rank));
        }
        let top = limiter.top(10);
        assert_eq!((top.hot.len(), top.denied.len()), (10, 10));
        assert!(top.hot.is_sorted_by_key(|key| u64::MAX - key.count));
        for (rank, counted) in counted.into_iter().take(5).enumerate() {
            let named = |key: &&TopKey| key.name.to_string() == name(rank);
            let hot = top.hot.iter().find(named).expect("it is among the ten");
            assert!(is_right(hot, counted), "{hot:?}, counted {counted}");
            let denied = top.denied.iter().find(named).expect("it is among the ten");
            assert!(is_right(denied, counted - 50), "{denied:?}, counted {counted}");
        }
        let all = limiter.top(usize::MAX);
        assert!(all.hot.len() <= 64 * 128, "so many counters, and not more: {}", all.hot.len());
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
        limiter.check("alice");
    }
    assert_eq!(limiter.top(1).hot[0].name.to_string(), "alice");
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
        ("ask", counted(|limiter| assert!(limiter.ask("alice").check().limit > 0))),
        ("try_acquire", counted(|limiter| drop(limiter.try_acquire("alice")))),
        ("reserve", counted(|limiter| drop(limiter.ask("alice").within(Span::ZERO).reserve()))),
    ];
    let noise = 5 * root(SAMPLE * 4_000);
    for (way, (hot, denied)) in ways {
        assert!(hot.abs_diff(4_000) <= noise, "{way}: {hot}");
        assert!(denied.abs_diff(3_999) <= noise, "{way}: {denied} denied");
    }
}

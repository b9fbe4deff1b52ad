//! Keys chosen to collide under hashes that are not keyed (T43): here they cost what any keys cost.

use tidegate::{Clock, Limiter, ManualClock, SystemClock};

const KEYS: u64 = 100_000;
const ROUNDS: usize = 7;
/// The multiplier of `FxHash`, for numbers of 64 bits.
const FX: u64 = 0x517c_c1b7_2722_0a95;

/// Returns the inverse of `FX`: their product is 1.
fn inverse_of_fx() -> u64 {
    // Newton: each step doubles the number of bits that are right, of which five are at first.
    (0..4)
        .fold(FX.wrapping_mul(3) ^ 2, |x, _| x.wrapping_mul(2_u64.wrapping_sub(FX.wrapping_mul(x))))
}

type Keys = (&'static str, fn(u64) -> u64);

const CHOSEN: [Keys; 5] = [
    ("equal low bits", |n| n << 32),
    ("equal high bits", |n| n),
    ("equal low bits of FxHash", |n| inverse_of_fx().wrapping_mul(n << 40)),
    ("equal high bits of FxHash", |n| inverse_of_fx().wrapping_mul(n)),
    ("a stride as long as a table", |n| n * 131_072),
];

fn random(n: u64) -> u64 {
    (n + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29).wrapping_mul(0xbf58_476d_1ce4_e5b9)
}

/// How long it takes to put in these keys and to find them again, in microseconds.
fn measure(key: fn(u64) -> u64) -> u64 {
    let builder = Limiter::builder("1/h burst 5".parse().unwrap()).audit(64);
    let limiter = builder.with_clock(ManualClock::new());
    let stopwatch = SystemClock::new();
    let started = stopwatch.now();
    for _ in 0..2 {
        assert!((0..KEYS).all(|n| limiter.check(&key(n)).is_allow()));
    }
    let took = stopwatch.now().since(started).as_micros();
    assert_eq!(limiter.keys() as u64, KEYS);
    let audit = limiter.audit().unwrap();
    assert!(audit.admissions > 0, "some keys were audited");
    assert_eq!(audit.violations, 0, "{:?}", audit.first);
    took
}

#[test]
fn the_inverse_is_one() {
    assert_eq!(inverse_of_fx().wrapping_mul(FX), 1);
}

// T43.
/// Medians of rounds in turns: what else the machine does hits both alike.
#[test]
fn keys_that_collide_under_other_hashes_take_no_longer_than_random_ones() {
    let mut took = vec![Vec::new(); CHOSEN.len() + 1];
    for _ in 0..ROUNDS {
        took[0].push(measure(random));
        for (times, (_, key)) in took[1..].iter_mut().zip(CHOSEN) {
            times.push(measure(key));
        }
    }
    let medians: Vec<u64> = took
        .into_iter()
        .map(|mut times| {
            times.sort_unstable();
            times[ROUNDS / 2]
        })
        .collect();
    for (median, (name, _)) in medians[1..].iter().zip(CHOSEN) {
        println!("{name}: {median} us, random: {} us", medians[0]);
        assert!(*median <= 5 * medians[0], "{name}: {median} us, random: {} us", medians[0]);
    }
}

// T43.
/// The same without a stopwatch: strings that differ in one place only are spread over all shards.
#[test]
fn similar_texts_are_different_keys() {
    let limiter = Limiter::with_clock("1/h".parse().unwrap(), ManualClock::new());
    for n in 0..10_000 {
        assert!(limiter.check(&format!("{}{n:05}", "a".repeat(200))).is_allow(), "{n}");
        assert!(limiter.check(&format!("{n:05}{}", "\0".repeat(200))).is_allow(), "{n}");
    }
    assert_eq!(limiter.keys(), 20_000);
}

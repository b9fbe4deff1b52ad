//! The time that `#[limit]` adds to a check written by hand, side by side in one run.
//!
//! The same function with the attribute and with the check written by hand take turns, round after round. The result is
//! the median of the differences within a round. The position of a single key in a table changes the result by some
//! nanoseconds, so 256 keys are checked in turn.
//! `cargo xtask bench --bench attribute`; `docs/benchmarks.md` has the target.
#![expect(clippy::print_stdout, reason = "the table is the result")]

use std::hint::black_box;
use tidegate::{Denied, Gate, Limiter, limit};
use tidegate_bench::clock::now;
use tidegate_bench::ratio::{Ratio, median};
use tidegate_bench::traffic::Key;

/// Number of turns of each variant.
const ROUNDS: usize = 51;
/// Calls in a turn.
const CALLS: u32 = 200_000;
/// Number of keys that are checked in turn; a power of two.
const KEYS: u32 = 256;
/// Maximum time that the attribute may add to a call.
const ADDED_NS_MAX: f64 = 5.0;

const ALLOWED: &str = "1000000000/s";
const DENIED: &str = "1/h";

/// Calls a function this many times, and returns how many calls were admitted.
type Turn = Box<dyn Fn(u32) -> u32>;

struct Case {
    name: &'static str,
    is_allowed: bool,
    by_hand: Turn,
    by_attribute: Turn,
}

fn main() {
    // `cargo bench` passes `--bench`. `cargo test --benches` passes `--test`, which must not measure.
    if std::env::args().any(|argument| argument == "--test") {
        return;
    }
    println!("{:<18} {:>8} {:>10}   {:<22} ns more", "ns/call", "by hand", "attribute", "ratio");
    for case in cases() {
        case.compare();
    }
}

fn cases() -> [Case; 6] {
    let gate = |rule: &str| Gate::new(rule.parse().expect("a good rule"));
    let limiter = |rule: &str| Limiter::new(rule.parse().expect("a good rule"));
    let (open, shut) = (gate(ALLOWED), gate(DENIED));
    let (names, no_names) = (limiter(ALLOWED), limiter(DENIED));
    let (numbers, no_numbers) = (limiter(ALLOWED), limiter(DENIED));
    [
        Case {
            name: "gate, allowed",
            is_allowed: true,
            by_hand: repeat(move |n| of_gate(&open, n)),
            by_attribute: repeat(open_gate),
        },
        Case {
            name: "gate, denied",
            is_allowed: false,
            by_hand: repeat(move |n| of_gate(&shut, n)),
            by_attribute: repeat(shut_gate),
        },
        Case {
            name: "text key, allowed",
            is_allowed: true,
            by_hand: by_key(move |key: &String, n| of_name(&names, key, n)),
            by_attribute: by_key(|key: &String, n| open_name(key, n)),
        },
        Case {
            name: "text key, denied",
            is_allowed: false,
            by_hand: by_key(move |key: &String, n| of_name(&no_names, key, n)),
            by_attribute: by_key(|key: &String, n| shut_name(key, n)),
        },
        Case {
            name: "u64 key, allowed",
            is_allowed: true,
            by_hand: by_key(move |key: &u64, n| of_number(&numbers, *key, n)),
            by_attribute: by_key(|key: &u64, n| open_number(*key, n)),
        },
        Case {
            name: "u64 key, denied",
            is_allowed: false,
            by_hand: by_key(move |key: &u64, n| of_number(&no_numbers, *key, n)),
            by_attribute: by_key(|key: &u64, n| shut_number(*key, n)),
        },
    ]
}

/// The work of the limited function, which the optimiser cannot remove.
fn work(number: u32) -> u32 {
    black_box(number)
}

#[inline(never)]
fn of_gate(gate: &Gate, number: u32) -> Result<u32, Denied> {
    gate.check().into_result()?;
    Ok(work(number))
}

#[inline(never)]
#[limit("1000000000/s")]
fn open_gate(number: u32) -> Result<u32, Denied> {
    Ok(work(number))
}

#[inline(never)]
#[limit("1/h")]
fn shut_gate(number: u32) -> Result<u32, Denied> {
    Ok(work(number))
}

#[inline(never)]
fn of_name(limiter: &Limiter, name: &str, number: u32) -> Result<u32, Denied> {
    limiter.check(name).into_result()?;
    Ok(work(number))
}

#[inline(never)]
#[limit("1000000000/s", key = name)]
fn open_name(name: &str, number: u32) -> Result<u32, Denied> {
    Ok(work(number))
}

#[inline(never)]
#[limit("1/h", key = name)]
fn shut_name(name: &str, number: u32) -> Result<u32, Denied> {
    Ok(work(number))
}

#[inline(never)]
fn of_number(limiter: &Limiter, user: u64, number: u32) -> Result<u32, Denied> {
    limiter.check(&user).into_result()?;
    Ok(work(number))
}

#[inline(never)]
#[limit("1000000000/s", key = user)]
fn open_number(user: u64, number: u32) -> Result<u32, Denied> {
    Ok(work(number))
}

#[inline(never)]
#[limit("1/h", key = user)]
fn shut_number(user: u64, number: u32) -> Result<u32, Denied> {
    Ok(work(number))
}

/// Like [`repeat`], for all keys in turn.
fn by_key<K: Key>(call: impl Fn(&K, u32) -> Result<u32, Denied> + 'static) -> Turn {
    let keys: Vec<K> = (0..KEYS).map(K::numbered).collect();
    repeat(move |n| call(&keys[(n % KEYS) as usize], n))
}

fn repeat(call: impl Fn(u32) -> Result<u32, Denied> + 'static) -> Turn {
    Box::new(move |times| (0..times).map(|n| u32::from(black_box(call(n)).is_ok())).sum())
}

impl Case {
    fn compare(&self) {
        let (mut by_hand, mut by_attribute) = (Vec::new(), Vec::new());
        // The first round warms up, and uses up the burst in cases of denials.
        for round in 0..=ROUNDS {
            let times =
                (self.measure(&self.by_hand, round), self.measure(&self.by_attribute, round));
            if round > 0 {
                by_hand.push(times.0);
                by_attribute.push(times.1);
            }
        }
        let added: Vec<f64> = by_attribute.iter().zip(&by_hand).map(|(a, b)| a - b).collect();
        let (ratio, added) = (Ratio::of(&by_attribute, &by_hand), Ratio::spread(&added));
        let (hand, attribute) = (median(&by_hand), median(&by_attribute));
        let verdict = added.verdict(ADDED_NS_MAX);
        println!(
            "{:<18} {hand:>8.1} {attribute:>10.1}   {ratio:<22} {added}  {verdict}",
            self.name
        );
    }

    fn measure(&self, turn: &Turn, round: usize) -> f64 {
        let start = now();
        let admitted = turn(CALLS);
        let elapsed = start.elapsed();
        let expected = if self.is_allowed { CALLS } else { 0 };
        assert!(round == 0 || admitted == expected, "{} took another path", self.name);
        elapsed.as_secs_f64() * 1e9 / f64::from(CALLS)
    }
}

//! Makes n decisions of one case and nothing else, for `cargo xtask instructions` to count.
//!
//! Always   Batches are decided inside `repeat_batch`, which callgrind selects by name; it is never inlined.

use std::hash::Hash;
use std::hint::black_box;
use std::process::ExitCode;
use tidegate::{Gate, Limiter, Rule, check_all};
use tidegate_bench::counted::{self, Case, Counter, Decide, prepared};
use tidegate_bench::traffic::Key;

/// A key is in debt from its first decision to the end of the run, and far from being denied.
const ALLOWED: &str = "1/s burst 1000000";
/// One was admitted while the case was prepared.
const DENIED: &str = "1/h";

const BATCH: usize = 64;
const BATCH_KEYS: u32 = 10_000;

const CASES: &[Case] = &[
    Case { name: "gate-allowed", is_allowed: true, prepare: || gate(ALLOWED) },
    Case { name: "gate-denied", is_allowed: false, prepare: || gate(DENIED) },
    Case { name: "limiter-allowed", is_allowed: true, prepare: || limiter::<String>(ALLOWED) },
    Case { name: "limiter-denied", is_allowed: false, prepare: || limiter::<String>(DENIED) },
    Case { name: "limiter-u64", is_allowed: true, prepare: || limiter::<u64>(ALLOWED) },
    Case { name: "limiter-batch", is_allowed: true, prepare: batch },
    // The capacity exceeds a quarter of a word, so the bucket decides in 128-bit numbers, without `NarrowBucket`.
    Case {
        name: "limiter-wide-bucket",
        is_allowed: true,
        prepare: || limiter::<String>("1/s burst 9007199254740992"),
    },
    // A window lasts a thousand decisions, so that there is a previous window.
    Case {
        name: "limiter-sliding",
        is_allowed: true,
        prepare: || limiter::<String>("1000000/ms sliding"),
    },
    Case {
        name: "limiter-fixed",
        is_allowed: true,
        prepare: || limiter::<String>("1000000/ms fixed"),
    },
    Case {
        name: "limiter-calendar",
        is_allowed: true,
        prepare: || limiter::<String>("1000000/min calendar"),
    },
    // The log holds a hundred entries: one leaves it for each that enters.
    Case {
        name: "limiter-sliding-log",
        is_allowed: true,
        prepare: || limiter::<String>("1000/100us sliding-log"),
    },
    Case {
        name: "limiter-leaky",
        is_allowed: true,
        prepare: || limiter::<String>("1/s leaky capacity 1000000"),
    },
    // A request costs a tenth of a microsecond, so none waits.
    Case {
        name: "limiter-queue",
        is_allowed: true,
        prepare: || limiter::<String>("10000000/s queue"),
    },
    Case {
        name: "limiter-smooth",
        is_allowed: true,
        prepare: || limiter::<String>("10000000/s smooth"),
    },
    // Even a cold start takes less than the microsecond until the next request.
    Case {
        name: "limiter-warmup",
        is_allowed: true,
        prepare: || limiter::<String>("10000000/s warmup 1ms"),
    },
    Case {
        name: "limiter-nginx",
        is_allowed: true,
        prepare: || limiter::<String>("1000r/s burst=1000000 nodelay"),
    },
    Case { name: "check-all-of-two", is_allowed: true, prepare: two_limiters },
    Case { name: "check-all-of-three", is_allowed: true, prepare: three_limiters },
];

fn main() -> ExitCode {
    counted::main(CASES)
}

fn gate(text: &str) -> Decide {
    let gate = Gate::with_clock(rule(text), Counter);
    prepared(move || gate.check().is_allow())
}

fn limiter<K: Key>(text: &str) -> Decide {
    let limiter = Limiter::with_clock(rule(text), Counter);
    let key = K::numbered(0);
    prepared(move || limiter.check(&key).is_allow())
}

fn two_limiters() -> Decide {
    let user = Limiter::with_clock(rule(ALLOWED), Counter);
    let address = Limiter::with_clock(rule(ALLOWED), Counter);
    let (name, number) = (String::numbered(0), u64::numbered(0));
    prepared(move || check_all([user.request(&name), address.request(&number)]).decision.is_allow())
}

fn three_limiters() -> Decide {
    let [user, address] = [(); 2].map(|()| Limiter::with_clock(rule(ALLOWED), Counter));
    let tenant = Limiter::with_clock(rule("1000000/ms sliding"), Counter);
    let (name, number) = (String::numbered(0), u64::numbered(0));
    prepared(move || {
        let requests = [user.request(&name), address.request(&number), tenant.request(&number)];
        check_all(requests).decision.is_allow()
    })
}

fn batch() -> Decide {
    let limiter = Limiter::with_clock(rule(ALLOWED), Counter);
    let keys: Vec<String> = (0..BATCH_KEYS).map(String::numbered).collect();
    // Not by `repeat_batch`, because inserting new keys must not be counted.
    for key in &keys {
        let _ = black_box(limiter.check(key));
    }
    Box::new(move |decisions| repeat_batch(&limiter, &keys, decisions))
}

fn rule(text: &str) -> Rule {
    text.parse().expect("a good rule")
}

/// Decides batch by batch: all keys in turn, starting over after the last.
#[inline(never)]
fn repeat_batch<K: Hash>(limiter: &Limiter<Counter>, keys: &[K], decisions: u32) -> u32 {
    let mut allowed = 0;
    let mut batch = limiter.batch();
    let mut keys = keys.iter().cycle().take(decisions as usize).peekable();
    while keys.peek().is_some() {
        for key in keys.by_ref().take(BATCH) {
            batch.push(key, 1);
        }
        for decision in black_box(batch.decide()) {
            allowed += u32::from(decision.is_allow());
        }
    }
    allowed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_is_decided_as_declared() {
        // More decisions than there are keys, and not a multiple of a batch.
        counted::assert_all(CASES, BATCH_KEYS + 1);
    }
}

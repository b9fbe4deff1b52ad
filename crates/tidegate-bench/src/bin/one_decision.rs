//! Makes n decisions of one case and nothing else, for `cargo xtask instructions` to count.
//!
//! Always   What is prepared does not depend on n: the difference between two runs is decisions.
//! Always   The decisions are made inside `repeat` or `repeat_batch`, by whose names the counting is
//!          turned on; neither is ever inlined.
//! Always   Time is a counter, one microsecond a reading, so every run decides at the same times.
//! Exits    0 all were decided as the case says, 1 not, 2 there is no such case. Without arguments it
//!          lists the cases.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "the list and the errors")]

use std::hash::Hash;
use std::hint::black_box;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use tidegate::{Clock, Gate, Limiter, Rule, Timestamp, check_all};
use tidegate_bench::traffic::Key;

/// A key is in debt from its first decision to the end of the run, and far from refused.
const ALLOWED: &str = "1/s burst 1000000";
/// One was admitted while the case was prepared.
const DENIED: &str = "1/h";

const BATCH: usize = 64;
const BATCH_KEYS: u32 = 10_000;

struct Case {
    name: &'static str,
    /// Whether all are allowed; if not, all are denied.
    is_allowed: bool,
    prepare: fn() -> Decide,
}

/// Decides so many times; tells how many were allowed.
type Decide = Box<dyn FnMut(u32) -> u32>;

const CASES: &[Case] = &[
    Case { name: "gate-allowed", is_allowed: true, prepare: || gate(ALLOWED) },
    Case { name: "gate-denied", is_allowed: false, prepare: || gate(DENIED) },
    Case { name: "limiter-allowed", is_allowed: true, prepare: || limiter::<String>(ALLOWED) },
    Case { name: "limiter-denied", is_allowed: false, prepare: || limiter::<String>(DENIED) },
    Case { name: "limiter-u64", is_allowed: true, prepare: || limiter::<u64>(ALLOWED) },
    Case { name: "limiter-batch", is_allowed: true, prepare: batch },
    // A window lasts a thousand decisions, so that there is a window before the one that counts.
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
    // A hundred are in the log: one falls out of it for each that comes.
    Case {
        name: "limiter-sliding-log",
        is_allowed: true,
        prepare: || limiter::<String>("1000/100us sliding-log"),
    },
    Case {
        name: "limiter-smooth",
        is_allowed: true,
        prepare: || limiter::<String>("10000000/s smooth"),
    },
    // Even the coldest takes less than the microsecond until the next.
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
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.is_empty() {
        for case in CASES {
            println!("{}", case.name);
        }
        return ExitCode::SUCCESS;
    }
    let Some((case, decisions)) = parse(&arguments) else {
        eprintln!(
            "error: expected `one_decision <case> <n>`; without arguments it lists the cases"
        );
        return ExitCode::from(2);
    };
    match case.run(decisions) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("error: {message}");
            ExitCode::FAILURE
        }
    }
}

fn parse(arguments: &[String]) -> Option<(&'static Case, u32)> {
    let [name, decisions] = arguments else { return None };
    let case = CASES.iter().find(|case| case.name == name)?;
    Some((case, decisions.parse().ok()?))
}

impl Case {
    fn run(&self, decisions: u32) -> Result<(), String> {
        let mut decide = (self.prepare)();
        let allowed = decide(decisions);
        let expected = if self.is_allowed { decisions } else { 0 };
        if allowed != expected {
            let name = self.name;
            return Err(format!("{name}: {allowed} of {decisions} allowed, expected {expected}"));
        }
        Ok(())
    }
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
    prepared(move || check_all([user.ask(&name), address.ask(&number)]).decision.is_allow())
}

fn batch() -> Decide {
    let limiter = Limiter::with_clock(rule(ALLOWED), Counter);
    let keys: Vec<String> = (0..BATCH_KEYS).map(String::numbered).collect();
    // One by one, and not by `repeat_batch`: new keys are another matter, and must not be counted.
    for key in &keys {
        black_box(limiter.check(key));
    }
    Box::new(move |decisions| repeat_batch(&limiter, &keys, decisions))
}

fn rule(text: &str) -> Rule {
    text.parse().expect("a good rule")
}

/// The first decision makes the key known, and uses up what a denied case must not have.
fn prepared(decide: impl Fn() -> bool + 'static) -> Decide {
    black_box(decide());
    Box::new(move |decisions| repeat(&decide, decisions))
}

#[inline(never)]
fn repeat(decide: &impl Fn() -> bool, decisions: u32) -> u32 {
    let mut allowed = 0;
    for _ in 0..decisions {
        allowed += u32::from(black_box(decide()));
    }
    allowed
}

/// The same, batch by batch: all keys in turn, and again from the first.
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

/// A clock that costs one instruction: every reading is a microsecond after the one before.
#[derive(Clone)]
struct Counter;

/// 2024-01-01T00:00:00Z, when windows of every length begin.
static READINGS: AtomicU64 = AtomicU64::new(1_704_067_200_000_000);

impl Clock for Counter {
    #[inline]
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(READINGS.fetch_add(1, Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_is_decided_as_it_says() {
        for case in CASES {
            // More than all keys of the batch, and not whole batches.
            assert_eq!(case.run(BATCH_KEYS + 1), Ok(()));
        }
    }

    #[test]
    fn a_case_is_one_word_and_the_only_one_of_its_name() {
        for case in CASES {
            assert!(case.name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-'));
            assert_eq!(CASES.iter().filter(|other| other.name == case.name).count(), 1);
        }
    }

    #[test]
    fn what_is_no_case_with_a_number_is_refused() {
        let parse = |line: &str| {
            parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>()).is_some()
        };
        assert!(parse("gate-allowed 10"));
        for bad in ["gate-allowed", "gate-allowed ten", "gate-allowed 1 2", "no-such-case 10"] {
            assert!(!parse(bad), "{bad}");
        }
    }
}

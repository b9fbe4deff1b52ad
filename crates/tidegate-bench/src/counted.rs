//! Cases that are decided n times and counted by `cargo xtask instructions`.
//!
//! Always   The preparation does not depend on n, so the difference between two runs is the cost of decisions.
//! Always   The decisions are made inside [`repeat`], which callgrind selects by name; it is never inlined.
//! Always   Time is a counter that advances one microsecond per reading, so every run decides at the same times. Where it
//!          cannot be (`per_ip` uses the system clock), the decision takes the same steps at any time.
//! Exits    0 all requests were decided as the case declares, 1 not, 2 no such case. Without arguments it lists the
//!          cases.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "the list and the errors")]

use std::hint::black_box;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use tidegate::{Clock, Timestamp};

/// A kind of decision to count.
#[derive(Debug)]
pub struct Case {
    /// One word, unique among the cases.
    pub name: &'static str,
    /// Whether all requests are allowed; otherwise all are denied.
    pub is_allowed: bool,
    /// Prepares the decisions.
    pub prepare: fn() -> Decide,
}

/// Makes this many decisions, and returns how many requests were allowed.
pub type Decide = Box<dyn FnMut(u32) -> u32>;

/// The main function of a program that decides the case that its arguments name.
pub fn main(cases: &[Case]) -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.is_empty() {
        for case in cases {
            println!("{}", case.name);
        }
        return ExitCode::SUCCESS;
    }
    let Some((case, decisions)) = parse(cases, &arguments) else {
        eprintln!("error: expected a case and a number; without arguments the cases are listed");
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

fn parse<'a>(cases: &'a [Case], arguments: &[String]) -> Option<(&'a Case, u32)> {
    let [name, decisions] = arguments else { return None };
    let case = cases.iter().find(|case| case.name == name)?;
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

/// Makes the first decision, which stores the key and, in a denied case, uses up the limit.
pub fn prepared(decide: impl Fn() -> bool + 'static) -> Decide {
    black_box(decide());
    Box::new(move |decisions| repeat(&decide, decisions))
}

/// Makes this many decisions, and returns how many requests were allowed.
#[inline(never)]
pub fn repeat(decide: &impl Fn() -> bool, decisions: u32) -> u32 {
    let mut allowed = 0;
    for _ in 0..decisions {
        allowed += u32::from(black_box(decide()));
    }
    allowed
}

/// A clock that costs one instruction: it advances one microsecond per reading.
#[derive(Clone, Copy, Debug)]
pub struct Counter;

/// 2024-01-01T00:00:00Z, which is the start of windows of every length.
static READINGS: AtomicU64 = AtomicU64::new(1_704_067_200_000_000);

impl Clock for Counter {
    #[inline]
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(READINGS.fetch_add(1, Ordering::Relaxed))
    }
}

/// Asserts that each case is decided as it declares, and that names are unique. For the tests of programs with cases.
#[expect(clippy::missing_panics_doc, reason = "it is a test")]
pub fn assert_all(cases: &[Case], decisions: u32) {
    for case in cases {
        assert_eq!(case.run(decisions), Ok(()));
        assert!(case.name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-'));
        assert_eq!(cases.iter().filter(|other| other.name == case.name).count(), 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CASES: &[Case] = &[
        Case { name: "yes", is_allowed: true, prepare: || prepared(|| true) },
        Case { name: "yes-no", is_allowed: true, prepare: || prepared(|| false) },
    ];

    #[test]
    fn arguments_other_than_a_case_and_a_number_are_rejected() {
        let parse = |line: &str| {
            let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
            parse(CASES, &words).is_some()
        };
        assert!(parse("yes 10"));
        for bad in ["yes", "yes ten", "yes 1 2", "no 10"] {
            assert!(!parse(bad), "{bad}");
        }
    }

    #[test]
    fn a_case_with_another_decision_is_an_error() {
        assert_eq!(CASES[0].run(3), Ok(()));
        assert_eq!(CASES[1].run(3), Err("yes-no: 0 of 3 allowed, expected 3".to_owned()));
    }
}

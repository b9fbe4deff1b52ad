//! Cases that are decided n times and counted by `cargo xtask instructions`.
//!
//! Always   What is prepared does not depend on n: the difference between two runs is decisions.
//! Always   The decisions are made inside [`repeat`], by whose name the counting is turned on; it is never inlined.
//! Always   Time is a counter, one microsecond a reading, so every run decides at the same times. Where it cannot be
//!          (`per_ip` has the machine's clock), what is decided takes the same steps at any time.
//! Exits    0 all were decided as the case says, 1 not, 2 there is no such case. Without arguments it
//!          lists the cases.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "the list and the errors")]

use std::hint::black_box;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use tidegate::{Clock, Timestamp};

/// What is decided again and again.
#[derive(Debug)]
pub struct Case {
    /// One word, and no other case has it.
    pub name: &'static str,
    /// Whether all are allowed; if not, all are denied.
    pub is_allowed: bool,
    /// Makes all that is there before the first decision.
    pub prepare: fn() -> Decide,
}

/// Decides so many times; tells how many were allowed.
pub type Decide = Box<dyn FnMut(u32) -> u32>;

/// A program that decides the case that its arguments name.
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

/// The first decision makes the key known, and uses up what a denied case must not have.
pub fn prepared(decide: impl Fn() -> bool + 'static) -> Decide {
    black_box(decide());
    Box::new(move |decisions| repeat(&decide, decisions))
}

/// Decides so many times; tells how many were allowed.
#[inline(never)]
pub fn repeat(decide: &impl Fn() -> bool, decisions: u32) -> u32 {
    let mut allowed = 0;
    for _ in 0..decisions {
        allowed += u32::from(black_box(decide()));
    }
    allowed
}

/// A clock that costs one instruction: every reading is a microsecond after the one before.
#[derive(Clone, Copy, Debug)]
pub struct Counter;

/// 2024-01-01T00:00:00Z, when windows of every length begin.
static READINGS: AtomicU64 = AtomicU64::new(1_704_067_200_000_000);

impl Clock for Counter {
    #[inline]
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(READINGS.fetch_add(1, Ordering::Relaxed))
    }
}

/// For the tests of who has cases: each is decided as it says, and has a word of its own.
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
    fn what_is_no_case_with_a_number_is_refused() {
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
    fn a_case_that_is_decided_otherwise_is_told() {
        assert_eq!(CASES[0].run(3), Ok(()));
        assert_eq!(CASES[1].run(3), Err("yes-no: 0 of 3 allowed, expected 3".to_owned()));
    }
}

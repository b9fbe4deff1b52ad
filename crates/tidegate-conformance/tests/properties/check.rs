//! Runs a claim on many cases and shows the smallest one that refutes it.
//!
//! Prints the number of cases after each claim: `--nocapture` shows the progress of a long run.

use crate::generate::ALGORITHMS;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseResult, TestError, TestRunner};
use tidegate_conformance::oracle::Rule;

/// Cases per algorithm and claim, unless `TIDEGATE_CASES` says otherwise.
const CASES: u32 = 10_000;

pub(crate) fn cases() -> u32 {
    match std::env::var("TIDEGATE_CASES") {
        Ok(cases) => cases.parse().expect("TIDEGATE_CASES is a whole number"),
        Err(_) => CASES,
    }
}

pub(crate) fn check<S: Strategy>(strategy: &S, claim: impl Fn(S::Value) -> TestCaseResult) {
    if let Err(refutation) = refute("", strategy, claim) {
        panic!("{refutation}");
    }
}

fn refute<S: Strategy>(
    of: &str,
    strategy: &S,
    claim: impl Fn(S::Value) -> TestCaseResult,
) -> Result<(), TestError<S::Value>> {
    // No file of failures is written: the output of a failure suffices to repeat it.
    let config = Config {
        cases: cases(),
        failure_persistence: None,
        // The default is cryptographically secure, and slow.
        rng_algorithm: RngAlgorithm::XorShift,
        ..Config::default()
    };
    let result = TestRunner::new(config).run(strategy, claim);
    print_result(of, result.is_ok());
    result
}

#[expect(clippy::print_stdout, reason = "the test harness captures it by default")]
fn print_result(of: &str, is_true: bool) {
    let thread = std::thread::current();
    let result = if is_true { "true" } else { "refuted" };
    println!("{} {of}: {} cases, {result}", thread.name().unwrap_or_default(), cases());
}

/// Checks the claim for each algorithm, and fails with a list of the algorithms for which it is not true.
pub(crate) fn check_each<S: Strategy>(
    strategy: impl Fn(BoxedStrategy<Rule>) -> S,
    claim: impl Fn(S::Value) -> TestCaseResult,
) {
    let refutations: Vec<String> = ALGORITHMS
        .into_iter()
        .filter_map(|(name, rules)| {
            let refutation = refute(name, &strategy(rules()), &claim).err()?;
            Some(format!("not true of {name}: {refutation}"))
        })
        .collect();
    assert!(refutations.is_empty(), "{}", refutations.join("\n"));
}

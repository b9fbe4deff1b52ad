//! Mutation testing: would a test notice if an algorithm were wrong?
//!
//! Always   Only what decides is mutated: the algorithms and the arithmetic under them. Only the tests
//!          that must catch it run: the core's own and the conformance suite, with few cases, since
//!          there are many mutants; `TIDEGATE_CASES=10000` is for those that survive. `docs/mutants.md`
//!          says why they do.

use std::env;

use crate::command::Invocation;
use crate::tools::{self, MUTANTS};
use crate::workspace::Workspace;

const CASES: &str = "50";
const MUTATED: &str = "-p tidegate-core -f crates/tidegate-core/src/algorithm/** \
    -f crates/tidegate-core/src/{codec,limit,time}/** -f crates/tidegate-core/src/{decision,rate}.rs";
/// No doc tests: they show how to ask, and what only they would catch is not tested well enough.
const TESTED_BY: &str = "--test-package tidegate-core,tidegate-conformance \
    --cargo-test-arg=--lib --cargo-test-arg=--tests";
/// Every mutant is built, few run for long: what is built fast is tested fast. Each job builds in its own
/// copy, whatever folder is set outside: in a common one a mutant might be tested by another's tests.
const BUILT: [(&str, &str); 4] = [
    ("CARGO_TARGET_DIR", "target"),
    ("CARGO_PROFILE_TEST_OPT_LEVEL", "0"),
    ("CARGO_PROFILE_TEST_DEBUG", "0"),
    ("CARGO_PROFILE_DEV_DEBUG", "0"),
];
/// A mutant that loops for ever is caught by the clock, so the clock has to be short; a build
/// from nothing must still fit.
const BOUNDS: &str = "--jobs 2 --timeout 120 --build-timeout 600";

pub(crate) fn run(workspace: &Workspace, arguments: &[String]) -> anyhow::Result<()> {
    let result = mutants(workspace)?.arguments(options(arguments)).run();
    let report = workspace.root().join("mutants.out");
    if report.is_dir() {
        println!(
            "the report is in {}; missed.txt lists the mutants no test noticed",
            report.display()
        );
    }
    result
}

/// Some put `--` before the options of another tool. For cargo-mutants all that follows it would be
/// the tests' and no option at all: every mutant would run, each with tests that cannot start.
fn options(arguments: &[String]) -> &[String] {
    match arguments {
        [first, rest @ ..] if first == "--" => rest,
        _ => arguments,
    }
}

fn mutants(workspace: &Workspace) -> anyhow::Result<Invocation> {
    let invocation = tools::invoke(workspace, &MUTANTS)?;
    let cases = env::var("TIDEGATE_CASES").unwrap_or_else(|_| CASES.to_owned());
    let invocation = invocation.words(MUTATED).words(TESTED_BY).words(BOUNDS);
    let invocation = invocation.env("TIDEGATE_CASES", &cases);
    Ok(BUILT.into_iter().fold(invocation, |invocation, (name, value)| invocation.env(name, value)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_may_come_after_two_dashes() {
        let words = ["--", "-F", "joined", "--"].map(str::to_owned);
        assert_eq!(options(&words), &words[1..], "only the first is taken away");
        assert_eq!(options(&words[1..]), &words[1..]);
        assert!(options(&[]).is_empty());
    }
}

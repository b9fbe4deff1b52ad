//! Mutation testing: would a test notice if an algorithm were wrong?
//!
//! Always   Only the algorithms and their arithmetic are mutated. Only the tests that must catch a mutant run: those of the
//!          core and the conformance suite, with few cases because there are many mutants. Use
//!          `TIDEGATE_CASES=10000` for mutants that survive. `docs/mutants.md` explains why some do.

use std::env;

use crate::command::Invocation;
use crate::tools::{self, MUTANTS};
use crate::workspace::Workspace;

const CASES: &str = "50";
const MUTATED: &str = "-p tidegate-core -f crates/tidegate-core/src/algorithm/** \
    -f crates/tidegate-core/src/{codec,limit,time}/** -f crates/tidegate-core/src/{decision,rate}.rs";
/// No doc tests: a mutant that only a doc test catches is not tested well enough.
const TESTED_BY: &str = "--test-package tidegate-core,tidegate-conformance \
    --cargo-test-arg=--lib --cargo-test-arg=--tests";
/// Every mutant is built, and few run for long, so a fast build matters most. Each job builds in its own target
/// directory: in a shared one, a mutant might be tested by the binary of another.
const BUILT: [(&str, &str); 4] = [
    ("CARGO_TARGET_DIR", "target"),
    ("CARGO_PROFILE_TEST_OPT_LEVEL", "0"),
    ("CARGO_PROFILE_TEST_DEBUG", "0"),
    ("CARGO_PROFILE_DEV_DEBUG", "0"),
];
/// A mutant that loops forever is caught by the timeout, which should be short; a build from scratch must still fit.
const BOUNDS: &str = "--jobs 2 --timeout 120 --build-timeout 600";

pub(crate) fn run(workspace: &Workspace, arguments: &[String]) -> anyhow::Result<()> {
    let result = mutants(workspace)?.arguments(options(arguments)).run();
    let report = workspace.root().join("mutants.out");
    if report.is_dir() {
        println!(
            "the report is in {}; missed.txt lists the mutants that no test caught",
            report.display()
        );
    }
    result
}

/// Drops a leading `--`, which some people write before the options of another tool. cargo-mutants would pass everything
/// after it to the tests: every mutant would run, with tests that cannot start.
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

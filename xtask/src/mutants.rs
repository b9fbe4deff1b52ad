//! Mutation testing: would a test notice if an algorithm were wrong?
//!
//! Always   Only what decides is mutated: the algorithms and the arithmetic under them. Only the tests
//!          that must catch it run: the core's own and the conformance suite, with few cases, since
//!          there are many mutants. `docs/mutants.md` says why the survivors survive.

use crate::command::Invocation;
use crate::tools::{self, MUTANTS};
use crate::workspace::Workspace;

const CASES: &str = "300";
const MUTATED: &str = "-p tidegate-core -f crates/tidegate-core/src/algorithm/** \
    -f crates/tidegate-core/src/{bound,civil,closed_set,decision,limit,packed,rate,time}.rs";
const TESTED_BY: &str = "--test-package tidegate-core,tidegate-conformance";
/// A mutant that loops for ever is caught by the clock, so the clock has to be short; a build
/// from nothing must still fit.
const BOUNDS: &str = "--jobs 2 --timeout 120 --build-timeout 600";

pub(crate) fn run(workspace: &Workspace, arguments: &[String]) -> anyhow::Result<()> {
    let result = mutants(workspace)?.arguments(arguments).run();
    let report = workspace.root().join("mutants.out");
    if report.is_dir() {
        println!(
            "the report is in {}; missed.txt lists the mutants no test noticed",
            report.display()
        );
    }
    result
}

fn mutants(workspace: &Workspace) -> anyhow::Result<Invocation> {
    let invocation = tools::invoke(workspace, &MUTANTS)?;
    Ok(invocation.words(MUTATED).words(TESTED_BY).words(BOUNDS).env("TIDEGATE_CASES", CASES))
}

//! Everything CI runs, so that what passes here passes there.
//!
//! Always   A step that found nothing to run has failed: a filter that matches no test would
//!          otherwise stay green for ever.

use anyhow::ensure;

use crate::check;
use crate::command::Invocation;
use crate::instructions;
use crate::step::{self, Step};
use crate::workspace::Workspace;

const STEPS: &[Step] = &[
    Step { name: "tests and doc tests", run: all_features },
    Step { name: "tests, no default features", run: no_default_features },
    Step { name: "core alone, no features", run: core_alone },
    Step { name: "loom", run: loom },
    Step { name: "examples build", run: examples },
    Step { name: "benches build", run: benches },
    Step { name: "instructions", run: instructions::check },
];

/// Loom explores every interleaving: only optimised code gets through them in time.
const LOOM_TESTS: &str = "test -p tidegate --lib --release --locked -- loom_";
const LOOM_RUSTFLAGS: &str = "--cfg tidegate_loom";

pub(crate) fn run(workspace: &Workspace) -> anyhow::Result<()> {
    step::run_all(workspace, check::STEPS.iter().chain(STEPS))
}

fn all_features(workspace: &Workspace) -> anyhow::Result<()> {
    for crates in check::EVERY_CRATE {
        Invocation::cargo(workspace, &format!("test {crates} --locked")).run()?;
    }
    Ok(())
}

fn no_default_features(workspace: &Workspace) -> anyhow::Result<()> {
    Invocation::cargo(workspace, "test -p tidegate --no-default-features --locked").run()
}

fn core_alone(workspace: &Workspace) -> anyhow::Result<()> {
    Invocation::cargo(workspace, "build -p tidegate-core --no-default-features --locked").run()
}

fn loom(workspace: &Workspace) -> anyhow::Result<()> {
    loom_tests(workspace).run()?;
    let listed = loom_tests(workspace).words("--list").stdout()?;
    ensure!(
        lists_a_test(&listed),
        "no test matches `cargo {LOOM_TESTS}`: if the loom tests moved, say where in \
         xtask/src/test.rs"
    );
    Ok(())
}

fn loom_tests(workspace: &Workspace) -> Invocation {
    // Other RUSTFLAGS in the usual directory would rebuild every dependency, here and next time.
    Invocation::cargo(workspace, LOOM_TESTS)
        .env("RUSTFLAGS", LOOM_RUSTFLAGS)
        .env("CARGO_TARGET_DIR", workspace.target().join("loom"))
}

fn lists_a_test(listed: &str) -> bool {
    listed.lines().any(|line| line.ends_with(": test"))
}

fn examples(workspace: &Workspace) -> anyhow::Result<()> {
    Invocation::cargo(workspace, "build --release --examples --workspace --locked").run()
}

fn benches(workspace: &Workspace) -> anyhow::Result<()> {
    Invocation::cargo(workspace, "bench --workspace --no-run --locked").run()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_that_matches_nothing_is_noticed() {
        assert!(lists_a_test("shard::loom_two_writers: test\n\n1 test, 0 benchmarks\n"));
        assert!(!lists_a_test("0 tests, 0 benchmarks\n"));
    }
}

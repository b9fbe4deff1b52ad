//! Runs every check that CI runs.
//!
//! Always   A step that finds no test to run fails: otherwise a filter that matches no test would stay green forever.

use anyhow::ensure;

use crate::check;
use crate::command::Invocation;
use crate::debian::{self, Program};
use crate::instructions;
use crate::peers;
use crate::step::{self, Step};
use crate::workspace::Workspace;

const STEPS: &[Step] = &[
    Step { name: "tests and doc tests", run: all_features },
    Step { name: "tests, no default features", run: no_default_features },
    Step { name: "core alone, no features", run: core_alone },
    Step { name: "real clients and proxies", run: peers::all },
    Step { name: "loom", run: |workspace| LOOM.run(workspace) },
    Step { name: "shuttle", run: |workspace| SHUTTLE.run(workspace) },
    Step { name: "instructions", run: instructions::check },
];

/// The servers that tidegate-testbed starts, and the client that its own client is compared with.
const PROGRAMS: &[Program] = &[
    Program { name: "redis-server", package: "redis-server" },
    Program { name: "redis-cli", package: "redis-tools" },
    Program { name: "postgres", package: "postgresql" },
];

/// A tool that tries interleavings of threads: all of a few steps, or a sample of many steps. It needs optimised code to
/// finish in time.
pub(crate) struct Explorer {
    /// Its name, also of its target directory.
    name: &'static str,
    tests: &'static str,
    rustflags: &'static str,
}

const LOOM: Explorer = Explorer {
    name: "loom",
    tests: "test -p tidegate --lib --release --locked -- loom_",
    rustflags: "--cfg tidegate_loom",
};
pub(crate) const SHUTTLE: Explorer = Explorer {
    name: "shuttle",
    tests: "test -p tidegate --lib --release --locked -- shuttle_tests::",
    rustflags: "--cfg tidegate_shuttle",
};

pub(crate) fn run(workspace: &Workspace) -> anyhow::Result<()> {
    step::run_all(workspace, check::STEPS.iter().chain(STEPS))
}

fn all_features(workspace: &Workspace) -> anyhow::Result<()> {
    // Checked first, because the tests that need these programs come after minutes of building.
    debian::ensure_all(workspace, PROGRAMS)?;
    // Clippy has compiled the benches and their peers; only their shared code has tests.
    let bench = "-p tidegate-bench --no-default-features";
    for crates in [check::EVERY_CRATE[0], bench] {
        Invocation::cargo(workspace, &format!("test {crates} --locked")).run()?;
    }
    Ok(())
}

fn no_default_features(workspace: &Workspace) -> anyhow::Result<()> {
    // Only these tests depend on features; the others have run with all of them.
    let words = "test -p tidegate --no-default-features --lib --test calendar --locked";
    Invocation::cargo(workspace, words).run()
}

fn core_alone(workspace: &Workspace) -> anyhow::Result<()> {
    Invocation::cargo(workspace, "build -p tidegate-core --no-default-features --locked").run()
}

impl Explorer {
    fn run(&self, workspace: &Workspace) -> anyhow::Result<()> {
        self.tests(workspace).run()?;
        let listed = self.tests(workspace).words("--list").stdout()?;
        ensure!(
            lists_a_test(&listed),
            "no test matches `cargo {}`: if the {} tests have moved, update the filter in xtask/src/test.rs",
            self.tests,
            self.name
        );
        Ok(())
    }

    pub(crate) fn tests(&self, workspace: &Workspace) -> Invocation {
        // Other RUSTFLAGS in the usual target directory would rebuild every dependency, now and in the next build.
        Invocation::cargo(workspace, self.tests)
            .env("RUSTFLAGS", self.rustflags)
            .env("CARGO_TARGET_DIR", workspace.target().join(self.name))
    }
}

fn lists_a_test(listed: &str) -> bool {
    listed.lines().any(|line| line.ends_with(": test"))
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

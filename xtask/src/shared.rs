//! The tests of limits in Redis at full size (T37 and B2 of the catalogue).
//!
//! Always   The same tests as in CI, with more cases.

use crate::command::Invocation;
use crate::step::{self, Step};
use crate::workspace::Workspace;

const LEASES: &[Step] = &[
    Step { name: "100 nodes, 10 000 seeds", run: simulation },
    Step { name: "four processes, 60 s", run: processes },
];

/// Sequences of operations for each algorithm.
const SEQUENCES: &str = "1000000";
const SEEDS: &str = "10000";

/// Compares Rust with Lua, with a million sequences for each algorithm.
pub(crate) fn differential(workspace: &Workspace) -> anyhow::Result<()> {
    Invocation::cargo(workspace, "test -p tidegate-redis --release --locked --test differential")
        .env("TIDEGATE_SEQUENCES", SEQUENCES)
        .run()
}

/// Tests leases, in a simulation and with real processes.
pub(crate) fn leases(workspace: &Workspace) -> anyhow::Result<()> {
    step::run_all(workspace, LEASES)
}

fn simulation(workspace: &Workspace) -> anyhow::Result<()> {
    let tests = "test -p tidegate-redis --release --locked --lib -- simulation --show-output";
    Invocation::cargo(workspace, tests).env("TIDEGATE_SEEDS", SEEDS).run()
}

fn processes(workspace: &Workspace) -> anyhow::Result<()> {
    let tests = "test -p tidegate-redis --release --locked --test leases -- --show-output";
    Invocation::cargo(workspace, tests).env("TIDEGATE_FULL", "1").run()
}

//! The tests of limits in Redis at the sizes of the catalogue (T37, B2).
//!
//! Always   The same tests as in CI, told to be larger: nothing is tested here only.

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

/// Rust and Lua, a million sequences each.
pub(crate) fn differential(workspace: &Workspace) -> anyhow::Result<()> {
    Invocation::cargo(workspace, "test -p tidegate-redis --release --locked --test differential")
        .env("TIDEGATE_SEQUENCES", SEQUENCES)
        .run()
}

/// Leases, simulated and for real.
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

//! Runs the benchmarks, with every peer.
//!
//! Always   The arguments are passed to `cargo bench` unchanged: `cargo xtask bench --bench keyed -- 1M string`.

use crate::command::Invocation;
use crate::workspace::Workspace;

pub(crate) fn run(workspace: &Workspace, arguments: &[String]) -> anyhow::Result<()> {
    Invocation::cargo(workspace, "bench -p tidegate-bench --features limitador --locked")
        .arguments(arguments)
        .run()
}

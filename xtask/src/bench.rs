//! Runs every benchmark in the workspace.
//!
//! Always   What follows the command goes to `cargo bench` unread: `cargo xtask bench -p tidegate`.

use crate::command::Invocation;
use crate::workspace::Workspace;

pub(crate) fn run(workspace: &Workspace, arguments: &[String]) -> anyhow::Result<()> {
    let words = if arguments.is_empty() { "bench --workspace" } else { "bench" };
    Invocation::cargo(workspace, words).arguments(arguments).run()
}

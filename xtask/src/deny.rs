//! Checks dependencies: licences, sources and bans, and separately advisories.
//!
//! Always   `policy` depends on the repository alone, so that the result for a commit never changes. Advisories change
//!          daily and so have a command of their own.

use crate::command::Invocation;
use crate::tools::{self, DENY};
use crate::workspace::Workspace;

pub(crate) fn policy(workspace: &Workspace) -> anyhow::Result<()> {
    deny(workspace)?.words("--locked check bans licenses sources").run()
}

pub(crate) fn advisories(workspace: &Workspace) -> anyhow::Result<()> {
    println!("fetching the RustSec advisory database: this needs the network");
    deny(workspace)?.words("--locked check advisories").run()
}

fn deny(workspace: &Workspace) -> anyhow::Result<Invocation> {
    tools::invoke(workspace, &DENY)
}

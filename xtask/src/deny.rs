//! What may be depended on: licences, sources and bans, and apart from them, advisories.
//!
//! Always   `policy` depends on the repository alone, so that yesterday's commit passes tomorrow;
//!          advisories change under our feet and are therefore a command of their own.

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

//! Everything that can be said about the code without running it.
//!
//! Always   Warnings are errors here and not in the sources, so that a newer compiler's new
//!          warning never stops someone who only wants to build.

use crate::command::Invocation;
use crate::step::{self, Step};
use crate::workspace::Workspace;
use crate::{deny, tidy};

/// What answers in a second goes first, and what may have to be installed goes last.
pub(crate) const STEPS: &[Step] = &[
    Step { name: "formatting", run: formatting },
    Step { name: "tidy", run: tidy::run },
    Step { name: "clippy", run: clippy },
    Step { name: "docs", run: docs },
    Step { name: "dependency policy", run: deny::policy },
];

pub(crate) fn run(workspace: &Workspace) -> anyhow::Result<()> {
    step::run_all(workspace, STEPS)
}

fn formatting(workspace: &Workspace) -> anyhow::Result<()> {
    Invocation::cargo(workspace, "fmt --all --check").run()
}

fn clippy(workspace: &Workspace) -> anyhow::Result<()> {
    let words = "clippy --workspace --all-targets --all-features --locked -- -D warnings";
    Invocation::cargo(workspace, words).run()
}

fn docs(workspace: &Workspace) -> anyhow::Result<()> {
    Invocation::cargo(workspace, "doc --workspace --no-deps --all-features --locked")
        .env("RUSTDOCFLAGS", "-D warnings")
        .run()
}

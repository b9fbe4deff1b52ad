//! Static checks, which run no tests.
//!
//! Always   Warnings are errors here and not in the sources, so that a new warning of a newer compiler never breaks the
//!          build of a user.

use crate::command::Invocation;
use crate::step::{self, Step};
use crate::workspace::Workspace;
use crate::{deny, tidy};

/// The fastest step comes first, and a step that may install a tool comes last.
pub(crate) const STEPS: &[Step] = &[
    Step { name: "formatting", run: formatting },
    Step { name: "tidy", run: tidy::run },
    Step { name: "clippy", run: clippy },
    Step { name: "docs", run: docs },
    Step { name: "dependency policy", run: deny::policy },
];

/// All crates with all features, except the benches, whose features build peers for minutes.
pub(crate) const EVERY_CRATE: [&str; 2] =
    ["--workspace --exclude tidegate-bench --all-features", "-p tidegate-bench"];

pub(crate) fn run(workspace: &Workspace) -> anyhow::Result<()> {
    step::run_all(workspace, STEPS)
}

fn formatting(workspace: &Workspace) -> anyhow::Result<()> {
    Invocation::cargo(workspace, "fmt --all --check").run()
}

fn clippy(workspace: &Workspace) -> anyhow::Result<()> {
    for crates in EVERY_CRATE {
        let words = format!("clippy {crates} --all-targets --locked -- -D warnings");
        Invocation::cargo(workspace, &words).run()?;
    }
    // `--all-targets` leaves out tests that run only when they are named.
    let words = format!("clippy {} --test envoy --locked -- -D warnings", EVERY_CRATE[0]);
    Invocation::cargo(workspace, &words).run()
}

fn docs(workspace: &Workspace) -> anyhow::Result<()> {
    for crates in EVERY_CRATE {
        let words = format!("doc {crates} --no-deps --locked");
        Invocation::cargo(workspace, &words).env("RUSTDOCFLAGS", "-D warnings").run()?;
    }
    Ok(())
}

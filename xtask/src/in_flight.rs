//! The tests of permits at the size of the catalogue (T13): a million requests for each thing that lets only so many
//! in, ended in every way there is.
//!
//! Always   The same tests as in CI, told to be larger: nothing is tested here only.

use crate::command::Invocation;
use crate::workspace::Workspace;

const TESTS: &str = "test -p tidegate -p tidegate-tower --all-features --release --locked \
                     --test permits --test load --test layers -- t13_";

pub(crate) fn run(workspace: &Workspace) -> anyhow::Result<()> {
    Invocation::cargo(workspace, TESTS).env("TIDEGATE_FULL", "1").run()
}

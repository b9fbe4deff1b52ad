//! The tests of the store at full size (T16, T19, T20, T38, T39, T41 to T43 of the catalogue), many schedules of its
//! threads, and a service that is killed repeatedly.
//!
//! Always   The same tests as in CI, with larger sizes. They run one at a time, because some of them measure time or memory.

use crate::command::Invocation;
use crate::step::{self, Step};
use crate::test::SHUTTLE;
use crate::workspace::Workspace;

const STEPS: &[Step] = &[
    Step { name: "shuttle, 100 000 schedules", run: shuttle },
    Step { name: "store and snapshots, full size", run: store },
    Step { name: "32 flash sales of a killed service", run: sales },
];

const SCHEDULES: &str = "100000";
const STORE: &str = "test -p tidegate --test snapshot --test store --release --locked \
                     -- --test-threads 1 --show-output";

const SALES: &str = "test -p flash-sale --test killed --release --locked";

pub(crate) fn run(workspace: &Workspace) -> anyhow::Result<()> {
    step::run_all(workspace, STEPS)
}

fn shuttle(workspace: &Workspace) -> anyhow::Result<()> {
    SHUTTLE.tests(workspace).env("TIDEGATE_SCHEDULES", SCHEDULES).run()
}

fn sales(workspace: &Workspace) -> anyhow::Result<()> {
    Invocation::cargo(workspace, SALES).env("TIDEGATE_FULL", "1").run()
}

fn store(workspace: &Workspace) -> anyhow::Result<()> {
    Invocation::cargo(workspace, STORE).env("TIDEGATE_FULL", "1").run()
}

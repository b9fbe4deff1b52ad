//! Counts the instructions of one decision with valgrind's callgrind.
//!
//! Always   Only the functions `repeat` of `counted` and `repeat_batch` of `one_decision` are counted, and of them the
//!          difference between two runs, without start-up and without filling a table. Tables hash with random keys, so
//!          the cost of filling one varies.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;

use anyhow::{Context as _, anyhow, ensure};

use crate::command::Invocation;
use crate::debian;
use crate::workspace::Workspace;

/// Decisions of the short run; the long one makes twice as many.
const DECISIONS: u64 = 10_000;
const COUNTED: &str = "--toggle-collect=tidegate_bench::counted::repeat* \
                       --toggle-collect=one_decision::repeat_batch*";

const BUILD: &str = "build --release -p tidegate-bench --no-default-features --locked";
const PROGRAMS: [&str; 2] = ["one_decision", "one_call"];

/// The programs that make the decisions, and the directory of their profiles.
pub(super) struct Callgrind<'a> {
    workspace: &'a Workspace,
    profiles: PathBuf,
    /// Returns every case, with its program.
    cases: Vec<(String, PathBuf)>,
}

impl<'a> Callgrind<'a> {
    pub(super) fn prepare(workspace: &'a Workspace) -> anyhow::Result<Self> {
        debian::ensure(workspace, "valgrind", "valgrind")?;
        let programs = PROGRAMS.iter().flat_map(|program| ["--bin", program]);
        Invocation::cargo(workspace, BUILD).arguments(programs).run()?;
        let profiles = workspace.target().join("instructions");
        fs::create_dir_all(&profiles).context("cannot make the folder for profiles")?;
        let mut cases = Vec::new();
        for name in PROGRAMS {
            let program = workspace.target().join("release").join(name);
            let listed = Invocation::program(workspace, &program).stdout()?;
            cases.extend(listed.lines().map(|case| (case.to_owned(), program.clone())));
        }
        Ok(Self { workspace, profiles, cases })
    }

    pub(super) fn cases(&self) -> Vec<String> {
        self.cases.iter().map(|(case, _)| case.clone()).collect()
    }

    /// Counts the instructions of one decision, rounded up. The two runs are concurrent.
    pub(super) fn count(&self, case: &str) -> anyhow::Result<u64> {
        let (short, long) = thread::scope(|scope| {
            let short = scope.spawn(|| self.total(case, DECISIONS));
            let long = self.total(case, 2 * DECISIONS);
            (short.join(), long)
        });
        let short = short.map_err(|_| anyhow!("the thread that counted `{case}` panicked"))??;
        per_decision(short, long?).with_context(|| {
            format!("callgrind saw no decision of `{case}`; did `repeat` in counted.rs move?")
        })
    }

    /// Returns the command that shows the profile of a case.
    pub(super) fn profile(&self, case: &str) -> PathBuf {
        self.profile_of(case, 2 * DECISIONS)
    }

    fn profile_of(&self, case: &str, decisions: u64) -> PathBuf {
        self.profiles.join(format!("{case}-{decisions}.out"))
    }

    fn total(&self, case: &str, decisions: u64) -> anyhow::Result<u64> {
        let profile = self.profile_of(case, decisions);
        let program =
            self.cases.iter().find(|(known, _)| known == case).map(|(_, program)| program);
        let program = program.with_context(|| format!("there is no case `{case}`"))?;
        Invocation::program(self.workspace, Path::new("valgrind"))
            .words("--quiet --tool=callgrind")
            .words(COUNTED)
            .arguments([format!("--callgrind-out-file={}", profile.display())])
            .arguments([program])
            .arguments([case, &decisions.to_string()])
            .stdout()?;
        let text = fs::read_to_string(&profile)
            .with_context(|| format!("callgrind wrote no {}", profile.display()))?;
        total(&text).with_context(|| format!("{} has no total", profile.display()))
    }
}

fn per_decision(short: u64, long: u64) -> anyhow::Result<u64> {
    ensure!(long > short, "{short} instructions for n decisions, {long} for twice as many");
    Ok((long - short).div_ceil(DECISIONS))
}

/// Parses the number after `totals:`, the last line of callgrind's output.
fn total(profile: &str) -> Option<u64> {
    profile.lines().rev().find_map(|line| line.strip_prefix("totals:"))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_both_runs_have_in_common_cancels() {
        assert_eq!(per_decision(430_027, 860_027).unwrap(), 43);
        assert_eq!(per_decision(430_027, 860_028).unwrap(), 44, "rounded up");
    }

    #[test]
    fn a_run_in_which_nothing_was_counted_is_noticed() {
        assert!(per_decision(0, 0).is_err());
        assert!(per_decision(20, 10).is_err());
    }

    #[test]
    fn the_total_is_read_from_the_profile() {
        assert_eq!(total("events: Ir\nfn=(1)\n0 430027\n\ntotals: 430027\n"), Some(430_027));
        assert_eq!(total("events: Ir\n"), None);
    }
}

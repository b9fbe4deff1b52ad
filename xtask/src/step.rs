//! Runs a list of steps, each with a headline, and prints a table of their times.
//!
//! Always   The first failure ends the run, because later steps would mostly repeat its errors. The table is printed in
//!          any case.

use std::time::{Duration, Instant};

use anyhow::Context as _;

use crate::workspace::Workspace;

/// One line of the table.
pub(crate) struct Step {
    pub(crate) name: &'static str,
    pub(crate) run: fn(&Workspace) -> anyhow::Result<()>,
}

pub(crate) fn run_all<'a>(
    workspace: &Workspace,
    steps: impl IntoIterator<Item = &'a Step>,
) -> anyhow::Result<()> {
    let mut done = Vec::new();
    let mut result = Ok(());
    for step in steps {
        println!("\n=== {} ===", step.name);
        let started = now();
        result = (step.run)(workspace).with_context(|| format!("step `{}`", step.name));
        done.push(Done { name: step.name, took: started.elapsed(), passed: result.is_ok() });
        if result.is_err() {
            break;
        }
    }
    print!("\n{}", table(&done));
    result
}

struct Done {
    name: &'static str,
    took: Duration,
    passed: bool,
}

fn table(done: &[Done]) -> String {
    let total = Done {
        name: "total",
        took: done.iter().map(|step| step.took).sum(),
        passed: done.iter().all(|step| step.passed),
    };
    let rows: Vec<&Done> = done.iter().chain([&total]).collect();
    let width = rows.iter().map(|row| row.name.len()).max().unwrap_or(0);
    let line = |row: &Done| {
        let verdict = if row.passed { "ok" } else { "FAILED" };
        format!("{:width$} {:7.1} s  {verdict}\n", row.name, row.took.as_secs_f64())
    };
    rows.into_iter().map(line).collect::<Vec<String>>().concat()
}

#[expect(
    clippy::disallowed_methods,
    reason = "the time of a step is only printed; no decision depends on it"
)]
fn now() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests {
    use anyhow::bail;

    use super::*;

    #[test]
    fn the_table_has_a_line_for_each_step_and_the_total() {
        let done = [
            Done { name: "formatting", took: Duration::from_millis(1_200), passed: true },
            Done { name: "clippy", took: Duration::from_secs(61), passed: false },
        ];
        assert_eq!(
            table(&done),
            "formatting     1.2 s  ok\n\
             clippy        61.0 s  FAILED\n\
             total         62.2 s  FAILED\n"
        );
    }

    #[test]
    fn nothing_runs_after_a_failure_and_the_failure_names_its_step() {
        let steps = [
            Step { name: "passes", run: |_| Ok(()) },
            Step { name: "fails", run: |_| bail!("broken") },
            Step { name: "never", run: |_| panic!("this step ran after a failure") },
        ];
        let error = run_all(&Workspace::locate().unwrap(), &steps).unwrap_err();
        assert_eq!(format!("{error:#}"), "step `fails`: broken");
    }
}

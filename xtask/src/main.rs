//! The project's own commands: `cargo xtask` lists them.
//!
//! Always   Every command works from any directory of the workspace; all paths start at its root.
//! Exits    0 done, 1 the command failed, 2 there is no such command. Decided here and only here.

#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a command runner talks to the person who runs it"
)]

mod bench;
mod bench_serve;
mod check;
mod command;
mod debian;
mod deny;
mod fuzz;
mod instructions;
mod mutants;
mod peers;
mod shared;
mod soak;
mod step;
mod test;
mod tidy;
mod tools;
mod workspace;

use std::env;
use std::process::ExitCode;

use crate::workspace::Workspace;

/// One word after `cargo xtask`.
struct Task {
    name: &'static str,
    /// What may follow the name; empty means that nothing may.
    arguments: &'static str,
    about: &'static str,
    run: fn(&Workspace, &[String]) -> anyhow::Result<()>,
}

const TASKS: &[Task] = &[
    Task {
        name: "test",
        arguments: "",
        about: "every check that CI runs: `check`, all tests, real clients and proxies, loom, shuttle, instructions",
        run: |workspace, _| test::run(workspace),
    },
    Task {
        name: "check",
        arguments: "",
        about: "run formatting, clippy, docs, dependency policy and tidy, but no tests",
        run: |workspace, _| check::run(workspace),
    },
    Task {
        name: "tidy",
        arguments: "",
        about: "run the project's own lints",
        run: |workspace, _| tidy::run(workspace),
    },
    Task {
        name: "peers",
        arguments: "[name]",
        about: "test redis-cli, redis-py, ioredis, node-redis, nginx, Caddy, Envoy and others against the server",
        run: peers::run,
    },
    Task {
        name: "fuzz",
        arguments: "[target|all|keep] [seconds]",
        about: "fuzz one target or all (default: 60 seconds each); `keep` adds inputs with new coverage to the seeds",
        run: fuzz::run,
    },
    Task {
        name: "fuzz-long",
        arguments: "",
        about: "run the property tests at full size, a million cases each",
        run: |workspace, _| fuzz::properties(workspace),
    },
    Task {
        name: "soak",
        arguments: "",
        about: "run the tests of the store at full size, 100 000 thread schedules, and services that are killed",
        run: |workspace, _| soak::run(workspace),
    },
    Task {
        name: "differential",
        arguments: "",
        about: "compare Rust with Lua on a real Redis, a million sequences for each algorithm",
        run: |workspace, _| shared::differential(workspace),
    },
    Task {
        name: "leases",
        arguments: "",
        about: "test leases: 10 000 simulations of 100 nodes, and four processes for a minute",
        run: |workspace, _| shared::leases(workspace),
    },
    Task {
        name: "mutants",
        arguments: "[cargo-mutants options]",
        about: "change the algorithms one operator at a time, and check that a test fails",
        run: mutants::run,
    },
    Task {
        name: "bench",
        arguments: "[cargo bench options]",
        about: "run all benchmarks, or those selected, against every peer",
        run: bench::run,
    },
    Task {
        name: "bench-serve",
        arguments: bench_serve::ARGUMENTS,
        about: "measure the server beside Redis, redis-cell, throttlecrab and limitador: 15 minutes",
        run: bench_serve::run,
    },
    Task {
        name: "instructions",
        arguments: "[--write]",
        about: "compare the instructions of one decision with their ceilings, or set the ceilings",
        run: instructions::run,
    },
    Task {
        name: "advisories",
        arguments: "",
        about: "check dependencies against the RustSec database; needs the network",
        run: |workspace, _| deny::advisories(workspace),
    },
];

fn main() -> ExitCode {
    let words: Vec<String> = env::args().skip(1).collect();
    let Some((name, arguments)) = words.split_first() else {
        print!("{}", list());
        return ExitCode::SUCCESS;
    };
    if ["help", "--help", "-h"].contains(&name.as_str()) {
        print!("{}", list());
        return ExitCode::SUCCESS;
    }
    let Some(task) = TASKS.iter().find(|task| task.name == name) else {
        eprint!("error: there is no command `{name}`\n\n{}", list());
        return ExitCode::from(2);
    };
    if task.arguments.is_empty() && !arguments.is_empty() {
        eprintln!("error: `{name}` takes no arguments, got `{}`", arguments.join(" "));
        return ExitCode::from(2);
    }
    match Workspace::locate().and_then(|workspace| (task.run)(&workspace, arguments)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn list() -> String {
    let usages: Vec<String> = TASKS
        .iter()
        .map(|task| format!("{} {}", task.name, task.arguments).trim_end().to_owned())
        .collect();
    let width = usages.iter().map(String::len).max().unwrap_or(0);
    let line = |(task, usage): (&Task, &String)| format!("  {usage:width$}  {}\n", task.about);
    let lines: Vec<String> = TASKS.iter().zip(&usages).map(line).collect();
    format!("cargo xtask <command>\n\n{}", lines.concat())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_list_has_one_line_for_each_command() {
        let list = list();
        for task in TASKS {
            let lines = list.lines().filter(|line| {
                line.strip_prefix("  ").and_then(|line| line.split(' ').next()) == Some(task.name)
            });
            assert_eq!(lines.count(), 1, "{}", task.name);
        }
    }

    #[test]
    fn no_two_commands_share_a_name() {
        let names: BTreeSet<&str> = TASKS.iter().map(|task| task.name).collect();
        assert_eq!(names.len(), TASKS.len());
    }
}

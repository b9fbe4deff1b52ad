//! Compares the instructions of one decision with committed ceilings, to notice a slow-down without measuring time.
//!
//! Always   Counts do not depend on the load of the machine, except that a denial formats the current second. They depend
//!          on the compiler and the processor, which the file records.

mod callgrind;
mod ceilings;

use std::env::consts::ARCH;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, bail};

use self::callgrind::Callgrind;
use self::ceilings::{Ceilings, Count, Verdict, judge};
use crate::command::Invocation;
use crate::workspace::Workspace;

const FILE: &str = "crates/tidegate-bench/instructions.toml";

pub(crate) fn run(workspace: &Workspace, arguments: &[String]) -> anyhow::Result<()> {
    match arguments {
        [] => check(workspace),
        [flag] if flag == "--write" => write(workspace),
        _ => bail!("expected `cargo xtask instructions [--write]`, got `{}`", arguments.join(" ")),
    }
}

/// Fails if a case takes more than its ceiling plus 10 %.
pub(crate) fn check(workspace: &Workspace) -> anyhow::Result<()> {
    let callgrind = Callgrind::prepare(workspace)?;
    let cases = callgrind.cases();
    let ceilings = fs::read_to_string(workspace.root().join(FILE))
        .map_err(anyhow::Error::from)
        .and_then(|text| Ceilings::parse(&text))
        .with_context(|| format!("the ceilings in {FILE} cannot be read"))?;
    ceilings.are_for(&cases).with_context(|| FILE.to_owned())?;
    let mut slower = Vec::new();
    for case in &cases {
        let counted = callgrind.count(case)?;
        let ceiling = ceilings.of(case).expect("`are_for` has seen a ceiling for every case");
        println!("{}", line(case, counted, ceiling));
        if judge(counted, ceiling) == Verdict::TooMany {
            slower.push(case.as_str());
        }
    }
    if let Some(first) = slower.first() {
        let profile = callgrind.profile(first);
        bail!("{}", refusal(&slower, &profile, (&ceilings.counted_by, &counted_by(workspace)?)));
    }
    Ok(())
}

fn write(workspace: &Workspace) -> anyhow::Result<()> {
    let callgrind = Callgrind::prepare(workspace)?;
    let mut counts = Vec::new();
    for case in callgrind.cases() {
        let instructions = callgrind.count(&case)?;
        println!("{case:24} {instructions:6}");
        counts.push(Count { case, instructions });
    }
    let ceilings = Ceilings { counts, counted_by: counted_by(workspace)? };
    fs::write(workspace.root().join(FILE), ceilings.text())
        .with_context(|| format!("{FILE} cannot be written"))
}

fn counted_by(workspace: &Workspace) -> anyhow::Result<String> {
    let cargo = Invocation::cargo(workspace, "--version").stdout()?;
    Ok(format!("{} on {ARCH}", cargo.trim()))
}

fn line(case: &str, counted: u64, ceiling: u64) -> String {
    let remark = match judge(counted, ceiling) {
        Verdict::TooMany => "  TOO MANY",
        Verdict::Fine => "",
        Verdict::LowerTheCeiling => "  far below: lower the ceiling with --write",
    };
    format!("{case:24} {counted:6}  ceiling {ceiling:6}{remark}")
}

/// Describes a count above its ceiling, where to look, and what to do if it is intended.
fn refusal(slower: &[&str], profile: &Path, (then, now): (&str, &str)) -> String {
    let (cases, profile) = (slower.join(", "), profile.display());
    let other = if then == now {
        String::new()
    } else {
        format!("\nThe ceilings were counted by {then}; this is {now}.")
    };
    format!(
        "a decision takes over 10 % more instructions than its ceiling in {FILE}: {cases}.\n\
         Where they go:   callgrind_annotate {profile}\n\
         If it is meant:  cargo xtask instructions --write{other}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_says_what_where_and_what_to_do() {
        let message = refusal(&["gate-denied", "limiter-u64"], Path::new("a.out"), ("x", "x"));
        assert!(message.contains("instructions.toml: gate-denied, limiter-u64.\n"), "{message}");
        assert!(message.contains("callgrind_annotate a.out\n"), "{message}");
        assert!(message.ends_with("cargo xtask instructions --write"), "{message}");
    }

    #[test]
    fn another_compiler_is_mentioned() {
        let message = refusal(&["gate-denied"], Path::new("a.out"), ("cargo 1", "cargo 2"));
        assert!(message.ends_with("were counted by cargo 1; this is cargo 2."), "{message}");
    }

    #[test]
    fn a_line_tells_the_count_the_ceiling_and_what_is_wrong() {
        assert_eq!(line("gate-denied", 39, 39), "gate-denied                  39  ceiling     39");
        assert!(line("gate-denied", 60, 39).ends_with("  TOO MANY"));
        assert!(line("gate-denied", 20, 39).ends_with("lower the ceiling with --write"));
    }
}

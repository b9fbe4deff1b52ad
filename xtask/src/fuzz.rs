//! Runs the fuzz targets with libFuzzer, and the property tests at full size.
//!
//! Always   Works on the stable toolchain. cargo-fuzz passes `-Z` flags, which stable accepts if `RUSTC_BOOTSTRAP` is set;
//!          no released code is built that way.
//! Always   A run ends by itself.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, bail};

use crate::command::Invocation;
use crate::tools::{self, FUZZ};
use crate::workspace::Workspace;

const SECONDS_DEFAULT: u32 = 60;
const TARGETS: &str = "fuzz/fuzz_targets";
const FOUND: &str = "fuzz/corpus";
const SEEDS: &str = "fuzz/seeds";
/// No sanitizer: the targets contain hardly any unsafe code, and without one a run tries more inputs.
const RUN: &str = "run --fuzz-dir fuzz --sanitizer none";
/// Options to reduce the corpus to the fewest files with the same coverage, independent of hit counts.
const MERGE: &str = "-set_cover_merge=1 -use_counters=0 -max_len=1024";
/// Instead of a target's name.
const ALL: &str = "all";
const KEEP: &str = "keep";

/// Output is not captured: each property prints the algorithm that it has finished.
const PROPERTIES: &str =
    "test --release -p tidegate-conformance --test properties --locked -- --nocapture";
const PROPERTIES_CASES: &str = "1000000";

pub(crate) fn run(workspace: &Workspace, arguments: &[String]) -> anyhow::Result<()> {
    let targets = targets(&workspace.root().join(TARGETS))?;
    match arguments {
        [] => {
            println!("fuzz targets: {}", targets.join(", "));
            Ok(())
        }
        [keep] if keep == KEEP => {
            targets.iter().try_for_each(|target| self::keep(workspace, target))
        }
        [target] => fuzz(workspace, chosen(target, &targets)?, SECONDS_DEFAULT),
        [target, seconds] => fuzz(workspace, chosen(target, &targets)?, parse_seconds(seconds)?),
        _ => bail!("expected `cargo xtask fuzz [target] [seconds]`, got more"),
    }
}

/// Runs the property tests at full size.
pub(crate) fn properties(workspace: &Workspace) -> anyhow::Result<()> {
    Invocation::cargo(workspace, PROPERTIES).env("TIDEGATE_CASES", PROPERTIES_CASES).run()
}

/// Fuzzes each target for this time, one after the other.
fn fuzz(workspace: &Workspace, targets: &[String], seconds: u32) -> anyhow::Result<()> {
    for target in targets {
        // libFuzzer writes new inputs to the first directory, and only reads the second.
        invocation(workspace, target, [FOUND, SEEDS])?
            .arguments(["--", &format!("-max_total_time={seconds}")])
            .run()?;
    }
    Ok(())
}

/// Copies inputs that reach code that no seed reaches to the seeds, which are in git and which a plain test replays.
fn keep(workspace: &Workspace, target: &str) -> anyhow::Result<()> {
    invocation(workspace, target, [SEEDS, FOUND])?.arguments(["--"]).words(MERGE).run()
}

fn invocation(
    workspace: &Workspace,
    target: &str,
    corpora: [&str; 2],
) -> anyhow::Result<Invocation> {
    let corpora = corpora.map(|corpus| format!("{corpus}/{target}"));
    for corpus in &corpora {
        fs::create_dir_all(workspace.root().join(corpus)).context("cannot make a corpus folder")?;
    }
    let invocation = tools::invoke(workspace, &FUZZ)?.words(RUN).arguments([target]);
    Ok(invocation.arguments(corpora).env("RUSTC_BOOTSTRAP", "1"))
}

fn targets(directory: &Path) -> anyhow::Result<Vec<String>> {
    let entries = fs::read_dir(directory)
        .with_context(|| format!("no fuzz targets: {} cannot be read", directory.display()))?;
    let mut targets = Vec::new();
    for entry in entries {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "rs") {
            targets.extend(path.file_stem().map(|stem| stem.to_string_lossy().into_owned()));
        }
    }
    targets.sort();
    Ok(targets)
}

/// Returns the target with this name, or all.
fn chosen<'a>(word: &str, targets: &'a [String]) -> anyhow::Result<&'a [String]> {
    if word == ALL {
        return Ok(targets);
    }
    match targets.iter().position(|target| target == word) {
        Some(index) => Ok(&targets[index..=index]),
        None => bail!("there is no fuzz target `{word}`; there are: {}", targets.join(", ")),
    }
}

fn parse_seconds(word: &str) -> anyhow::Result<u32> {
    match word.parse() {
        // libFuzzer interprets 0 as no time limit.
        Ok(0) | Err(_) => bail!("`{word}` is not a number of seconds; give a whole number from 1"),
        Ok(seconds) => Ok(seconds),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_whole_and_at_least_one() {
        assert_eq!(parse_seconds("1").unwrap(), 1);
        for bad in ["0", "-1", "1.5", "soon", ""] {
            assert!(parse_seconds(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn an_unknown_target_is_answered_with_the_known_ones() {
        let targets = ["spec".to_owned(), "rule".to_owned()];
        assert_eq!(chosen("rule", &targets).unwrap(), ["rule"]);
        assert_eq!(chosen("all", &targets).unwrap(), targets);
        let error = chosen("sepc", &targets).unwrap_err();
        assert_eq!(error.to_string(), "there is no fuzz target `sepc`; there are: spec, rule");
    }
}

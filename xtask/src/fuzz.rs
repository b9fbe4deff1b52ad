//! Searches for inputs nobody thought of: libFuzzer for bytes, property tests for arithmetic.
//!
//! Always   Works on the stable toolchain. cargo-fuzz passes `-Z` flags, which stable accepts from
//!          whoever sets `RUSTC_BOOTSTRAP`; nothing that is shipped is built that way.
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
/// No sanitizer: the crates have no unsafe code but a prefetch, and without one a run tries more inputs.
const RUN: &str = "run --fuzz-dir fuzz --sanitizer none";

/// Not captured: each property says which algorithm it is done with.
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
        [target] => fuzz(workspace, known(target, &targets)?, SECONDS_DEFAULT),
        [target, seconds] => fuzz(workspace, known(target, &targets)?, parse_seconds(seconds)?),
        _ => bail!("expected `cargo xtask fuzz [target] [seconds]`, got more"),
    }
}

/// The property tests at full size.
pub(crate) fn properties(workspace: &Workspace) -> anyhow::Result<()> {
    Invocation::cargo(workspace, PROPERTIES).env("TIDEGATE_CASES", PROPERTIES_CASES).run()
}

fn fuzz(workspace: &Workspace, target: &str, seconds: u32) -> anyhow::Result<()> {
    // What is found is kept in the first, which git ignores; the second is read only.
    let found = format!("{FOUND}/{target}");
    fs::create_dir_all(workspace.root().join(&found)).context("cannot make the corpus folder")?;
    let seeds = format!("{SEEDS}/{target}");
    let seeds = Some(seeds.as_str()).filter(|seeds| workspace.root().join(seeds).is_dir());
    tools::invoke(workspace, &FUZZ)?
        .words(RUN)
        .arguments([target, &found].into_iter().chain(seeds))
        .arguments(["--", &format!("-max_total_time={seconds}")])
        .env("RUSTC_BOOTSTRAP", "1")
        .run()
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

fn known<'a>(target: &'a str, targets: &[String]) -> anyhow::Result<&'a str> {
    if !targets.iter().any(|known| known == target) {
        bail!("there is no fuzz target `{target}`; there are: {}", targets.join(", "));
    }
    Ok(target)
}

fn parse_seconds(word: &str) -> anyhow::Result<u32> {
    match word.parse() {
        // libFuzzer reads 0 as "for ever".
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
        let error = known("sepc", &["spec".to_owned(), "rule".to_owned()]).unwrap_err();
        assert_eq!(error.to_string(), "there is no fuzz target `sepc`; there are: spec, rule");
    }
}

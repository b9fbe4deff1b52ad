//! Passes every stored input to its fuzz target: the written seeds, and the inputs that a fuzzer has found.

use std::collections::BTreeSet;
use std::fs;
use std::panic::catch_unwind;
use std::path::{Path, PathBuf};
use tidegate_conformance::fuzz::{TARGETS, Target};

fn fuzz() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz")
}

/// Returns the entries of a directory in a fixed order.
fn entries(directory: &Path) -> BTreeSet<PathBuf> {
    let entries =
        fs::read_dir(directory).unwrap_or_else(|e| panic!("{}: {e}", directory.display()));
    entries.map(|entry| entry.expect("it can be read").path()).collect()
}

fn replay(name: &str, target: Target) {
    let files = entries(&fuzz().join("seeds").join(name));
    assert!(files.len() >= 3, "there are hardly any seeds for {name}");
    for file in files {
        let bytes = fs::read(&file).expect("it can be read");
        assert!(catch_unwind(|| target(&bytes)).is_ok(), "{} fails", file.display());
    }
}

#[test]
fn every_stored_input_passes() {
    std::thread::scope(|scope| {
        for (name, target) in TARGETS {
            scope.spawn(|| replay(name, *target));
        }
    });
}

#[test]
fn every_target_has_seeds() {
    let stem = |path: PathBuf| path.file_stem().map(|stem| stem.to_string_lossy().into_owned());
    let stems = |folder: &str| -> BTreeSet<String> {
        entries(&fuzz().join(folder)).into_iter().filter_map(stem).collect()
    };
    let known: BTreeSet<String> = TARGETS.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(stems("fuzz_targets"), known);
    assert_eq!(stems("seeds"), known);
}

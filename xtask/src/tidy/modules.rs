//! What every Rust file owes its reader: a first line that says what it is, and an end in sight.
//!
//! Always   Tests count towards a file's length: they have to be read too.

use super::Violation;
use super::tree::{File, Tree};

const LINES_MAX: usize = 600;

/// The crates' sources and ours open with why.
pub(super) fn openings(tree: &Tree) -> Vec<Violation> {
    rust_files(tree).filter(|file| is_source(&file.path)).filter_map(opening).collect()
}

fn rust_files(tree: &Tree) -> impl Iterator<Item = &File> {
    tree.files().filter(|file| file.extension() == "rs")
}

fn is_source(path: &str) -> bool {
    let parts: Vec<&str> = path.split('/').collect();
    matches!(parts[..], ["crates", _, "src", ..] | ["xtask", "src", ..])
}

fn opening(file: &File) -> Option<Violation> {
    let mut lines = file.lines().skip_while(|(_, line)| may_precede_opening(line));
    let (line, text) = lines.next().unwrap_or((1, ""));
    if text.starts_with("//!") {
        return None;
    }
    let what = "begin with `//!`: what the module is, then what a maintainer must not break";
    Some(Violation { path: file.path.clone(), line, rule: "opening", what: what.to_owned() })
}

fn may_precede_opening(line: &str) -> bool {
    line.starts_with("#!/") || line.starts_with("#![cfg")
}

pub(super) fn lengths(tree: &Tree) -> Vec<Violation> {
    rust_files(tree).filter_map(length).collect()
}

fn length(file: &File) -> Option<Violation> {
    let count = file.lines().count();
    if count <= LINES_MAX {
        return None;
    }
    let what = format!("{count} lines are more than {LINES_MAX}; split the file by what it does");
    Some(Violation { path: file.path.clone(), line: LINES_MAX + 1, rule: "length", what })
}

#[cfg(test)]
mod tests {
    use super::super::tests::places;
    use super::*;

    #[test]
    fn a_source_that_does_not_open_with_why_is_found() {
        let tree = Tree::of(&[
            ("crates/tidegate/src/lib.rs", "use std::fmt;\n"),
            ("crates/tidegate/src/clock/tsc.rs", ""),
            ("xtask/src/main.rs", "\n//! Late.\n"),
        ]);
        assert_eq!(
            places(&openings(&tree)),
            [
                "crates/tidegate/src/lib.rs:1",
                "crates/tidegate/src/clock/tsc.rs:1",
                "xtask/src/main.rs:1"
            ]
        );
    }

    #[test]
    fn only_a_cfg_or_a_shebang_may_come_before_it() {
        let tree = Tree::of(&[
            ("crates/tidegate/src/lib.rs", "//! Why.\n"),
            ("crates/tidegate/src/a.rs", "#![cfg(unix)]\n//! Why.\n"),
            ("xtask/src/b.rs", "#!/usr/bin/env run\n//! Why.\n"),
            ("crates/tidegate/tests/c.rs", "use std::fmt;\n"),
        ]);
        assert!(openings(&tree).is_empty());
        let tree = Tree::of(&[("crates/tidegate/src/lib.rs", "#![no_std]\n//! Why.\n")]);
        assert_eq!(places(&openings(&tree)), ["crates/tidegate/src/lib.rs:1"]);
    }

    #[test]
    fn a_file_may_have_max_lines_and_not_one_more() {
        let longest = "\n".repeat(LINES_MAX);
        let too_long = "\n".repeat(LINES_MAX + 1);
        assert!(lengths(&Tree::of(&[("fuzz/a.rs", &longest)])).is_empty());
        assert!(lengths(&Tree::of(&[("docs/a.md", &too_long)])).is_empty());
        assert_eq!(places(&lengths(&Tree::of(&[("fuzz/a.rs", &too_long)]))), ["fuzz/a.rs:601"]);
    }
}
